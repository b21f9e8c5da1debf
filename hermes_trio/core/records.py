"""Values that the store keeps and returns: runs, their logs, conversations, idempotency records."""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import StrEnum
from itertools import product
from types import MappingProxyType
from typing import Any

from attrs import frozen

from hermes_trio.core.messages import Item, Message
from hermes_trio.core.outcome import Outcome, Reason, Status


@frozen
class Stamp:
    """Identity of a run, fixed when it is created.

    Stored headers nest it under the key ``stamp``.
    """

    run_id: str
    created_at: float  # seconds since the epoch
    model: str  # as requested by the client

    @property
    def created(self) -> int:
        """The creation time in whole seconds, as the OpenAI APIs show it."""
        return int(self.created_at)


NOTHING: Mapping[str, Any] = MappingProxyType({})


@frozen
class RunHeader:
    """Everything known about a run when it begins. Field names are part of the stored form."""

    principal: str
    stamp: Stamp
    kind: str  # what started it: chat, responses, runs, sessions, cron, or a channel
    session_id: str
    messages: tuple[Message, ...]  # what the client sent in this turn, without history
    parent: str = ""  # the run it continues, "" for none
    conversation: str = ""  # the conversation it belongs to, "" for none
    instructions: str = ""
    background: bool = False
    request: Mapping[str, Any] = NOTHING  # fields of the request that replies repeat, as JSON
    input_items: tuple[
        Mapping[str, Any], ...
    ] = ()  # the input in the form the API shows, each item with an id
    client: str = ""  # what the program that started it calls itself, "" if it does not say

    @property
    def run_id(self) -> str:
        """The public id of the run."""
        return self.stamp.run_id

    @property
    def is_stored(self) -> bool:
        """Whether clients may retrieve the run later.

        If not, it is kept only for idempotent replays.
        """
        return self.request.get("store") is not False


@frozen
class Ownership:
    """The node that executes a run, and the fencing token of the run: how often it was taken over.

    A node is one server process, and its name is never used again. A store refuses what an earlier
    owner writes.
    """

    node: str
    epoch: int = 0


@frozen
class TakenOverRun:
    """A run in progress whose node is dead, and its new owner."""

    header: RunHeader
    ownership: Ownership


@frozen
class LiveRun:
    """A run in progress."""

    header: RunHeader
    is_waiting: bool = False  # for the answer to an approval request, as far as its log is stored


@frozen
class EndedRun:
    """The terminal record of a run, with complete items: only their display is ever shortened."""

    header: RunHeader
    items: tuple[Item, ...]
    outcome: Outcome
    ended_after: float  # seconds after creation


@frozen
class RunEnd:
    """The terminal record of a run without its items, as lists show it."""

    header: RunHeader
    outcome: Outcome
    ended_after: float


@frozen
class NoRun:
    """The run does not exist, or belongs to another principal."""


@frozen(order=True)
class RunCursor:
    """A position in a list of runs, which are ordered by creation time and id."""

    created_at: float
    run_id: str = ""


NEWEST = RunCursor(math.inf)  # after every run
OLDEST = RunCursor(-math.inf)
ALL_ENDS = frozenset(product(Status, Reason))


@frozen
class RunQuery:
    """Filter, order and page of a list of runs."""

    after: RunCursor = NEWEST
    limit: int = 20
    newest_first: bool = True
    live: bool = True  # include runs in progress
    waiting: bool | None = None  # of these only those that wait for an approval, or only the others
    ends: frozenset[tuple[Status, Reason]] = ALL_ENDS  # include runs that ended this way
    kinds: frozenset[str] = frozenset()  # empty = all
    session_id: str = ""  # "" = all


@frozen
class RunPage:
    """One page of runs, in the requested order."""

    runs: tuple[LiveRun | RunEnd, ...]
    has_more: bool


@frozen
class LogBatch:
    """Consecutive changes of a run's log, encoded."""

    principal: str
    run_id: str
    first: int  # number of the first change
    body: bytes  # from encode_changes()
    count: int
    is_waiting: bool | None = None  # for an approval after the changes; None if they do not say


@frozen
class LogCursor:
    """How far a reader has got in the log of a run."""

    principal: str
    run_id: str
    first: int  # number of the change to read next


@frozen
class LogProgress:
    """What the store has of a run's log behind a cursor."""

    cursor: LogCursor
    batches: tuple[LogBatch, ...]  # in order; the first may begin before the cursor
    is_live: bool  # more may come: the run was in progress, or there was more than the batches
    has_more: bool = False  # the store had more than the batches, so read on at once


@frozen
class Node:
    """A server process that shares a store with others."""

    name: str
    address: str  # for people: where the process runs
    silent_seconds: float  # since it last renewed its lease
    is_alive: bool  # its lease has not lapsed
    live_runs: int


@frozen
class Command:
    """What a client of one node asks of a run that another node executes."""

    command_id: str
    principal: str
    run_id: str
    kind: str
    arguments: Mapping[str, Any] = NOTHING
    sender: str = ""  # the node that waits for the answer, "" if none does


@frozen
class CommandAnswer:
    """What the node that executes a run answers to a command."""

    command: Command
    answer: Mapping[str, Any] = NOTHING


class Topic(StrEnum):
    """What a notice is about."""

    COMMANDS = "commands"  # there are some for the node
    ANSWERED = "answered"  # the subjects are ids of commands
    GROWN = "grown"  # the subjects are ids of runs whose logs have grown
    RECONNECTED = "reconnected"  # notices may have been lost: everything may be new


@frozen
class Notice:
    """A hint from one node to another that it should look into the store. It may get lost."""

    topic: str
    subjects: tuple[str, ...] = ()


@frozen
class Conversation:
    """A list of items that turns read from and append to, without the items."""

    principal: str
    conversation_id: str
    created_at: float
    metadata: Mapping[str, str] = NOTHING


@frozen
class NoConversation:
    """The conversation does not exist, or belongs to another principal."""


@frozen
class ItemPage:
    """One page of items, in the requested order."""

    items: tuple[Mapping[str, Any], ...]
    has_more: bool


@frozen
class IdempotencyRecord:
    """An ``Idempotency-Key`` and the run that the first request with it started."""

    principal: str
    route: str
    key: str
    fingerprint: str  # of the body: the same key with a different body is an error
    run_id: str  # the run that this request starts
    made_at: float


@frozen
class Retention:
    """How long records are kept, and how many."""

    log_seconds: float = 3600.0  # how long a log can be replayed after its run ended
    idempotency_seconds: float = 86_400.0
    max_runs: int = 100_000  # ended runs; the least recently used go first; 0 = no limit
    max_bytes: int = 0  # total size of runs, sessions and conversations; 0 = no limit


@frozen
class OwnerUsage:
    """What one owner stores: the number of ended runs, and the size of these, of sessions and of conversations."""

    principal: str
    runs: int
    size: int


@frozen
class PurgeResult:
    """What enforcing the retention removed."""

    runs: int = 0
    logs: int = 0
    idempotency_records: int = 0
    transcripts: int = 0  # sessions and conversations that had no runs


def record_owner(principal: str, profile: str) -> str:
    """Return the owner under which records are stored.

    The principal, and the profile if the route has one.
    """
    # Names of principals and profiles contain no slash, so different pairs have different owners.
    return f"{principal}/{profile}" if profile else principal
