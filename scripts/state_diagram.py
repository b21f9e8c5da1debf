"""Draw a state machine as SVG: states in columns from left to right, transitions as labelled arrows.

The drawing is a pure function of the transition table. Each state is one column to the right of its
rightmost predecessor, not counting back edges. An arrow that crosses a column gets a waypoint in it,
so that it runs around the states there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Any
from xml.sax.saxutils import escape

from attrs import define, field, frozen

Table = Mapping[tuple[Any, Any], Any]

LETTER = 7.4  # approximate width of a letter
HEIGHT = 34.0  # of a state
ROW = 62.0
MARGIN = 28.0
INK, PAPER, STATE, FINAL = "#334155", "#ffffff", "#e0ecff", "#e6f4ea"


@frozen
class StateMachine:
    """A transition table of ``core.state`` with its documentation."""

    name: str  # of the file
    title: str
    about: str
    table: Table
    first: StrEnum

    @property
    def states(self) -> tuple[str, ...]:
        """All states in the order of the table, the initial one first."""
        named = (
            str(state) for (source, _), target in self.table.items() for state in (source, target)
        )
        return tuple(dict.fromkeys([str(self.first), *named]))

    @property
    def ends(self) -> tuple[str, ...]:
        """The final states, which have no outgoing transition."""
        left = {str(source) for source, _ in self.table}
        return tuple(state for state in self.states if state not in left)

    @property
    def arrows(self) -> tuple[Arrow, ...]:
        """One arrow for each pair of states, labelled with all transitions between them."""
        transitions: dict[tuple[str, str], list[str]] = {}
        for (source, transition), target in self.table.items():
            transitions.setdefault((str(source), str(target)), []).append(str(transition))
        return tuple(Arrow(*ends, ", ".join(names)) for ends, names in transitions.items())


@frozen
class Arrow:
    """The transitions from one state to another."""

    source: str
    target: str
    label: str


@define(eq=False)
class Node:
    """A state, or a waypoint of an arrow that crosses a column."""

    column: int
    state: str = ""
    x: float = 0.0
    y: float = 0.0
    left: list[Segment] = field(factory=list)
    right: list[Segment] = field(factory=list)

    @property
    def width(self) -> float:
        """The width of the box; 0 for a waypoint."""
        return max(84.0, LETTER * len(self.state) + 28) if self.state else 0.0


@define(eq=False)
class Segment:
    """The part of an arrow between two adjacent columns."""

    begin: Node
    end: Node
    arrow: Arrow
    is_back: bool  # the arrow points to the left
    label: str = ""
    has_head: bool = False

    @property
    def label_place(self) -> tuple[float, float]:
        """Position of the label, as a fraction of the length and an offset.

        Labels of opposite arrows between the same states are kept apart.
        """
        between = [segment for segment in self.begin.right if segment.end is self.end]
        if len({segment.is_back for segment in between}) == 1:
            return 0.5, 0.0
        return (0.36, 9.0) if self.is_back else (0.64, -9.0)

    def port(self, node: Node) -> tuple[float, float]:
        """Return the point where the segment meets a node; the segments on one side are spread evenly."""
        side = node.right if node is self.begin else node.left
        share = (side.index(self) + 1) / (len(side) + 1) - 0.5
        x = node.x + (node.width / 2 if node is self.begin else -node.width / 2)
        return x, node.y + share * (HEIGHT - 6) * bool(node.state)


def assign_columns(machine: StateMachine) -> dict[str, int]:
    """Assign a column to each state."""
    back = set(_back_edges(machine))
    columns = dict.fromkeys(machine.states, 0)
    for _ in machine.states:  # no path is longer than that
        for arrow in machine.arrows:
            if arrow not in back and arrow.source != arrow.target:
                columns[arrow.target] = max(columns[arrow.target], columns[arrow.source] + 1)
    return columns


def _back_edges(machine: StateMachine) -> Iterator[Arrow]:
    """Yield the back edges of a depth-first search from the initial state."""
    ahead: dict[str, list[Arrow]] = {state: [] for state in machine.states}
    for arrow in machine.arrows:
        ahead[arrow.source].append(arrow)
    seen: set[str] = set()

    def visit(state: str, path: tuple[str, ...]) -> Iterator[Arrow]:
        seen.add(state)
        for arrow in ahead[state]:
            if arrow.target in path:
                yield arrow
            elif arrow.target not in seen:
                yield from visit(arrow.target, (*path, arrow.target))

    for state in machine.states:
        if state not in seen:
            yield from visit(state, (state,))


class Layout:
    """The layout of one state machine."""

    def __init__(self, machine: StateMachine) -> None:
        self._machine = machine
        columns = assign_columns(machine)
        self._states = {state: Node(column, state) for state, column in columns.items()}
        self._columns: list[list[Node]] = [[] for _ in range(max(columns.values()) + 1)]
        for node in self._states.values():
            self._columns[node.column].append(node)
        self._segments = [segment for arrow in machine.arrows for segment in self._route(arrow)]
        self._place()

    def _route(self, arrow: Arrow) -> Iterator[Segment]:
        ends = [self._states[arrow.source], self._states[arrow.target]]
        is_back = ends[0].column > ends[1].column
        begin, end = reversed(ends) if is_back else ends
        waypoints = [Node(column) for column in range(begin.column + 1, end.column)]
        for node in waypoints:
            self._columns[node.column].append(node)
        pieces = [*pairwise([begin, *waypoints, end])] if begin is not end else []
        head = 0 if is_back else len(pieces) - 1
        for n, (near, far) in enumerate(pieces):
            segment = Segment(near, far, arrow, is_back, arrow.label if n == 0 else "", n == head)
            near.right.append(segment)
            far.left.append(segment)
            yield segment

    def _place(self) -> None:
        self.height = MARGIN + ROW * max(map(len, self._columns)) + MARGIN
        for _ in range(8):
            for column in self._columns:
                self._stack(column)
                column.sort(key=self._mean_neighbour_height)
        x = MARGIN + 24
        for column in self._columns:
            self._stack(column)
            width = max(node.width for node in column)
            for node in column:
                node.x = x + width / 2
            labels = [LETTER * len(segment.label) for node in column for segment in node.right]
            x += width + max([0.0, *labels]) + 56
        self.width = x - 56 + MARGIN
        for node in (node for column in self._columns for node in column):
            node.right.sort(key=lambda segment: segment.end.y)
            node.left.sort(key=lambda segment: segment.begin.y)

    def _stack(self, column: Sequence[Node]) -> None:
        top = (self.height - ROW * len(column)) / 2
        for n, node in enumerate(column):
            node.y = top + ROW * (n + 0.5)

    def _mean_neighbour_height(self, node: Node) -> float:
        """Return the mean height of the neighbours."""
        heights = [segment.begin.y for segment in node.left] + [
            segment.end.y for segment in node.right
        ]
        return sum(heights) / len(heights) if heights else node.y

    def lines(self) -> Iterator[str]:
        """Yield the lines of the SVG document."""
        size = f'width="{self.width:.0f}" height="{self.height:.0f}"'
        yield f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {self.width:.0f} {self.height:.0f}" role="img">'
        yield f"<title>{escape(self._machine.title)}</title>"
        yield (
            '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8"'
            f' orient="auto-start-reverse"><path d="M0 1 L10 5 L0 9 z" fill="{INK}"/></marker></defs>'
        )
        yield f'<rect width="100%" height="100%" rx="8" fill="{PAPER}"/>'
        yield f'<g font-family="ui-sans-serif, system-ui, sans-serif" font-size="13" fill="{INK}" text-anchor="middle">'
        yield from self._initial_marker()
        yield from (line for segment in self._segments for line in _curve(segment))
        yield from (
            line
            for arrow in self._loops()
            for line in _loop(self._states[arrow.source], arrow.label)
        )
        yield from (line for node in self._states.values() for line in self._box(node))
        yield from (line for segment in self._segments for line in _label(segment))
        yield "</g></svg>"

    def _initial_marker(self) -> Iterable[str]:
        first = self._states[str(self._machine.first)]
        x = first.x - first.width / 2
        yield f'<circle cx="{x - 34:.1f}" cy="{first.y:.1f}" r="5"/>'
        yield f'<path d="M{x - 29:.1f} {first.y:.1f} H{x:.1f}" stroke="{INK}" marker-end="url(#head)"/>'

    def _loops(self) -> Iterator[Arrow]:
        return (arrow for arrow in self._machine.arrows if arrow.source == arrow.target)

    def _box(self, node: Node) -> Iterable[str]:
        x, y = node.x - node.width / 2, node.y - HEIGHT / 2
        is_end = node.state in self._machine.ends
        edge = 2.5 if is_end else 1.2
        yield (
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{node.width:.1f}" height="{HEIGHT:.0f}" rx="9"'
            f' fill="{FINAL if is_end else STATE}" stroke="{INK}" stroke-width="{edge}"/>'
        )
        yield f'<text x="{node.x:.1f}" y="{node.y + 4.5:.1f}">{escape(node.state)}</text>'


def _curve(segment: Segment) -> Iterable[str]:
    (x, y), (to_x, to_y) = segment.port(segment.begin), segment.port(segment.end)
    bend = (to_x - x) * 0.4
    head = ' marker-start="url(#head)"' if segment.is_back else ' marker-end="url(#head)"'
    yield (
        f'<path d="M{x:.1f} {y:.1f} C{x + bend:.1f} {y:.1f} {to_x - bend:.1f} {to_y:.1f} {to_x:.1f} {to_y:.1f}"'
        f' fill="none" stroke="{INK}"{head if segment.has_head else ""}/>'
    )


def _label(segment: Segment) -> Iterable[str]:
    if segment.label:
        (x, y), (to_x, to_y) = segment.port(segment.begin), segment.port(segment.end)
        halo = f'stroke="{PAPER}" stroke-width="5" paint-order="stroke"'
        along, aside = segment.label_place
        middle = f'x="{x + (to_x - x) * along:.1f}" y="{y + (to_y - y) * along + 4 + aside:.1f}"'
        yield f'<text {middle} font-size="12" font-style="italic" {halo}>{escape(segment.label)}</text>'


def _loop(node: Node, label: str) -> Iterable[str]:
    x, y = node.x, node.y - HEIGHT / 2
    yield (
        f'<path d="M{x - 14:.1f} {y:.1f} C{x - 22:.1f} {y - 24:.1f} {x + 22:.1f} {y - 24:.1f} {x + 14:.1f} {y:.1f}"'
        f' fill="none" stroke="{INK}" marker-end="url(#head)"/>'
    )
    yield f'<text x="{x:.1f}" y="{y - 20:.1f}" font-size="12" font-style="italic">{escape(label)}</text>'


def svg(machine: StateMachine) -> str:
    """Draw a state machine."""
    return "\n".join(Layout(machine).lines()) + "\n"
