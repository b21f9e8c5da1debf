"""The thresholds that the benchmark is held to, and whether a run meets them."""

from __future__ import annotations

import math
from enum import Enum

from attrs import frozen

from benchmarks.figures import Table
from benchmarks.stats import ratio

STARLETTE_LOADS = ("burst", "10x50", "100x50", "1000x2", "1000x10")
STARLETTE_ASYNC_LOADS = ("burst", "10x50", "100x50", "1000x50")
PACED = ("ours", "ours-async", "ours-h2", "ours-h2-async")
# Load, contender, the same without write-through, and the added latency p99 in ms that each of the
# latter may have.
THOUSAND = (
    ("1000x2", "ours", "ours-channel", 60, 20),
    ("1000x10", "ours", "ours-channel", 250, 80),
    ("1000x50", "ours-async", "ours-channel-async", 400, 80),
)
# Two servers that both keep a pace have the same tokens/s but for the set-up of the last stream.
LEVEL = 0.99


class Verdict(Enum):
    """Whether a threshold is met."""

    MET = "met"
    NOT_MET = "**not met**"
    NOT_MEASURED = "not measured"


@frozen
class Term:
    """A figure: one measure of one contender under one load."""

    load: str
    contender: str
    measure: str


@frozen
class Comparison:
    """The quotient of two figures, without a bound."""

    text: str
    term: Term
    over: Term

    def value(self, table: Table) -> float:
        """Return the quotient of the medians of a run, NaN if one of them was not measured."""
        upper, lower = _median(table, self.term), _median(table, self.over)
        return ratio(upper, lower) if not math.isnan(upper + lower) else math.nan


def _median(table: Table, term: Term) -> float:
    value = table.get(term.load, term.contender, term.measure)
    return math.nan if value is None else value


@frozen
class Threshold:
    """A figure, or the quotient of two, and the bound that it must keep."""

    topic: str
    text: str
    term: Term
    bound: float
    over: Term | None = None
    at_most: bool = False

    def judge(self, table: Table) -> Judgement:
        """Compare the threshold with the medians of a run."""
        value = self._value(table)
        if math.isnan(value):
            return Judgement(self, value, Verdict.NOT_MEASURED)
        is_met = value <= self.bound if self.at_most else value >= self.bound
        return Judgement(self, value, Verdict.MET if is_met else Verdict.NOT_MET)

    def _value(self, table: Table) -> float:
        if self.over is None:
            return _median(table, self.term)
        return Comparison(self.text, self.term, self.over).value(table)


@frozen
class Judgement:
    """A threshold, and what was measured."""

    threshold: Threshold
    value: float
    verdict: Verdict


def at_most(
    topic: str, text: str, load: str, contender: str, measure: str, bound: float
) -> Threshold:
    """Return a threshold for a figure that must not be higher."""
    return Threshold(topic, text, Term(load, contender, measure), bound, at_most=True)


def delivered(topic: str, load: str, contender: str) -> Threshold:
    """Return the threshold that every token is delivered."""
    return Threshold(
        topic, f"share of tokens delivered by {contender}", Term(load, contender, "delivered"), 1.0
    )


def quotient(
    topic: str, text: str, upper: Term, lower: Term, bound: float, at_most: bool = False
) -> Threshold:
    """Return a threshold for the quotient of two figures."""
    return Threshold(topic, text, upper, bound, lower, at_most)


def _peer() -> tuple[Threshold, ...]:
    def faster(load: str, times: float) -> Threshold:
        return quotient(
            load, "first token p50: hermes-agent / ours",
            Term(load, "peer", "first_p50"), Term(load, "ours", "first_p50"), times,
        )  # fmt: skip

    return (
        faster("10x50", 50),
        faster("100x50", 200),
        quotient(
            "burst", "tokens/s: ours / hermes-agent",
            Term("burst", "ours", "tokens_per_s"), Term("burst", "peer", "tokens_per_s"), 12,
        ),
    )  # fmt: skip


def _paced() -> tuple[Threshold, ...]:
    """Return the thresholds for few streams: sync and async agents, HTTP/1.1 and HTTP/2."""
    measured = [(load, name) for load in ("10x50", "100x50") for name in PACED]
    return (
        *(delivered(load, load, name) for load, name in measured),
        *(
            at_most(load, f"added latency p99 of {name}, ms", load, name, "lag_p99", 20)
            for load, name in measured
        ),
    )


def _thousand() -> tuple[Threshold, ...]:
    return (
        *(
            threshold
            for load, name, channel, on_channel, written_through in THOUSAND
            for threshold in (
                delivered(load, load, name),
                delivered(load, load, channel),
                at_most(
                    load,
                    "added latency p99 on the channel path, ms",
                    load,
                    channel,
                    "lag_p99",
                    on_channel,
                ),
                at_most(
                    load,
                    "added latency p99 with write-through, ms",
                    load,
                    name,
                    "lag_p99",
                    written_through,
                ),
                at_most(load, "first token p50, ms", load, name, "first_p50", 1_000),
                at_most(load, "first token p99, ms", load, name, "first_p99", 5_000),
            )
        ),
        delivered("at-once", "at-once", "ours"),
        at_most("at-once", "first token p50, ms", "at-once", "ours", "first_p50", 1_000),
        at_most("at-once", "first token p99, ms", "at-once", "ours", "first_p99", 5_000),
    )


def _limit() -> tuple[Threshold, ...]:
    def of_limit(
        topic: str, text: str, load: str, measure: str, bound: float, at_most: bool = False
    ) -> Threshold:
        upper, lower = Term(load, "ours", measure), Term(load, "limit", measure)
        return quotient(topic, f"{text}: ours / limit", upper, lower, bound, at_most)

    return (
        of_limit("limit", "CPU per token at 100x50", "100x50", "cpu_per_token", 1.4, at_most=True),
        of_limit("limit", "tokens/s in a burst", "burst", "tokens_per_s", 0.6),
        of_limit("limit", "short turns per second", "churn", "turns_per_s", 0.2),
    )


def _starlette() -> tuple[Threshold, ...]:
    def ahead(load: str, mode: str) -> Threshold:
        return quotient(
            "Starlette", f"tokens/s at {load}{mode}: ours / Starlette + uvicorn",
            Term(load, f"ours{mode}", "tokens_per_s"), Term(load, f"starlette{mode}", "tokens_per_s"), LEVEL,
        )  # fmt: skip

    sync = tuple(ahead(load, "") for load in STARLETTE_LOADS)
    return sync + tuple(ahead(load, "-async") for load in STARLETTE_ASYNC_LOADS)


def _resources() -> tuple[Threshold, ...]:
    def growth(load: str, mode: str) -> Threshold:
        return quotient(
            "growth", f"CPU per token: {load}{mode} / 100x50{mode}",
            Term(load, f"ours{mode}", "cpu_per_token"), Term("100x50", f"ours{mode}", "cpu_per_token"), 2.5, True,
        )  # fmt: skip

    return (
        at_most("memory", "per idle stream, sync, kB", "idle", "ours", "rss_per_stream", 100),
        at_most("memory", "per idle stream, async, kB", "idle", "ours-async", "rss_per_stream", 70),
        # What it has read is in the record, which is to have everything that was said.
        at_most("memory", "per slow reader, less what it has read, kB", "slow", "ours", "rss_unread", 256),
        growth("1000x10", ""),
        growth("1000x50", "-async"),
        at_most("start-up", "until /health answers, s", "start-up", "ours", "start_up", 1.5),
    )  # fmt: skip


def _compare_with_limit() -> tuple[Comparison, ...]:
    """Compare with a Trio server that stores each turn before it reports the end, and does nothing else."""

    def turns(load: str, one: str, other: str, mode: str) -> Comparison:
        titles = {
            "records": "limit with records",
            "starlette": "Starlette + uvicorn",
            "ours": "ours",
        }
        return Comparison(
            f"turns/s at {load}{mode}: {titles[one]} / {titles[other]}",
            Term(load, f"{one}{mode}", "turns_per_s"), Term(load, f"{other}{mode}", "turns_per_s"),
        )  # fmt: skip

    places = [(load, mode) for load in ("churn", "batch") for mode in ("", "-async")]
    pairs = (("records", "starlette"), ("ours", "records"))
    return tuple(turns(load, *pair, mode) for pair in pairs for load, mode in places)


COMPARISONS = _compare_with_limit()
THRESHOLDS = (*_peer(), *_paced(), *_thousand(), *_limit(), *_starlette(), *_resources())


def judge(table: Table) -> tuple[Judgement, ...]:
    """Judge a run by all thresholds."""
    return tuple(threshold.judge(table) for threshold in THRESHOLDS)
