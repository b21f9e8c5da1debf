"""The summary of a session: how often each thing was tried, and how often it went wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from attrs import define, field, frozen

PROPERTY = "robustness"  # the name under which a test hands its counts over


@frozen(order=True)
class Line:
    """What was counted."""

    part: str
    what: str


@define
class Tally:
    """The counts of one test."""

    counts: Counter[Line] = field(factory=Counter)

    def add(self, part: str, counts: Mapping[str, int]) -> None:
        """So much more of some things."""
        for what, count in counts.items():
            self.counts[Line(part, what)] += count


@define
class Summary:
    """The counts of all tests."""

    tried: Counter[Line] = field(factory=Counter)
    tests: int = 0
    failed: list[str] = field(factory=list)

    def take(self, name: str, has_failed: bool) -> None:
        """One more test."""
        self.tests += 1
        if has_failed:
            self.failed.append(name)

    def take_counts(self, counts: Iterable[tuple[str, str, int]]) -> None:
        """What one test tried."""
        for part, what, count in counts:
            self.tried[Line(part, what)] += count

    def lines(self) -> list[str]:
        """As a table in Markdown."""
        rows = [f"| {line.part} | {line.what} | {count:,} |" for line, count in sorted(self.tried.items())]
        totals = Counter[str]()
        for line, count in self.tried.items():
            totals[line.part] += count
        sums = [f"| **{part}** | **all** | **{count:,}** |" for part, count in sorted(totals.items())]
        return ["| part | what | times |", "|---|---|--:|", *rows, *sums]

    def verdict(self) -> str:
        """In one sentence."""
        if self.failed:
            return f"{len(self.failed)} of {self.tests} tests failed: {', '.join(self.failed)}."
        return (
            f"{self.tests} tests, none failed: nothing lost, nothing told twice or wrongly, nothing left running, "
            "no slot leaked, nothing stuck, no 5xx that a client could cause."
        )

    def markdown(self) -> str:
        """The whole report."""
        return "\n".join(["# Robustness report", "", self.verdict(), "", *self.lines(), ""])


def as_property(tally: Tally) -> tuple[str, object]:
    """In a form that passes between processes."""
    return PROPERTY, [[line.part, line.what, count] for line, count in tally.counts.items()]
