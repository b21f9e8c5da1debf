"""The report of a robustness session: what was tried and checked, how often, and what was found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from attrs import define, field, frozen

from tests.robustness.violations import MEANING, Violation

PROPERTY = "robustness"  # the property of a test that carries its counts
VIOLATIONS_PROPERTY = "robustness-book"  # the one that carries its checks


@frozen(order=True)
class CountedCase:
    """One row of the report: what was counted, and in which part."""

    part: str
    what: str


@define
class CaseCounter:
    """The counts of one test."""

    counts: Counter[CountedCase] = field(factory=Counter)

    def add(self, part: str, counts: Mapping[str, int]) -> None:
        """Add counts of one part."""
        for what, count in counts.items():
            self.counts[CountedCase(part, what)] += count


def _is_disconnect(line: CountedCase) -> bool:
    return line.part == "real disconnects" and not line.what.endswith("no disconnect")


MEASURED = frozenset({"memory", "soak"})  # parts whose figures are not counts

# The totals at the top of the report.
HEADLINES: Mapping[str, Callable[[CountedCase], bool]] = {
    "runs cut at a checkpoint": lambda line: line.part == "cuts",
    "internal faults": lambda line: line.part == "internal faults",
    "real disconnects": _is_disconnect,
    "kill -9 under load": lambda line: line.what == "kill -9",
    "malformed and hostile requests": lambda line: (
        line.part == "bad input" or line.what == "hostile requests"
    ),
    "races": lambda line: line.part == "races",
    "broken connections to a model server": lambda line: line.part == "upstream faults",
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
        """Add a test, or a part of one."""
        self.tests.add(name)
        if has_failed:
            self.failed.append(name)

    def take_counts(self, counts: Iterable[tuple[str, str, int]]) -> None:
        """Add the counts of one test."""
        for part, what, count in counts:
            self.tried[CountedCase(part, what)] += count

    def take_book(self, rows: Iterable[tuple[str, int, int]]) -> None:
        """Add the checks of one test and their findings."""
        for violation, checked, found in rows:
            self.checked[violation] += checked
            self.found[violation] += found

    def verdict(self) -> str:
        """Return the result in one sentence."""
        took = f"{len(self.tests)} tests in {self.seconds / 60:.1f} minutes"
        if self.failed:
            return f"{took}, {len(self.failed)} failed: {', '.join(self.failed)}."
        return f"{took}, none failed."

    def headlines(self) -> list[str]:
        """Return the table of totals."""
        sums = {
            name: sum(count for line, count in self.tried.items() if belongs(line))
            for name, belongs in HEADLINES.items()
        }
        rows = [f"| {name} | {count:,} |" for name, count in sums.items() if count]
        return ["| tried | times |", "|---|--:|", *rows]

    def findings(self) -> list[str]:
        """Return the table of violations. None may ever be found."""
        rows = [
            f"| {violation} | {MEANING[violation]} | {self.checked[violation]:,} | {self.found[violation]:,} |"
            for violation in Violation
        ]
        return ["| violation | meaning | checks | found |", "|---|---|--:|--:|", *rows]

    def details(self) -> list[str]:
        """Return the table of all counts."""
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
        """Return the lines of the report in Markdown."""
        tables = (self.headlines(), self.findings(), self.details())
        return [self.verdict(), *(line for table in tables for line in ("", *table))]

    def markdown(self) -> str:
        """Return the report as a page."""
        about = (
            "Written by `nox -s robustness`; do not edit. [](robustness.md) explains the methods."
        )
        return "\n".join(["# Robustness report", "", about, "", *self.lines(), ""])


def as_property(cases: CaseCounter) -> tuple[str, object]:
    """Return the counts in a form that can be passed between processes."""
    return PROPERTY, [[line.part, line.what, count] for line, count in cases.counts.items()]
