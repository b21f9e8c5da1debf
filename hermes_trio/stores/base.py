"""The interface of a store. Nothing in it assumes a single process or a particular database engine.

Every implementation passes the contract suite in ``tests/stores``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from hermes_trio.core.approvals import Grant
from hermes_trio.core.jobs import Job, NoJob
from hermes_trio.core.messages import Message
from hermes_trio.core.records import (
    Command,
    CommandAnswer,
    Conversation,
    EndedRun,
    IdempotencyRecord,
    ItemPage,
    LiveRun,
    LogBatch,
    LogCursor,
    LogProgress,
    NoConversation,
    Node,
    NoRun,
    Notice,
    Ownership,
    OwnerUsage,
    PurgeResult,
    Retention,
    RunHeader,
    RunPage,
    RunQuery,
    TakenOverRun,
)
from hermes_trio.core.sessions import (
    MessagePage,
    MessageSearch,
    NoSession,
    SearchPage,
    Session,
    SessionBusy,
    SessionChange,
    SessionDeleted,
    SessionExists,
    SessionFork,
    SessionPage,
    SessionQuery,
    TitleTaken,
)


class StoreError(Exception):
    """A store operation failed. Everything acknowledged earlier is still durable."""


class CorruptRecord(StoreError):
    """The store works, but a stored value cannot be decoded. The message names the record."""


def newer_schema(name: str, version: int, supported: int) -> str:
    """Return the message for a database that a newer version of this program has written."""
    return f"{name} has schema version {version}, but this version supports only up to {supported}"


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
        self, request: SessionFork
    ) -> Session | NoSession | SessionExists | TitleTaken:
        """Create a child session with a copy of the transcript, or of its beginning, and end the source, atomically.

        The child inherits the source's model, unless the request names another, and system prompt.
        If the request has no title and the source has one, the child gets the next numbered one.
        Copied messages belong to no run, so no history contains them twice.
        """
        ...

    async def search_messages(self, principal: str, query: MessageSearch) -> SearchPage:
        """Return the messages that a search finds; of a session, the latest few.

        The words are in lower case. The work is bounded by the sessions that are searched, so call
        again, with a larger offset, for more.
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

    async def begin_run(self, header: RunHeader, ownership: Ownership) -> None:
        """Store a run as in progress, with its owner. An existing run is left unchanged."""
        ...

    async def append_log(
        self, batches: Sequence[LogBatch], ownership: Ownership | None = None
    ) -> frozenset[str]:
        """Append to the logs of any number of runs in one transaction.

        Safe to retry: of two batches with the same run and first number, the one with more changes
        is kept. Batches for deleted or ended runs are dropped, and so are those for runs that have
        another owner than the given one; return the ids of the latter. Without an owner, nothing is
        checked.
        """
        ...

    async def end_run(
        self,
        ended: EndedRun,
        tail: Sequence[LogBatch] = (),
        items: Sequence[Mapping[str, Any]] = (),
        ownership: Ownership | None = None,
    ) -> bool:
        """Give a run its terminal form; a second call for the same run changes nothing.

        Return False, and change nothing, if the run has another owner than the given one; then it
        was taken over, and its new owner ends it. Without an owner, nothing is checked.

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

    async def take_over_runs(self, node: str) -> tuple[TakenOverRun, ...]:
        """Take over runs in progress, of all principals, whose node is dead: a bounded number, oldest first.

        ``node`` is the living caller, which owns them from then on. Each run is given to one caller,
        again with every call until it has ended: an answer may get lost.

        A run whose header cannot be decoded is hidden and reported in the server log instead, so
        that it cannot keep the others from being ended. To clients it then looks failed and
        deleted.
        """
        ...

    async def stored_bytes(self, principal: str) -> int:
        """Return the size of the principal's runs, sessions and conversations."""
        ...

    async def list_usages(self) -> tuple[OwnerUsage, ...]:
        """Return what each principal stores that stores anything, in any order."""
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


class JobStore(Protocol):
    """Jobs, and the beginning of their runs.

    Every job has a revision. A change is made to the revision that was read, or not at all, so that
    of several clients and nodes one wins.
    """

    async def add_job(self, job: Job, limit: int) -> bool:
        """Store a new job; return False if its principal has ``limit`` jobs, or one with this id."""
        ...

    async def find_job(self, principal: str, job_id: str) -> Job | NoJob:
        """Return a job."""
        ...

    async def list_jobs(self, principal: str) -> tuple[Job, ...]:
        """List the jobs of a principal, oldest first."""
        ...

    async def replace_job(self, job: Job) -> bool:
        """Replace a job; return False if ``job.revision`` is not the stored one, which counts on."""
        ...

    async def delete_job(self, principal: str, job_id: str) -> bool:
        """Delete a job, but not its runs; return False if there is none."""
        ...

    async def next_due_job(self) -> float:
        """Return when the first job of all principals is due, infinity if none is."""
        ...

    async def list_due_jobs(self, now: float, limit: int, offset: int = 0) -> tuple[Job, ...]:
        """List the jobs of all principals that are due, the longest overdue first."""
        ...

    async def begin_job_run(self, job: Job, header: RunHeader, ownership: Ownership) -> bool:
        """Replace a job and begin its run, in one transaction. Safe to retry until it has begun.

        Return False if the job is not the stored revision, or the run existed before: then another
        node has begun it, and this one must not. If an earlier call of the same node has begun the
        run, return True and change nothing.
        """
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


@runtime_checkable
class LeasedStore(Protocol):
    """The part of a :class:`SharedStore` that knows which nodes are alive.

    Each server process is a node with a lease, in the time of the database. When the lease of a
    node has lapsed, ``take_over_runs`` gives its runs to another.
    """

    @property
    def lease_seconds(self) -> float:
        """How long a node may be silent before others take over its runs."""
        ...

    async def join(self, node: str, address: str) -> None:
        """Add a node, with a fresh lease. ``address`` tells people where it runs."""
        ...

    async def renew_lease(self, node: str) -> bool:
        """Renew the lease of a node.

        Return False if it had lapsed: others may have taken over runs. The node has a new one then.
        """
        ...

    async def leave(self, node: str) -> None:
        """Remove a node, so that others need not wait until its lease has lapsed."""
        ...

    async def list_nodes(self) -> tuple[Node, ...]:
        """List the nodes, those that died within the last hour included."""
        ...

    async def find_owner(self, principal: str, run_id: str) -> str:
        """Return the node that executes a run, "" if none does."""
        ...


@runtime_checkable
class SharedStore(LeasedStore, Protocol):
    """A store that several server processes use at the same time. Optional."""

    @property
    def can_listen(self) -> bool:
        """Whether notices reach this process; if not, it has to look into the store more often."""
        ...

    async def follow_logs(self, cursors: Sequence[LogCursor]) -> tuple[LogProgress, ...]:
        """Return, for each cursor, a bounded part of the log behind it. Costs one query for all."""
        ...

    async def send_command(self, command: Command) -> None:
        """Store a command and notify the node that executes its run."""
        ...

    async def find_commands(self, node: str) -> tuple[Command, ...]:
        """Return commands for the runs that a node executes, oldest first: a bounded number.

        Each is returned again until it has been answered, since a result may get lost.
        """
        ...

    async def answer_commands(self, answers: Sequence[CommandAnswer]) -> None:
        """Store the answers to commands and notify their senders. The first answer to a command stays."""
        ...

    async def find_answer(self, command_id: str) -> Mapping[str, Any] | None:
        """Return the answer to a command, None if there is none yet."""
        ...

    async def lock_session(self, principal: str, session_id: str, node: str) -> bool:
        """Lock a session for a turn on a node; return False if another turn has it.

        The lock of a dead node counts for nothing.
        """
        ...

    async def unlock_session(self, principal: str, session_id: str, node: str) -> None:
        """Unlock a session, if the node has locked it."""
        ...

    async def take_run_slot(self, principal: str, slot: str, node: str, limit: int) -> bool:
        """Take a slot for a run, of which a principal has a limited number on all nodes together.

        Return False if all are taken. ``slot`` is a unique name; a second call with it takes nothing
        more. The slots of a dead node count for nothing.
        """
        ...

    async def give_back_run_slots(self, slots: Sequence[str]) -> None:
        """Give slots back, by name. Those that are not taken are ignored."""
        ...

    async def notify(self, node: str, notices: Sequence[Notice]) -> None:
        """Send notices to a node, outside of any transaction. They may get lost."""
        ...

    async def wait_notices(self, node: str, seconds: float) -> tuple[Notice, ...]:
        """Wait for notices to a node, for at most some seconds.

        A notice of the topic ``reconnected`` comes first on every new connection, since others may
        have been lost before. Notices that arrive while no call waits are kept for the next one.
        Where the database cannot notify, such as behind a pooler, this only waits.
        """
        ...


class Store(
    SessionStore,
    RunStore,
    ConversationStore,
    IdempotencyStore,
    ApprovalStore,
    JobStore,
    Protocol,
):
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
