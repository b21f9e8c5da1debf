"""The figures of one measurement, and of several repeats."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from attrs import field, frozen

from benchmarks.client.orders import Report
from benchmarks.loads import Load
from benchmarks.sampling import Usage
from benchmarks.stats import Summary, ratio, summary


@frozen
class Measure:
    """One kind of figure."""

    name: str
    title: str
    digits: int = 1
    more_is_better: bool = False


MEASURES = (
    Measure("tokens_per_s", "tokens/s", 0, True),
    Measure("frames_per_s", "frames/s", 0, True),
    Measure("turns_per_s", "turns/s", 0, True),
    Measure("first_p50", "first token p50, ms"),
    Measure("first_p99", "first token p99, ms"),
    Measure("lag_p50", "added latency p50, ms", 2),
    Measure("lag_p99", "added latency p99, ms"),
    Measure("lag_max", "added latency max, ms"),
    Measure("gap_p99", "gap p99, ms"),
    Measure("late_p99", "behind schedule p99, ms"),
    Measure("late_max", "behind schedule max, ms"),
    Measure("cpu_per_token", "CPU per token, µs"),
    Measure("cpu_per_turn", "CPU per turn, ms", 2),
    Measure("rss_per_stream", "memory per stream, kB"),
    Measure("rss_unread", "memory per stream, less what its client has read, kB"),
    Measure("rss_growth", "memory growth, MB"),
    Measure("threads", "threads", 0),
    Measure("files", "open files", 0),
    Measure("start_up", "start-up, s", 2),
    Measure("delivered", "share delivered", 3, True),
    Measure("failed", "turns failed", 0),
    Measure("unanswered", "turns never answered", 0),
    Measure("client_busy", "client's own CPU share", 2),
)


@frozen
class Result:
    """One measurement."""

    load: str
    contender: str
    figures: Mapping[str, float]
    complaint: str = ""


@frozen
class Table:
    """All results of a run: for each load and contender its figures over the repeats."""

    cells: Mapping[tuple[str, str], Mapping[str, Summary]] = field(factory=dict)

    def get(self, load: str, contender: str, measure: str) -> float | None:
        """Return a median, None if it was not measured."""
        found = self.cells.get((load, contender), {}).get(measure)
        return None if found is None else found.median


def figures_of(load: Load, report: Report, before: Usage, highest: Usage) -> dict[str, float]:
    """Return the figures from the client's report and the kernel's; what does not apply is omitted."""
    cpu = highest.cpu - before.cpu
    growth = max(0, highest.rss - before.rss)
    figures = {
        "turns_per_s": ratio(report.finished, report.seconds),
        "cpu_per_turn": ratio(cpu * 1e3, report.started),
        "rss_growth": growth / 1024,
        "threads": float(highest.threads),
        "files": float(highest.files),
        "failed": float(report.failed),
        "unanswered": float(report.unanswered),
        "client_busy": report.busy,
        "first_p50": report.first.p50,
        "first_p99": report.first.p99,
    }
    if answered := min(load.streams, report.started - report.unanswered):
        figures["rss_per_stream"] = growth / answered
        figures["rss_unread"] = max(0.0, growth - report.received / 1024) / answered
    if report.tokens:
        figures |= _of_tokens(report, cpu)
    if load.expected_tokens:
        figures["delivered"] = report.tokens / load.expected_tokens
    return figures


def _of_tokens(report: Report, cpu: float) -> dict[str, float]:
    return {
        "tokens_per_s": ratio(report.tokens, report.seconds),
        "frames_per_s": ratio(report.frames, report.seconds),
        "cpu_per_token": cpu * 1e6 / report.tokens,
        "lag_p50": report.lag.p50,
        "lag_p99": report.lag.p99,
        "lag_max": report.lag.highest,
        "gap_p99": report.gap.p99,
        "late_p99": report.late.p99,
        "late_max": report.late.highest,
    }


def tabulate(results: Iterable[Result]) -> Table:
    """Summarise the repeats of each measurement."""
    values: dict[tuple[str, str], dict[str, list[float]]] = {}
    for result in results:
        cell = values.setdefault((result.load, result.contender), {})
        for name, value in result.figures.items():
            cell.setdefault(name, []).append(value)
    return Table(
        {
            key: {name: summary(found) for name, found in cell.items()}
            for key, cell in values.items()
        }
    )
