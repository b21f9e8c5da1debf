"""A table of moves as a drawing: states in columns from left to right, moves as labelled arrows.

The drawing is a pure function of the table. Each state stands one column to the right of the
furthest state that leads to it; moves that lead back do not count for that. A move that passes a
column is given a place in it, so that its arrow goes around the states there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Any
from xml.sax.saxutils import escape

from attrs import define, field, frozen

Table = Mapping[tuple[Any, Any], Any]

LETTER = 7.4  # about how wide a letter is
HEIGHT = 34.0  # of a state
ROW = 62.0
MARGIN = 28.0
INK, PAPER, STATE, FINAL = "#334155", "#ffffff", "#e0ecff", "#e6f4ea"


@frozen
class Machine:
    """One table of ``core.state``, with what a reader should know of it."""

    name: str  # of the file
    title: str
    about: str
    table: Table
    first: StrEnum

    @property
    def states(self) -> tuple[str, ...]:
        """In the order in which the table names them, the first one first."""
        named = (
            str(state) for (source, _), target in self.table.items() for state in (source, target)
        )
        return tuple(dict.fromkeys([str(self.first), *named]))

    @property
    def ends(self) -> tuple[str, ...]:
        """States that nothing leads out of."""
        left = {str(source) for source, _ in self.table}
        return tuple(state for state in self.states if state not in left)

    @property
    def arrows(self) -> tuple[Arrow, ...]:
        """One for each pair of states, with all moves between them."""
        moves: dict[tuple[str, str], list[str]] = {}
        for (source, move), target in self.table.items():
            moves.setdefault((str(source), str(target)), []).append(str(move))
        return tuple(Arrow(*ends, ", ".join(names)) for ends, names in moves.items())


@frozen
class Arrow:
    """The moves from one state to another."""

    source: str
    target: str
    label: str


@define(eq=False)
class Spot:
    """A state, or the place where an arrow passes a column."""

    column: int
    state: str = ""
    x: float = 0.0
    y: float = 0.0
    left: list[Strand] = field(factory=list)
    right: list[Strand] = field(factory=list)

    @property
    def width(self) -> float:
        """A mere passage has none."""
        return max(84.0, LETTER * len(self.state) + 28) if self.state else 0.0


@define(eq=False)
class Strand:
    """The piece of an arrow between two columns next to each other."""

    begin: Spot
    end: Spot
    arrow: Arrow
    is_back: bool  # the arrow points to the left
    label: str = ""
    has_head: bool = False

    @property
    def label_place(self) -> tuple[float, float]:
        """How far along its label stands, and how far aside.

        Two that go to and fro keep out of each other's way.
        """
        between = [strand for strand in self.begin.right if strand.end is self.end]
        if len({strand.is_back for strand in between}) == 1:
            return 0.5, 0.0
        return (0.36, 9.0) if self.is_back else (0.64, -9.0)

    def port(self, spot: Spot) -> tuple[float, float]:
        """Where it leaves or reaches a spot: strands at one side of a state share it evenly."""
        side = spot.right if spot is self.begin else spot.left
        share = (side.index(self) + 1) / (len(side) + 1) - 0.5
        x = spot.x + (spot.width / 2 if spot is self.begin else -spot.width / 2)
        return x, spot.y + share * (HEIGHT - 6) * bool(spot.state)


def columns_of(machine: Machine) -> dict[str, int]:
    """The column of each state."""
    back = set(_back_arrows(machine))
    columns = dict.fromkeys(machine.states, 0)
    for _ in machine.states:  # no path is longer than that
        for arrow in machine.arrows:
            if arrow not in back and arrow.source != arrow.target:
                columns[arrow.target] = max(columns[arrow.target], columns[arrow.source] + 1)
    return columns


def _back_arrows(machine: Machine) -> Iterator[Arrow]:
    """Those that close a circle, seen from the first state."""
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


class Drawing:
    """One machine on paper."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        columns = columns_of(machine)
        self._states = {state: Spot(column, state) for state, column in columns.items()}
        self._columns: list[list[Spot]] = [[] for _ in range(max(columns.values()) + 1)]
        for spot in self._states.values():
            self._columns[spot.column].append(spot)
        self._strands = [strand for arrow in machine.arrows for strand in self._lay(arrow)]
        self._place()

    def _lay(self, arrow: Arrow) -> Iterator[Strand]:
        ends = [self._states[arrow.source], self._states[arrow.target]]
        is_back = ends[0].column > ends[1].column
        begin, end = reversed(ends) if is_back else ends
        passages = [Spot(column) for column in range(begin.column + 1, end.column)]
        for spot in passages:
            self._columns[spot.column].append(spot)
        pieces = [*pairwise([begin, *passages, end])] if begin is not end else []
        head = 0 if is_back else len(pieces) - 1
        for n, (near, far) in enumerate(pieces):
            strand = Strand(near, far, arrow, is_back, arrow.label if n == 0 else "", n == head)
            near.right.append(strand)
            far.left.append(strand)
            yield strand

    def _place(self) -> None:
        self.height = MARGIN + ROW * max(map(len, self._columns)) + MARGIN
        for _ in range(8):
            for column in self._columns:
                self._stack(column)
                column.sort(key=self._pull)
        x = MARGIN + 24
        for column in self._columns:
            self._stack(column)
            width = max(spot.width for spot in column)
            for spot in column:
                spot.x = x + width / 2
            labels = [LETTER * len(strand.label) for spot in column for strand in spot.right]
            x += width + max([0.0, *labels]) + 56
        self.width = x - 56 + MARGIN
        for spot in (spot for column in self._columns for spot in column):
            spot.right.sort(key=lambda strand: strand.end.y)
            spot.left.sort(key=lambda strand: strand.begin.y)

    def _stack(self, column: Sequence[Spot]) -> None:
        top = (self.height - ROW * len(column)) / 2
        for n, spot in enumerate(column):
            spot.y = top + ROW * (n + 0.5)

    def _pull(self, spot: Spot) -> float:
        """The height that its neighbours would like it to have."""
        heights = [strand.begin.y for strand in spot.left] + [strand.end.y for strand in spot.right]
        return sum(heights) / len(heights) if heights else spot.y

    def lines(self) -> Iterator[str]:
        """The SVG document."""
        size = f'width="{self.width:.0f}" height="{self.height:.0f}"'
        yield f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {self.width:.0f} {self.height:.0f}" role="img">'
        yield f"<title>{escape(self._machine.title)}</title>"
        yield (
            '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8"'
            f' orient="auto-start-reverse"><path d="M0 1 L10 5 L0 9 z" fill="{INK}"/></marker></defs>'
        )
        yield f'<rect width="100%" height="100%" rx="8" fill="{PAPER}"/>'
        yield f'<g font-family="ui-sans-serif, system-ui, sans-serif" font-size="13" fill="{INK}" text-anchor="middle">'
        yield from self._beginning()
        yield from (line for strand in self._strands for line in _curve(strand))
        yield from (
            line
            for arrow in self._loops()
            for line in _loop(self._states[arrow.source], arrow.label)
        )
        yield from (line for spot in self._states.values() for line in self._box(spot))
        yield from (line for strand in self._strands for line in _label(strand))
        yield "</g></svg>"

    def _beginning(self) -> Iterable[str]:
        first = self._states[str(self._machine.first)]
        x = first.x - first.width / 2
        yield f'<circle cx="{x - 34:.1f}" cy="{first.y:.1f}" r="5"/>'
        yield f'<path d="M{x - 29:.1f} {first.y:.1f} H{x:.1f}" stroke="{INK}" marker-end="url(#head)"/>'

    def _loops(self) -> Iterator[Arrow]:
        return (arrow for arrow in self._machine.arrows if arrow.source == arrow.target)

    def _box(self, spot: Spot) -> Iterable[str]:
        x, y = spot.x - spot.width / 2, spot.y - HEIGHT / 2
        is_end = spot.state in self._machine.ends
        edge = 2.5 if is_end else 1.2
        yield (
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{spot.width:.1f}" height="{HEIGHT:.0f}" rx="9"'
            f' fill="{FINAL if is_end else STATE}" stroke="{INK}" stroke-width="{edge}"/>'
        )
        yield f'<text x="{spot.x:.1f}" y="{spot.y + 4.5:.1f}">{escape(spot.state)}</text>'


def _curve(strand: Strand) -> Iterable[str]:
    (x, y), (to_x, to_y) = strand.port(strand.begin), strand.port(strand.end)
    bend = (to_x - x) * 0.4
    head = ' marker-start="url(#head)"' if strand.is_back else ' marker-end="url(#head)"'
    yield (
        f'<path d="M{x:.1f} {y:.1f} C{x + bend:.1f} {y:.1f} {to_x - bend:.1f} {to_y:.1f} {to_x:.1f} {to_y:.1f}"'
        f' fill="none" stroke="{INK}"{head if strand.has_head else ""}/>'
    )


def _label(strand: Strand) -> Iterable[str]:
    if strand.label:
        (x, y), (to_x, to_y) = strand.port(strand.begin), strand.port(strand.end)
        halo = f'stroke="{PAPER}" stroke-width="5" paint-order="stroke"'
        along, aside = strand.label_place
        middle = f'x="{x + (to_x - x) * along:.1f}" y="{y + (to_y - y) * along + 4 + aside:.1f}"'
        yield f'<text {middle} font-size="12" font-style="italic" {halo}>{escape(strand.label)}</text>'


def _loop(spot: Spot, label: str) -> Iterable[str]:
    x, y = spot.x, spot.y - HEIGHT / 2
    yield (
        f'<path d="M{x - 14:.1f} {y:.1f} C{x - 22:.1f} {y - 24:.1f} {x + 22:.1f} {y - 24:.1f} {x + 14:.1f} {y:.1f}"'
        f' fill="none" stroke="{INK}" marker-end="url(#head)"/>'
    )
    yield f'<text x="{x:.1f}" y="{y - 20:.1f}" font-size="12" font-style="italic">{escape(label)}</text>'


def svg(machine: Machine) -> str:
    """The drawing of a machine."""
    return "\n".join(Drawing(machine).lines()) + "\n"
