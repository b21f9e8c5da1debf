"""The interface of a store. Nothing in it assumes a single process or a particular database engine.

Every implementation passes the contract suite in ``tests/stores``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from hermes_trio.core.approvals import Grant
from hermes_trio.core.messages import Message
from hermes_trio.core.records import (
    Conversation,
    EndedRun,
    IdempotencyRecord,
    ItemPage,
    LiveRun,
    LogBatch,
    NoConversation,
    NoRun,
    PurgeResult,
    Retention,
    RunHeader,
    RunPage,
    RunQuery,
)
from hermes_trio.core.sessions import (
    MessagePage,
    NoSession,
    Session,
    SessionBusy,
    SessionChange,
    SessionDeleted,
    SessionExists,
    SessionPage,
    SessionQuery,
    TitleTaken,
)


class StoreError(Exception):
    """A store operation failed. Everything acknowledged earlier is still durable."""


class CorruptRecord(StoreError):
    """The store works, but a stored value cannot be decoded. The message names the record."""


class SessionStore(Protocol):
    """Sessions and their transcripts.

    A run creates the session it starts in if there is none, and appends its messages to the session
    it ends in. Deleting runs or conversations never removes messages from a session; only ``purge``
    does, with the runs that it removes.
    """

    async def load_messages(self, principal: str, session_id: str) -> tuple[Message, ...]:
        """Return the whole transcript of a session, oldest message first.

        Empty for an unknown session.
        """
        ...

    async def list_messages(
        self, principal: str, session_id: str, after: int = 0, limit: int = 1000
    ) -> MessagePage:
        """Return the page of messages that follows message number ``after``.

        Empty for an unknown session.
        """
        ...

    async def create_session(self, session: Session) -> Session | SessionExists | TitleTaken:
        """Create a session, or report why not. Its counters start at zero.

        Of two concurrent calls with one id or title, exactly one creates the session.
        """
        ...

    async def find_session(self, principal: str, session_id: str) -> Session | NoSession:
        """Return a session without its messages."""
        ...

    async def list_sessions(self, principal: str, query: SessionQuery) -> SessionPage:
        """List sessions, most recently active first.

        A session that was compressed into a successor is listed only if the query includes
        children.
        """
        ...

    async def update_session(
        self, principal: str, session_id: str, change: SessionChange, now: float
    ) -> Session | NoSession | TitleTaken:
        """Apply a change as a whole or not at all, and return the updated session."""
        ...

    async def fork_session(
        self, principal: str, session_id: str, child_id: str, title: str, now: float
    ) -> Session | NoSession | SessionExists | TitleTaken:
        """Create a child session with a copy of the transcript and end the source, atomically.

        The child inherits the source's model and system prompt. If ``title`` is empty and the
        source has a title, the child gets the next numbered one. Copied messages belong to no run,
        so no history contains them twice.
        """
        ...

    async def delete_session(
        self, principal: str, session_id: str
    ) -> SessionDeleted | SessionBusy | NoSession:
        """Delete a session, its messages, its approvals, and every run that ended in it (see ``delete_run``).

        Refused while a run in the session is in progress. Forks and conversations are kept. Runs in
        other sessions that continue a deleted run keep only their own messages.
        """
        ...


class RunStore(Protocol):
    """Runs: begun, logged, and ended exactly once.

    A run id is never reused, not even after the run was deleted.

    Every write is durable when it returns.
    """

    async def begin_run(self, header: RunHeader, owner: str) -> None:
        """Store a run as in progress.

        ``owner`` names the process that executes it. An existing run is left unchanged.
        """
        ...

    async def append_log(self, batches: Sequence[LogBatch]) -> None:
        """Append to the logs of any number of runs in one transaction.

        Safe to retry: of two batches with the same run and first number, the one with more changes
        is kept. Batches for deleted or ended runs are dropped.
        """
        ...

    async def end_run(
        self,
        ended: EndedRun,
        tail: Sequence[LogBatch] = (),
        items: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """Give a run its terminal form; a second call for the same run changes nothing.

        Atomically writes the record, the rest of the log, the messages (to the session the run
        ended in), and ``items`` (to its conversation, which is created if missing). The run need
        not have begun in this store.

        A cancelled call may or may not have taken effect. Where that matters, shield it or read the
        run again.
        """
        ...

    async def find_run(self, principal: str, run_id: str) -> LiveRun | EndedRun | NoRun:
        """Return a run and mark it as recently used.

        A crash may lose that mark, and nothing else.
        """
        ...

    async def find_items(
        self, principal: str, item_ids: Sequence[str]
    ) -> Mapping[str, Mapping[str, Any]]:
        """Return those of the items that the principal has, by id, and mark their runs as recently used.

        They are the items of ended responses (see ``response_items``) and of conversations.
        """
        ...

    async def find_latest_run(
        self, principal: str, conversation: str
    ) -> LiveRun | EndedRun | NoRun:
        """Return the run in a conversation that began last and has not been deleted."""
        ...

    async def list_runs(self, principal: str, query: RunQuery) -> RunPage:
        """List runs in the order they began, or in reverse, omitting those that clients asked not to store.

        The page starts behind the query's cursor, whether or not a run exists there. It may hold
        fewer runs than the limit when their headers are very large, but never none while there are
        more.
        """
        ...

    async def read_log(self, principal: str, run_id: str, first: int) -> tuple[LogBatch, ...]:
        """Return a bounded number of batches, in order, starting with the one that contains change ``first``.

        The first batch may begin before ``first``. Empty if there are no such changes yet, or none
        any more.
        """
        ...

    async def load_history(self, principal: str, run_id: str) -> tuple[Message, ...]:
        """Return the messages of a run and of every run it continues, oldest first.

        Empty for an unknown run.

        Each run contributes the client's messages, then the agent's; a run in progress only the
        client's. A run of the Sessions API also continues everything said in its session before it.
        Deleted runs still count while a later run continues them.
        """
        ...

    async def delete_run(self, principal: str, run_id: str) -> bool:
        """Delete an ended run; return False if there is none or it is still in progress.

        Its record, items, log and idempotency keys are removed. Its messages stay in the session, and in
        the history of the runs that continue it.
        """
        ...

    async def find_abandoned_runs(self, owner: str) -> tuple[RunHeader, ...]:
        """Return the runs in progress, of all principals, whose owner is dead.

        ``owner`` is the living caller.

        A run whose header cannot be decoded is hidden and reported in the server log instead, so
        that it cannot keep the others from being ended. To clients it then looks failed and
        deleted.
        """
        ...

    async def purge(self, retention: Retention, now: float) -> PurgeResult:
        """Remove what the retention limits no longer cover, a bounded amount per call, and return what was removed.

        Logs and idempotency keys expire by age. The owners who store most lose the runs of their
        least recently used sessions, and where bytes are limited, the messages of these runs. A
        session or a conversation is deleted with the last of its runs, and one without runs where
        bytes are limited. Everything that an owner stores counts towards the limit on bytes. When
        the result is all zeros, nothing is left to remove.
        """
        ...


class ConversationStore(Protocol):
    """Conversations and their items."""

    async def save_conversation(self, conversation: Conversation) -> None:
        """Create a conversation, or replace the metadata of an existing one."""
        ...

    async def find_conversation(
        self, principal: str, conversation_id: str
    ) -> Conversation | NoConversation:
        """Return a conversation without its items."""
        ...

    async def delete_conversation(self, principal: str, conversation_id: str) -> bool:
        """Delete a conversation and its items, but not its runs; return False if there is none."""
        ...

    async def add_items(
        self, principal: str, conversation_id: str, items: Sequence[Mapping[str, Any]]
    ) -> None:
        """Append items, each with an ``id``, to a conversation.

        Items whose id is already present are skipped.

        Raises:
            StoreError: The conversation does not exist, or an item has no id.
        """
        ...

    async def list_items(
        self,
        principal: str,
        conversation_id: str,
        after: str = "",
        limit: int = 0,
        newest_first: bool = False,
    ) -> ItemPage:
        """List the items that follow the item with id ``after``; a ``limit`` of 0 means all.

        The page is empty if ``after`` names an item that does not exist.
        """
        ...

    async def delete_item(self, principal: str, conversation_id: str, item_id: str) -> bool:
        """Delete one item; return False if there is none."""
        ...


class IdempotencyStore(Protocol):
    """Idempotency keys. A key is held until ``purge`` finds it expired or its run is deleted."""

    async def claim_key(self, record: IdempotencyRecord) -> IdempotencyRecord:
        """Store a record and return it, or return the one already held for its principal, route and key.

        Of two concurrent calls exactly one stores its record.
        """
        ...

    async def release_key(self, record: IdempotencyRecord) -> None:
        """Release a key whose request was refused before its run began.

        A key held by another run is kept.
        """
        ...


class ApprovalStore(Protocol):
    """Remembered approvals, by the pattern they were granted for.

    What one end user of a principal was granted counts for no other, nor for requests without one.
    """

    async def is_granted(
        self, principal: str, session_id: str, patterns: tuple[str, ...], end_user: str = ""
    ) -> bool:
        """Return whether every pattern is granted to the end user, for this session or for all.

        An empty tuple of patterns is not granted.
        """
        ...

    async def grant(self, grants: Sequence[Grant]) -> None:
        """Store grants, all or none."""
        ...

    async def list_grants(self, principal: str) -> tuple[Grant, ...]:
        """List everything a principal has granted, oldest first."""
        ...

    async def revoke(
        self, principal: str, session_id: str, pattern: str, end_user: str | None = None
    ) -> bool:
        """Delete a grant, by default for every end user; return False if there is none."""
        ...


@runtime_checkable
class CommitCounter(Protocol):
    """A store that counts its transactions. Optional: not every engine has a meaningful number."""

    @property
    def commits(self) -> int:
        """Number of transactions since the store was opened."""
        ...


@runtime_checkable
class Heartbeat(Protocol):
    """A store that notices when it stops working. Optional: not every store can."""

    async def heartbeat(self) -> None:
        """Return if nothing is known against the store; called about once a second.

        Costs next to nothing while the store works. After a write has failed, it tries to write.

        Raises:
            StoreError: The store cannot be written to, or its file is gone; the message says why.
        """
        ...


class Store(SessionStore, RunStore, ConversationStore, IdempotencyStore, ApprovalStore, Protocol):
    """A complete store. Everything in it is visible only to the principal that created it.

    Every method raises :class:`StoreError` if the store fails or is closed, and if a principal or
    an id is not valid Unicode; the text of messages and items may be any Python string. A stored
    value that cannot be decoded raises :class:`CorruptRecord`, which names the run, session or
    conversation.
    """

    async def check(self) -> None:
        """Return if the store can read and write now.

        Raises:
            StoreError: It cannot; the message says why.
        """
        ...
