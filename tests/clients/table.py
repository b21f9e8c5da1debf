"""The table of the documentation: one row per client, one column per feature."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from attrs import define, field, frozen

from tests.clients.catalogue import CLIENTS, ClientSpec

# The tests, and the heads of their columns.
FEATURES: Mapping[str, str] = {
    "test_answer": "answer",
    "test_stream": "stream",
    "test_server_tool": "server tool",
    "test_second_turn": "second turn",
    "test_client_tool": "client tool",
    "test_failure": "failure",
    "test_streamed_failure": "failure, streamed",
    "test_disconnect": "disconnect",
}
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"
SIGNS = {"passed": "✓", "failed": "✗", "skipped": "n/a"}
NOT_RUN = "not run"


@frozen
class Cell:
    """How one test ended."""

    outcome: str  # of pytest
    reason: str = ""  # why it failed or was skipped


@define
class ClientTable:
    """All cells of one session."""

    versions: dict[str, str] = field(factory=dict)  # by the id of the client
    cells: dict[tuple[str, str], Cell] = field(factory=dict)  # by client and test

    def add(self, name: str, cell: Cell) -> None:
        """Take the result of a test: its name is ``test_…[client]``. A failure is never overwritten."""
        found = re.fullmatch(r"(\w+)\[(.+)\]", name)
        if found is None or found[1] not in FEATURES:
            return
        known = self.cells.get((found[2], found[1]))
        if known is None or known.outcome != "failed":
            self.cells[found[2], found[1]] = cell

    def markdown(self) -> str:
        """Return the table and, below it, a line for each cell that is not a tick."""
        head = ["client", "version", "API", *FEATURES.values()]
        lines = [_row(head), _row(["---"] * 3 + [":-:"] * len(FEATURES))]
        notes: list[str] = []
        for spec in CLIENTS:
            signs = [self._sign(spec, test, notes) for test in FEATURES]
            lines.append(_row([spec.name, self.versions.get(spec.id, NOT_RUN), spec.api, *signs]))
        return "\n".join([*lines, *([""] if notes else []), *notes])

    def write(self, page: Path) -> None:
        """Replace the table in a page."""
        text = page.read_text("utf-8")
        before, _, rest = text.partition(BEGIN)
        after = rest.partition(END)[2]
        assert after, f"{page} has no place for the table"
        page.write_text(f"{before}{BEGIN}\n\n{self.markdown()}\n\n{END}{after}", "utf-8")

    def _sign(self, spec: ClientSpec, test: str, notes: list[str]) -> str:
        cell = self.cells.get((spec.id, test))
        if cell is None:
            return ""
        if cell.outcome == "passed":
            return SIGNS["passed"]
        notes.append(f"{len(notes) + 1}. {spec.name}, {spec.api}, {FEATURES[test]}: {cell.reason}")
        return f"{SIGNS[cell.outcome]} ({len(notes)})"


def _row(values: list[str]) -> str:
    return f"| {' | '.join(values)} |"
