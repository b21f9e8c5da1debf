"""Checks of a quick run: everything works, and no ratio is implausible. No absolute times."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from benchmarks.figures import Result, tabulate
from benchmarks.thresholds import Term, Threshold, Verdict

BUSIEST = 0.9  # a client that works all the time measures itself

RATIOS = (
    Threshold("burst", "tokens/s: ours / hermes-agent", Term("burst", "ours", "tokens_per_s"), 3.0,
        Term("burst", "peer", "tokens_per_s")),
    Threshold("burst", "tokens/s: ours / limit", Term("burst", "ours", "tokens_per_s"), 0.2,
        Term("burst", "limit", "tokens_per_s")),
    Threshold("churn", "turns/s: ours / limit", Term("churn", "ours", "turns_per_s"), 0.05,
        Term("churn", "limit", "turns_per_s")),
)  # fmt: skip


def problems(results: Iterable[Result]) -> tuple[str, ...]:
    """List what is wrong with a run."""
    found = tuple(results)
    return (*(text for result in found for text in _of_result(result)), *_of_ratios(found))


def _of_result(result: Result) -> Iterator[str]:
    label, figures = f"{result.load}, {result.contender}", result.figures
    if figures.get("failed"):
        yield f"{label}: {figures['failed']:.0f} turns failed, the first with {result.complaint!r}"
    if figures.get("delivered", 1.0) != 1.0:
        yield f"{label}: {figures['delivered']:.1%} of the tokens delivered"
    if figures.get("client_busy", 0.0) > BUSIEST:
        yield f"{label}: the client was busy all the time"


def _of_ratios(results: tuple[Result, ...]) -> Iterator[str]:
    table = tabulate(results)
    for threshold in RATIOS:
        judgement = threshold.judge(table)
        if judgement.verdict is Verdict.NOT_MET:
            yield f"{threshold.topic}: {threshold.text} is {judgement.value:.2f}, less than {threshold.bound}"
