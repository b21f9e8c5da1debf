"""The summary of a session.

How often each thing was tried, what was looked for, and how often it was found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from attrs import define, field, frozen

from tests.robustness.violations import MEANING, Violation

PROPERTY = "robustness"  # the name under which a test hands its counts over
VIOLATIONS_PROPERTY = "robustness-book"  # and that for what was looked for


@frozen(order=True)
class CountedCase:
    """What was counted."""

    part: str
    what: str


@define
class CaseCounter:
    """The counts of one test."""

    counts: Counter[CountedCase] = field(factory=Counter)

    def add(self, part: str, counts: Mapping[str, int]) -> None:
        """So much more of some things."""
        for what, count in counts.items():
            self.counts[CountedCase(part, what)] += count


def _is_disconnect(line: CountedCase) -> bool:
    return line.part == "real disconnects" and not line.what.endswith("stays")


MEASURED = frozenset({"memory", "soak"})  # parts whose figures are no counts

# The figures that people ask for first.
HEADLINES: Mapping[str, Callable[[CountedCase], bool]] = {
    "cuts, at a checkpoint each": lambda line: line.part == "cuts",
    "failures of a part of ours": lambda line: line.part == "our own faults",
    "real disconnects": _is_disconnect,
    "kill -9 under load": lambda line: line.what == "kill -9",
    "bad requests": lambda line: line.part == "bad input" or line.what == "hostile requests",
    "races": lambda line: line.part == "races",
    "cut, silent or spoilt lines to a model": lambda line: line.part == "upstream faults",
}


@define
class Summary:
    """The counts of all tests."""

    tried: Counter[CountedCase] = field(factory=Counter)
    checked: Counter[str] = field(factory=Counter)
    found: Counter[str] = field(factory=Counter)
    tests: set[str] = field(factory=set)
    failed: list[str] = field(factory=list)
    seconds: float = 0.0

    def take(self, name: str, has_failed: bool) -> None:
        """One more test, or one more part of it."""
        self.tests.add(name)
        if has_failed:
            self.failed.append(name)

    def take_counts(self, counts: Iterable[tuple[str, str, int]]) -> None:
        """What one test tried."""
        for part, what, count in counts:
            self.tried[CountedCase(part, what)] += count

    def take_book(self, rows: Iterable[tuple[str, int, int]]) -> None:
        """What one test looked for."""
        for violation, checked, found in rows:
            self.checked[violation] += checked
            self.found[violation] += found

    def verdict(self) -> str:
        """In one sentence."""
        took = f"{len(self.tests)} tests in {self.seconds / 60:.1f} minutes"
        if self.failed:
            return f"{took}, {len(self.failed)} failed: {', '.join(self.failed)}."
        return f"{took}, none failed."

    def headlines(self) -> list[str]:
        """The sums that count most."""
        sums = {
            name: sum(count for line, count in self.tried.items() if belongs(line))
            for name, belongs in HEADLINES.items()
        }
        rows = [f"| {name} | {count:,} |" for name, count in sums.items() if count]
        return ["| tried | times |", "|---|--:|", *rows]

    def findings(self) -> list[str]:
        """What was looked for. None of it may ever be found."""
        rows = [
            f"| {violation} | {MEANING[violation]} | {self.checked[violation]:,} | {self.found[violation]:,} |"
            for violation in Violation
        ]
        return ["| looked for | that is | looked | found |", "|---|---|--:|--:|", *rows]

    def details(self) -> list[str]:
        """All that was tried."""
        rows = [
            f"| {line.part} | {line.what} | {count:,} |"
            for line, count in sorted(self.tried.items())
        ]
        totals = Counter[str]()
        for line, count in self.tried.items():
            if line.part not in MEASURED:
                totals[line.part] += count
        sums = [
            f"| **{part}** | **all** | **{count:,}** |" for part, count in sorted(totals.items())
        ]
        return ["| part | what | times |", "|---|---|--:|", *rows, *sums]

    def lines(self) -> list[str]:
        """The whole report in Markdown."""
        tables = (self.headlines(), self.findings(), self.details())
        return [self.verdict(), *(line for table in tables for line in ("", *table))]

    def markdown(self) -> str:
        """As a page."""
        return "\n".join(["# Robustness report", "", *self.lines(), ""])


def as_property(cases: CaseCounter) -> tuple[str, object]:
    """In a form that passes between processes."""
    return PROPERTY, [[line.part, line.what, count] for line, count in cases.counts.items()]
