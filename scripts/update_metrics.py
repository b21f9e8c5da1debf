"""``python -m scripts.update_metrics`` regenerates the reference page of the metrics."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from hermes_trio.web.metrics import DESCRIPTIONS, SECONDS, STORE_SECONDS

PLACE = Path(__file__).parent.parent / "docs" / "reference" / "metrics.md"

INTRODUCTION = """\
# Metrics

`GET /metrics` answers in Prometheus' text format. It needs a key. This page is generated from
`hermes_trio/web/metrics.py` by `python -m scripts.update_metrics`, and a test fails when it is
stale. [](../how_to/monitor.md) has a dashboard and alert rules.

With several [workers](../how_to/scale_out.md), `/metrics` shows those of all of them, whichever
worker answers. The last column says how they are merged.
"""

PROCESS = """\
The `process_…` metrics of the Prometheus client for Python follow: CPU time, memory, start time and
file descriptors. With several workers they have a label `worker`.
"""


def current() -> str:
    """Return the current page."""
    return "\n".join([INTRODUCTION, *_table(), "", _buckets(), PROCESS])


def _table() -> Iterator[str]:
    yield "| metric | type | labels | meaning | workers |"
    yield "|---|---|---|---|---|"
    for each in DESCRIPTIONS:
        labels = ", ".join(f"`{label}`" for label in each.labels)
        yield f"| `{each.name}` | {each.kind} | {labels} | {each.text} | {each.merge.value} |"


def _buckets() -> str:
    bounds, finer = (", ".join(f"{each:g}" for each in all_) for all_ in (SECONDS, STORE_SECONDS))
    return (
        "A histogram is three metrics: its name with `_bucket`, `_sum` and `_count`. The buckets end at\n"
        f"{bounds} seconds,\n"
        f"those of the store at {finer} seconds.\n"
    )


if __name__ == "__main__":
    PLACE.write_text(current(), encoding="utf-8")
