"""Plots as SVG: a bar for the median, a line from the lowest to the highest repeat.

Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape

from attrs import frozen

from benchmarks import contenders
from benchmarks.figures import Table
from benchmarks.stats import Summary

WIDTH, LABELS, ROW, TOP = 820, 300, 26, 64
SPACE = WIDTH - LABELS - 110  # the rest is for the figures at the ends of the bars
OURS, OTHERS, LINE, TEXT = "#14708f", "#a9b3ba", "#333c42", "#22282c"


@frozen
class Plot:
    """One figure of one load, for all contenders."""

    load: str
    measure: str
    title: str
    is_log: bool = False

    @property
    def file_name(self) -> str:
        """The name of the file."""
        return f"{self.load}-{self.measure}.svg".replace("_", "-")


PLOTS = (
    Plot("burst", "tokens_per_s", "1 stream, as fast as possible: tokens/s (more is better)"),
    Plot("10x50", "first_p50", "10 streams x 50 tokens/s: time to first token p50, ms (logarithmic)", True),
    Plot("100x50", "first_p50", "100 streams x 50 tokens/s: time to first token p50, ms (logarithmic)", True),
    Plot("100x50", "lag_p99", "100 streams x 50 tokens/s: added latency p99, ms (logarithmic)", True),
    Plot("100x50", "cpu_per_token", "100 streams x 50 tokens/s: server CPU per token, µs"),
    Plot("1000x2", "lag_p99", "1,000 streams x 2 tokens/s: added latency p99, ms (logarithmic)", True),
    Plot("1000x10", "lag_p99", "1,000 streams x 10 tokens/s: added latency p99, ms (logarithmic)", True),
    Plot("1000x50", "lag_p99", "1,000 streams x 50 tokens/s, async: added latency p99, ms (logarithmic)", True),
    Plot("idle", "rss_per_stream", "1,000 idle streams: memory per stream, kB"),
    Plot("slow", "rss_growth", "100 slow readers: growth of memory, MB (logarithmic)", True),
    Plot("churn", "turns_per_s", "Short turns per second (more is better)"),
    Plot("batch", "turns_per_s", "Replies in one piece per second (more is better)"),
    Plot("stored", "turns_per_s", "Stored responses per second (more is better)"),
)  # fmt: skip


@frozen
class Bar:
    """One contender."""

    title: str
    is_ours: bool
    value: Summary


def bars_of(plot: Plot, table: Table) -> tuple[Bar, ...]:
    """Return the bars of a plot."""
    return tuple(
        Bar(contender.title, contender.program is contenders.Program.OURS, cell[plot.measure])
        for contender in contenders.ALL
        if plot.measure in (cell := table.cells.get((plot.load, contender.name), {}))
    )


@frozen
class Scale:
    """Maps values to positions."""

    low: float
    high: float
    is_log: bool

    def place(self, value: float) -> float:
        """Return the position of a value, between 0 and ``SPACE``."""
        if not self.is_log:
            return SPACE * value / self.high if self.high else 0.0
        span = math.log10(self.high / self.low) or 1.0
        return SPACE * min(1.0, max(0.0, math.log10(max(value, self.low) / self.low) / span))


def scale_of(bars: Sequence[Bar], is_log: bool) -> Scale:
    """Return the scale. A logarithmic one begins a decade below the smallest value: every bar is visible."""
    high = max(bar.value.high for bar in bars)
    positive = [bar.value.low for bar in bars if bar.value.low > 0]
    low = 10 ** (math.floor(math.log10(min(positive))) - 1) if positive else 1.0
    return Scale(low, max(high, low), is_log)


def draw(plot: Plot, bars: Sequence[Bar]) -> str:
    """Return a plot as an SVG document."""
    scale = scale_of(bars, plot.is_log)
    height = TOP + ROW * len(bars) + 12
    rows = [
        line for number, bar in enumerate(bars) for line in _row(bar, TOP + ROW * number, scale)
    ]
    size = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    font = f'font-family="sans-serif" font-size="13" fill="{TEXT}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} {font}>',
            f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
            f'<text x="16" y="30" font-size="15" font-weight="bold">{escape(plot.title)}</text>',
            *rows,
            "</svg>\n",
        ]
    )


def _row(bar: Bar, top: float, scale: Scale) -> Iterator[str]:
    width, low, high = (
        scale.place(value) for value in (bar.value.median, bar.value.low, bar.value.high)
    )
    middle, colour = top + ROW / 2, OURS if bar.is_ours else OTHERS
    yield f'<text x="{LABELS - 8}" y="{middle + 4:.0f}" text-anchor="end">{escape(bar.title)}</text>'
    yield f'<rect x="{LABELS}" y="{top + 4:.0f}" width="{max(width, 1):.1f}" height="{ROW - 8}" fill="{colour}"/>'
    yield (
        f'<line x1="{LABELS + low:.1f}" x2="{LABELS + high:.1f}" y1="{middle:.0f}" y2="{middle:.0f}" '
        f'stroke="{LINE}" stroke-width="2"/>'
    )
    yield f'<text x="{LABELS + high + 8:.1f}" y="{middle + 4:.0f}">{_figure(bar.value.median)}</text>'


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
