"""The loads, as frozen values."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from attrs import evolve, frozen

KEEPALIVE_SECONDS = 2.0  # of all contenders that can be told
# Seconds of silence before the first token of an agent that keeps a pace: models think first.
THINKING = 0.1


class Kind(Enum):
    """The behaviour of the client."""

    STREAM = "stream"  # reads all streams to their ends
    IDLE = "idle"  # stays while next to nothing is said, and leaves
    SLOW = "slow"  # reads less than is said, and leaves
    CHURN = "churn"  # connects for each of many short streams
    BATCH = "batch"  # asks for answers in one piece, on connections that stay
    STORED = "stored"  # the same for stored responses
    RESUME = "resume"  # many readers of one stored response that runs


@frozen
class Load:
    """One row of the results."""

    name: str
    title: str
    kind: Kind
    contenders: tuple[str, ...]
    streams: int = 1  # at the same time
    tokens: int = 1  # of each turn
    rate: float = 0.0  # tokens per second of each stream; 0 is as fast as possible
    ramp: float = 0.0  # seconds over which the streams start
    turns: int = 0  # in all; 0: as many as streams
    seconds: float = 0.0  # how long the client stays; 0: to the end
    limit: float = 120.0  # when the client gives up
    quick: tuple[str, ...] = ()  # the contenders of a quick run; none: it is left out

    @property
    def expected_tokens(self) -> int:
        """The number of tokens to deliver; 0 if the client leaves before the end."""
        return 0 if self.seconds else self.tokens * max(self.streams, self.turns)

    @property
    def wait(self) -> float:
        """Seconds of silence before the first token."""
        return THINKING if self.rate else 0.0

    def words(self, mode: str) -> str:
        """The message that makes the synthetic agent produce the load."""
        return f"tokens={self.tokens} rate={self.rate:g} stamp=1 mode={mode} wait={self.wait:g}"


OURS = ("ours", "ours-h2")
OURS_ASYNC = ("ours-async", "ours-h2-async")
CHANNEL = ("ours-channel",)
CHANNEL_ASYNC = ("ours-channel-async",)
OURS_STORED = ("ours-responses", "ours-responses-async")
OURS_STRICT = ("ours-strict", "ours-strict-async")
PEERS = ("peer", "peer-threads")
OTHERS = ("starlette", "limit")
OTHERS_ASYNC = ("starlette-async", "limit-async")
RECORDS = ("records", "records-async")
LIVE = (
    *OURS,
    *OURS_ASYNC,
    *CHANNEL,
    *CHANNEL_ASYNC,
    *OURS_STORED,
    *PEERS,
    "peer-responses",
    *OTHERS,
    *OTHERS_ASYNC,
)

ALL = (
    Load(
        "burst", "1 stream, as fast as possible", Kind.STREAM, LIVE, tokens=60_000,
        quick=("ours", "ours-h2", "ours-responses", "peer", "starlette", "limit"),
    ),
    Load(
        "10x50", "10 streams x 50 tokens/s", Kind.STREAM, LIVE, 10, 250, 50, limit=60,
        quick=("ours", "ours-async", "peer", "starlette"),
    ),
    Load(
        "100x50", "100 streams x 50 tokens/s", Kind.STREAM, (*LIVE, *OURS_STRICT), 100, 250, 50, 1, limit=120,
        quick=("ours-h2-async", "ours-strict-async", "limit-async"),
    ),
    Load(
        "1000x2", "1,000 streams x 2 tokens/s, sync agents", Kind.STREAM,
        (*OURS, *CHANNEL, "peer-threads", *OTHERS), 1_000, 16, 2, 4,
    ),
    Load(
        "1000x10", "1,000 streams x 10 tokens/s, sync agents", Kind.STREAM,
        (*OURS, *CHANNEL, "peer-threads", *OTHERS), 1_000, 100, 10, 4,
    ),
    Load(
        "1000x50", "1,000 streams x 50 tokens/s, async agents", Kind.STREAM,
        (*OURS_ASYNC, *CHANNEL_ASYNC, *OTHERS_ASYNC), 1_000, 500, 50, 4,
    ),
    Load(
        "at-once", "1,000 streams x 10 tokens/s that all arrive at once", Kind.STREAM,
        ("ours", "ours-async", *OTHERS, *OTHERS_ASYNC), 1_000, 50, 10,
    ),
    Load(
        "idle", "1,000 idle streams with keep-alive", Kind.IDLE,
        (*OURS, *OURS_ASYNC, "peer-threads", *OTHERS, *OTHERS_ASYNC), 1_000, 2, 0.01, 4, seconds=12,
        quick=("ours",),
    ),
    Load(
        "slow", "100 slow readers (40 kB/s each)", Kind.SLOW,
        (*OURS, *OURS_ASYNC, *PEERS, *OTHERS), 100, 999_999, 0, 1, seconds=10,
        quick=("ours",),
    ),
    Load(
        "churn", "short turns, one connection each, 50 at once", Kind.CHURN,
        (*OURS, *OURS_ASYNC, *PEERS, *OTHERS, *OTHERS_ASYNC, *RECORDS), 50, 1, turns=3_000,
        quick=("ours", "ours-h2", "peer", "limit", "records"),
    ),
    Load(
        "batch", "replies of 100 tokens in one piece, 50 at once", Kind.BATCH,
        (*OURS, *OURS_ASYNC, *PEERS, *OTHERS, *OTHERS_ASYNC, *RECORDS), 50, 100, turns=3_000,
        quick=("ours", "peer"),
    ),
    Load(
        "stored", "stored responses of 10 tokens, 50 at once", Kind.STORED,
        (*OURS_STORED, "peer-responses"), 50, 10, turns=3_000,
        quick=("ours-responses", "peer-responses"),
    ),
    Load(
        "resume", "200 readers of one response at 50 tokens/s", Kind.RESUME, OURS_STORED, 200, 400, 50, 2,
        quick=("ours-responses",),
    ),
)  # fmt: skip


def quick(load: Load) -> Load:
    """Return short versions of the loads, which show that everything runs and is roughly right."""
    return evolve(
        load,
        contenders=load.quick,
        streams=min(load.streams, 20),
        tokens=min(load.tokens, 50 if load.rate >= 1 else 10_000),
        turns=min(load.turns, 200),
        ramp=min(load.ramp, 0.2),
        seconds=min(load.seconds, 3.0),
        limit=20.0,
    )


def by_name(names: Sequence[str]) -> tuple[Load, ...]:
    """Return the named loads, or all.

    Raises:
        ValueError: there is no such load.
    """
    known = {load.name: load for load in ALL}
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"no load {', '.join(unknown)}: there are {', '.join(known)}")
    return tuple(known[name] for name in names) or ALL
