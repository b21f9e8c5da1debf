"""What the store keeps of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import product
from types import MappingProxyType
from typing import Any

from attrs import frozen

from hermes_trio.core.messages import Item, Message
from hermes_trio.core.outcome import Outcome, Reason, Status


@frozen
class Stamp:
    """Given once, when the run is made."""

    run_id: str
    created_at: float  # seconds since the epoch
    model: str  # as the client asked for it

    @property
    def created(self) -> int:
        """The whole seconds that the wire shows."""
        return int(self.created_at)


NOTHING: Mapping[str, Any] = MappingProxyType({})


@frozen
class RunHeader:
    """Everything that is known of a run when it begins. Its streams and its record repeat it."""

    principal: str
    stamp: Stamp
    kind: str  # the API it was started by: chat, responses, ...
    session_id: str
    messages: tuple[Message, ...]  # what the client said in this turn, without history
    parent: str = ""  # the run that this one continues
    conversation: str = ""  # the conversation it belongs to
    instructions: str = ""
    background: bool = False
    request: Mapping[str, Any] = NOTHING  # fields of the request that answers repeat, as JSON
    input_items: tuple[Mapping[str, Any], ...] = ()  # the input as the API shows it, each item with an id

    @property
    def run_id(self) -> str:
        """The id that clients know."""
        return self.stamp.run_id

    @property
    def is_stored(self) -> bool:
        """Whether it may be shown later. If not, it is kept only to answer the same request again."""
        return self.request.get("store") is not False


@frozen
class LiveRun:
    """A run that has begun and not ended."""

    header: RunHeader


@frozen
class EndedRun:
    """A run in its terminal form. Items are whole: only what is shown is ever shortened."""

    header: RunHeader
    items: tuple[Item, ...]
    outcome: Outcome
    ended_after: float  # seconds since it began


@frozen
class RunEnd:
    """A run in its terminal form without what was said in it, as lists show it."""

    header: RunHeader
    outcome: Outcome
    ended_after: float


@frozen
class NoRun:
    """There is no such run, or it is somebody else's."""


@frozen(order=True)
class RunCursor:
    """Where a run stands in a list: by the time it began, then by its id."""

    created_at: float
    run_id: str = ""


NEWEST = RunCursor(math.inf)  # the place before which all runs began
OLDEST = RunCursor(-math.inf)
ALL_ENDS = frozenset(product(Status, Reason))


@frozen
class RunQuery:
    """Which runs are wanted, and how many."""

    after: RunCursor = NEWEST
    limit: int = 20
    newest_first: bool = True
    live: bool = True  # runs in progress are wanted
    ends: frozenset[tuple[Status, Reason]] = ALL_ENDS  # those that ended so are wanted
    kinds: frozenset[str] = frozenset()  # empty = all
    session_id: str = ""  # "" = all


@frozen
class RunPage:
    """Some runs of a list, in the order that was asked for."""

    runs: tuple[LiveRun | RunEnd, ...]
    has_more: bool


@frozen
class LogBatch:
    """Some changes of a run's log, in order."""

    principal: str
    run_id: str
    first: int  # the number of the first change
    body: bytes  # the changes, encoded and compressed
    count: int


@frozen
class Conversation:
    """A named list of items that turns read from and add to."""

    principal: str
    conversation_id: str
    created_at: float
    metadata: Mapping[str, str] = NOTHING


@frozen
class NoConversation:
    """There is no such conversation, or it is somebody else's."""


@frozen
class ItemPage:
    """Some items of a list, in the order that was asked for."""

    items: tuple[Mapping[str, Any], ...]
    has_more: bool


@frozen
class IdempotencyRecord:
    """A client's word that a request with this key is one and the same, however often it comes."""

    principal: str
    route: str
    key: str
    fingerprint: str  # of the body: the same key with another body is a mistake
    run_id: str  # the run that this request would start
    made_at: float


@frozen
class Retention:
    """What may be forgotten, and when."""

    log_seconds: float = 3600.0  # a log may be replayed for so long after the end of its run
    idempotency_seconds: float = 86_400.0
    max_runs: int = 100_000  # ended runs, least recently used first; 0 = no limit
    max_bytes: int = 0  # of their records; 0 = no limit


@frozen
class PurgeResult:
    """What a clean-up removed."""

    runs: int = 0
    logs: int = 0
    idempotency_records: int = 0


_BETWEEN = "/"  # no name of a principal or of a profile has one, so no two pairs share a scope


def record_owner(principal: str, profile: str) -> str:
    """The owner of records: the principal alone, or, below the prefix of a profile, both."""
    return f"{principal}{_BETWEEN}{profile}" if profile else principal
