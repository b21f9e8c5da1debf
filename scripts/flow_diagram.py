"""Draw a flow diagram from text: boxes on a grid, with straight arrows between them.

The text has one box (``COLUMN ROW NAME | CAPTION``) or one arrow (``SOURCE -> TARGET: LABEL``) per
line; ``..>`` makes a dashed arrow. Empty lines and lines that begin with ``#`` are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.sax.saxutils import escape

from attrs import frozen

BOX_WIDTH, BOX_HEIGHT = 170.0, 56.0
GAP_X, GAP_Y = 130.0, 66.0
MARGIN = 24.0
PAIR_OFFSET = 11.0  # of two arrows between the same boxes, from their common axis
INK, PAPER, FILL = "#334155", "#ffffff", "#e0ecff"

_BOX = re.compile(r"(?P<column>\d+) (?P<row>\d+) (?P<name>[^|]+?) \| (?P<caption>.+)")
_ARROW = re.compile(r"(?P<source>.+?) (?P<line>->|\.\.>) (?P<target>[^:]+): (?P<label>.+)")


@frozen
class Box:
    """One box of the grid."""

    column: int
    row: int
    name: str
    caption: str

    @property
    def center(self) -> tuple[float, float]:
        """Its middle, in pixels."""
        x = MARGIN + BOX_WIDTH / 2 + self.column * (BOX_WIDTH + GAP_X)
        return x, MARGIN + BOX_HEIGHT / 2 + self.row * (BOX_HEIGHT + GAP_Y)


@frozen
class Flow:
    """One arrow between two boxes."""

    source: str
    target: str
    label: str
    is_dashed: bool


@frozen
class FlowDiagram:
    """The parsed text: boxes by name, and arrows."""

    title: str
    boxes: dict[str, Box]
    flows: tuple[Flow, ...]


def parse(title: str, text: str) -> FlowDiagram:
    """Parse a description.

    Raises:
        ValueError: A line is neither a box nor an arrow, or an arrow names an unknown box.
    """
    boxes: dict[str, Box] = {}
    flows: list[Flow] = []
    for line in filter(None, (line.strip() for line in text.splitlines())):
        if line.startswith("#"):
            continue
        if found := _BOX.fullmatch(line):
            box = Box(int(found["column"]), int(found["row"]), found["name"], found["caption"])
            boxes[box.name] = box
        elif found := _ARROW.fullmatch(line):
            flows.append(
                Flow(found["source"], found["target"], found["label"], found["line"] == "..>")
            )
        else:
            raise ValueError(f"neither a box nor an arrow: {line}")
    unknown = {name for flow in flows for name in (flow.source, flow.target)} - set(boxes)
    if unknown:
        raise ValueError(f"no such box: {', '.join(sorted(unknown))}")
    return FlowDiagram(title, boxes, tuple(flows))


def render(diagram: FlowDiagram) -> str:
    """Render the diagram as an SVG document."""
    return "\n".join(_lines(diagram)) + "\n"


def _lines(diagram: FlowDiagram) -> Iterator[str]:
    width = max(box.center[0] for box in diagram.boxes.values()) + BOX_WIDTH / 2 + MARGIN
    height = max(box.center[1] for box in diagram.boxes.values()) + BOX_HEIGHT / 2 + MARGIN
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    yield f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
    yield f"<title>{escape(diagram.title)}</title>"
    yield (
        '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8"'
        f' orient="auto"><path d="M0 1 L10 5 L0 9 z" fill="{INK}"/></marker></defs>'
    )
    yield f'<rect width="100%" height="100%" rx="8" fill="{PAPER}"/>'
    yield f'<g font-family="ui-sans-serif, system-ui, sans-serif" font-size="13" fill="{INK}" text-anchor="middle">'
    for flow in diagram.flows:
        yield from _arrow(diagram, flow)
    for box in diagram.boxes.values():
        yield from _box(box)
    yield "</g></svg>"


def _box(box: Box) -> Iterator[str]:
    x, y = box.center
    yield (
        f'<rect x="{x - BOX_WIDTH / 2:.1f}" y="{y - BOX_HEIGHT / 2:.1f}" width="{BOX_WIDTH:.0f}"'
        f' height="{BOX_HEIGHT:.0f}" rx="9" fill="{FILL}" stroke="{INK}" stroke-width="1.2"/>'
    )
    yield f'<text x="{x:.1f}" y="{y - 4:.1f}" font-weight="600">{escape(box.name)}</text>'
    yield f'<text x="{x:.1f}" y="{y + 15:.1f}" font-size="11">{escape(box.caption)}</text>'


def _arrow(diagram: FlowDiagram, flow: Flow) -> Iterator[str]:
    source, target = diagram.boxes[flow.source], diagram.boxes[flow.target]
    x, y = _edge(source, target)
    to_x, to_y = _edge(target, source)
    # Two arrows between the same boxes run side by side: one above the axis, the other below.
    if any((other.source, other.target) == (flow.target, flow.source) for other in diagram.flows):
        offset = -PAIR_OFFSET if source.column < target.column else PAIR_OFFSET
        y, to_y = y + offset, to_y + offset
    dash = ' stroke-dasharray="6 4"' if flow.is_dashed else ""
    yield (
        f'<path d="M{x:.1f} {y:.1f} L{to_x:.1f} {to_y:.1f}" fill="none" stroke="{INK}"{dash}'
        ' marker-end="url(#head)"/>'
    )
    halo = f'stroke="{PAPER}" stroke-width="5" paint-order="stroke"'
    above = -6 if source.row == target.row else 4
    yield (
        f'<text x="{(x + to_x) / 2:.1f}" y="{(y + to_y) / 2 + above:.1f}" font-size="11" font-style="italic"'
        f" {halo}>{escape(flow.label)}</text>"
    )


def _edge(box: Box, other: Box) -> tuple[float, float]:
    """Return the point where an arrow between two boxes touches the first.

    A side, or a corner for a diagonal.
    """
    x, y = box.center
    right, down = _sign(other.column - box.column), _sign(other.row - box.row)
    inset = (
        12.0 if right and down else 0.0
    )  # a diagonal arrow leaves beside the corner, not at its curve
    return x + right * (BOX_WIDTH / 2 - inset), y + down * BOX_HEIGHT / 2


def _sign(number: int) -> int:
    return (number > 0) - (number < 0)
