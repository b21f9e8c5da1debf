"""Render the results as a Markdown page: tables and thresholds. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from attrs import frozen

from benchmarks import contenders, loads
from benchmarks.figures import MEASURES, Measure, Table
from benchmarks.loads import Kind, Load
from benchmarks.plots import PLOTS
from benchmarks.stats import Summary
from benchmarks.thresholds import COMPARISONS, Judgement, judge

_STREAMED = (
    "tokens_per_s", "frames_per_s", "first_p50", "first_p99", "lag_p50", "lag_p99", "gap_p99", "late_p99",
    "cpu_per_token", "rss_per_stream", "threads", "files", "delivered",
    "client_busy",
)  # fmt: skip
_TURNS = (
    "turns_per_s",
    "first_p50",
    "first_p99",
    "cpu_per_turn",
    "rss_growth",
    "threads",
    "files",
    "delivered",
    "client_busy",
)
_HELD = (
    "rss_per_stream",
    "rss_unread",
    "rss_growth",
    "cpu_per_turn",
    "threads",
    "files",
    "failed",
    "unanswered",
)
COLUMNS = {
    Kind.STREAM: _STREAMED,
    Kind.RESUME: _STREAMED,
    Kind.IDLE: _HELD,
    Kind.SLOW: _HELD,
    Kind.CHURN: _TURNS,
    Kind.BATCH: _TURNS,
    Kind.STORED: _TURNS,
}
_BY_NAME = {measure.name: measure for measure in MEASURES}


@frozen
class Setting:
    """The machine and the software that a run was made with."""

    python: str
    kernel: str
    cores: int
    packages: tuple[str, ...]
    repeats: int
    load_average: float  # of the machine before the run: what others did on it


def page(table: Table, setting: Setting) -> str:
    """Return the page."""
    parts = (
        _top(setting),
        _thresholds(judge(table)),
        _comparisons(table),
        _plots(table),
        _tables(table),
    )
    return "\n".join(chain.from_iterable(parts)) + "\n"


def _top(setting: Setting) -> Iterator[str]:
    yield "# Benchmark results\n"
    yield "Written by `nox -s bench`; do not edit. [](../how_to/measure_performance.md) explains the loads, contenders and metrics; [](several_nodes.md) has the figures of several processes.\n"
    yield (
        f"Python {setting.python}, Linux {setting.kernel}, {setting.cores} cores: the server on one, the client on another. "
        f"Repeats per load: at least {setting.repeats}. Figures are medians, with the lowest and the highest repeat in brackets. "
        f"Load average of the machine before the run: {setting.load_average:.2f}.\n"
    )
    yield f"{', '.join(setting.packages)}.\n"


def _thresholds(judgements: Sequence[Judgement]) -> Iterator[str]:
    yield "## Thresholds\n"
    yield "| load | figure | threshold | measured | |\n|---|---|---|---|---|"
    for found in judgements:
        sign = "at most" if found.threshold.at_most else "at least"
        value = "" if math.isnan(found.value) else number(found.value, 2)
        bound = f"{sign} {found.threshold.bound:g}"
        yield f"| {found.threshold.topic} | {found.threshold.text} | {bound} | {value} | {found.verdict.value} |"
    yield ""


def _comparisons(table: Table) -> Iterator[str]:
    yield "## Distance from the limit\n"
    yield (
        "The limit is a bare Trio server that stores nothing. “Limit with records” is the same server, except that it "
        "commits the record of each turn to the same store as ours before it tells the client of the end.\n"
    )
    yield "| figure | measured |\n|---|---|"
    for comparison in COMPARISONS:
        if not math.isnan(value := comparison.value(table)):
            yield f"| {comparison.text} | {number(value, 2)} |"
    yield ""


def _plots(table: Table) -> Iterator[str]:
    yield "## Plots\n"
    for plot in PLOTS:
        if any(key[0] == plot.load for key in table.cells):
            yield f"![{plot.title}](benchmark/{plot.file_name})\n"


def _tables(table: Table) -> Iterator[str]:
    for load in loads.ALL:
        rows = [
            contender for contender in contenders.ALL if (load.name, contender.name) in table.cells
        ]
        if rows:
            yield from _table(table, load, rows)


def _table(table: Table, load: Load, rows: Iterable[contenders.Contender]) -> Iterator[str]:
    measures = [_BY_NAME[name] for name in COLUMNS[load.kind]]
    yield f"## {load.title}\n"
    yield f"`{load.name}`\n"
    yield "| |" + "".join(f" {measure.title} |" for measure in measures)
    yield "|---|" + "---|" * len(measures)
    for row in rows:
        cell = table.cells[load.name, row.name]
        figures = "".join(f" {shown(cell.get(measure.name), measure)} |" for measure in measures)
        yield f"| {row.title} |{figures}"
    yield ""


def shown(found: Summary | None, measure: Measure) -> str:
    """Format a median and its spread."""
    if found is None:
        return ""
    middle = number(found.median, measure.digits)
    low, high = number(found.low, measure.digits), number(found.high, measure.digits)
    return middle if low == high else f"{middle} ({low} to {high})"


def number(value: float, digits: int) -> str:
    """Format a number with separators; large ones without decimals."""
    return f"{value:,.{0 if abs(value) >= 1000 else digits}f}"
