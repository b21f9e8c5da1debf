"""What every store promises. Nothing here assumes one process or one engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from hermes_trio.core.approvals import Grant
from hermes_trio.core.messages import Message
from hermes_trio.core.record import (
    Claim,
    Conversation,
    EndedRun,
    Forgotten,
    ItemPage,
    LiveRun,
    LogBatch,
    NoConversation,
    NoRun,
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
    """The store could not do what was asked. What it had acknowledged before is safe."""


class Damaged(StoreError):
    """The store works, but something in it is not as it was written."""


class SessionStore(Protocol):
    """Sessions and their transcripts. Nothing that is done to runs or conversations takes anything out of one.

    A run makes the session that it begins in, if it is not there, and adds to the one that it ends in.
    """

    async def messages(self, principal: str, session_id: str) -> tuple[Message, ...]:
        """The transcript of a session in the order it was said; empty for an unknown one."""
        ...

    async def message_page(
        self, principal: str, session_id: str, after: int = 0, limit: int = 1000
    ) -> MessagePage:
        """The messages of a session that come after a number; empty for an unknown one."""
        ...

    async def create_session(self, session: Session) -> Session | SessionExists | TitleTaken:
        """Make a session, or say why not. Of two at the same moment exactly one is made. What it counts is nought."""
        ...

    async def find_session(self, principal: str, session_id: str) -> Session | NoSession:
        """A session, without its messages."""
        ...

    async def list_sessions(self, principal: str, query: SessionQuery) -> SessionPage:
        """Sessions, the one with the latest activity first. Those that go on elsewhere only if that is asked for."""
        ...

    async def update_session(
        self, principal: str, session_id: str, change: SessionChange, now: float
    ) -> Session | NoSession | TitleTaken:
        """Change a session, all of it or nothing; returns it as it is then."""
        ...

    async def fork_session(
        self, principal: str, session_id: str, child_id: str, title: str, now: float
    ) -> Session | NoSession | SessionExists | TitleTaken:
        """Branch a session: make a child with all that was said, and end the source, both or neither.

        The child has the source's model and system prompt. Without a title it gets the next numbered one, if the
        source has one. Its messages were said by no run of its own: no history has them twice.
        """
        ...

    async def delete_session(
        self, principal: str, session_id: str
    ) -> SessionDeleted | SessionBusy | NoSession:
        """Forget a session: its messages, and the runs that ended in it as if each were deleted.

        Not while a run is in progress in it. Branches of it, conversations, and what others said are kept. Runs
        elsewhere that continue one of its runs have only their own words left.
        """
        ...


class RunStore(Protocol):
    """Runs: begun, logged, ended once. The id of a run is never used for another, even when the run is forgotten.

    All that writes is durable when it returns.
    """

    async def begin_run(self, header: RunHeader, owner: str) -> None:
        """Keep a run as in progress. ``owner`` names the process that runs it. A run that is there stays as it is."""
        ...

    async def append_log(self, batches: Sequence[LogBatch]) -> None:
        """Append to the logs of any number of runs, in one transaction.

        A write whose answer got lost may be repeated: of two batches with the same run and the same first number the
        one with more changes stays. Batches of runs that are gone or ended are dropped.
        """
        ...

    async def end_run(
        self, ended: EndedRun, tail: Sequence[LogBatch] = (), items: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        """Give a run its terminal form.

        That is: its record, the rest of its log, its messages appended to the session that it ended in, and
        ``items`` appended to its conversation, which is made if it is not there. All of it or nothing, and once: a
        second end changes nothing. The run need not have begun here.

        A caller that is cancelled here does not know whether the run has ended: it may have all the same. Where that
        matters, shield the call, or ask again.
        """
        ...

    async def find_run(self, principal: str, run_id: str) -> LiveRun | EndedRun | NoRun:
        """A run as it stands. Looking at it makes it recently used; a crash may lose that, and only that."""
        ...

    async def latest_run(self, principal: str, conversation: str) -> LiveRun | EndedRun | NoRun:
        """The run that began last in a conversation and is not forgotten."""
        ...

    async def list_runs(self, principal: str, query: RunQuery) -> RunPage:
        """Some runs, in the order in which they began, or the other way round; not those that clients asked not to store.

        The page begins behind a place, whether a run is there or not. It may be shorter than the limit when what is
        known of its runs is very large, but has one run at least if there is one.
        """
        ...

    async def read_log(self, principal: str, run_id: str, first: int) -> tuple[LogBatch, ...]:
        """The batches that hold the changes from number ``first`` on, in order; a bounded number at a time.

        The first batch may begin before that number. None if there are no such changes (yet, or any longer).
        """
        ...

    async def history(self, principal: str, run_id: str) -> tuple[Message, ...]:
        """What was said in a run and in all that it continues, oldest first; empty for an unknown run.

        That is for each run the client's messages and then the agent's; of a run in progress the client's alone.
        A run of the Sessions API continues all that was said in its session before it.
        Runs that were forgotten or deleted still count while a later run continues them.
        """
        ...

    async def delete_run(self, principal: str, run_id: str) -> bool:
        """Forget an ended run; False if there is none, or if it is still in progress.

        Its record, its log and the claims that point to it are gone. What was said in it stays in its session, and
        readable to the runs that continue it.
        """
        ...

    async def abandoned_runs(self, owner: str) -> tuple[RunHeader, ...]:
        """The runs in progress, of all principals, whose owner is not alive, seen from a living owner.

        One that cannot be read any more must not keep the others from being ended. It is given up here and reported
        in the log of the server: to all who look it is as if it had failed and been deleted.
        """
        ...

    async def forget(self, retention: Retention, now: float) -> Forgotten:
        """Remove what need not be kept any longer, a bounded amount at a time.

        Logs and claims go by age, ended runs by use, as if they were deleted; a conversation follows the last of its
        runs. Counted are runs, whole logs, and claims that went by age; when all is zero there is nothing left to do.
        """
        ...


class ConversationStore(Protocol):
    """Conversations and their items."""

    async def save_conversation(self, conversation: Conversation) -> None:
        """Make a conversation, or change its metadata and nothing else."""
        ...

    async def find_conversation(self, principal: str, conversation_id: str) -> Conversation | NoConversation:
        """A conversation, without its items."""
        ...

    async def delete_conversation(self, principal: str, conversation_id: str) -> bool:
        """Forget a conversation and its items; False if there is none. Runs are not touched."""
        ...

    async def add_items(
        self, principal: str, conversation_id: str, items: Sequence[Mapping[str, Any]]
    ) -> None:
        """Append items, each with an ``id``, to a conversation. An item whose id is there already is not added again.

        Raises:
            StoreError: there is no such conversation, or an item has no id.
        """
        ...

    async def items(
        self,
        principal: str,
        conversation_id: str,
        after: str = "",
        limit: int = 0,
        newest_first: bool = False,
    ) -> ItemPage:
        """The items of a conversation, from the one after the id ``after``; ``limit`` 0 means all.

        Nothing comes after an item that is not there.
        """
        ...

    async def delete_item(self, principal: str, conversation_id: str, item_id: str) -> bool:
        """Remove one item; False if there is none."""
        ...


class ClaimStore(Protocol):
    """Idempotency keys. A claim lasts until ``forget`` finds it old, or until its run is forgotten."""

    async def claim(self, claim: Claim) -> Claim:
        """Keep a claim and return it, or return the one that was there first for this principal, route and key.

        Of two at the same moment exactly one wins.
        """
        ...

    async def unclaim(self, claim: Claim) -> None:
        """Take a claim back: its request was refused before a run began. The claim of another run stays."""
        ...


class ApprovalStore(Protocol):
    """Approvals that are remembered, by what they were given for."""

    async def is_granted(self, principal: str, session_id: str, patterns: tuple[str, ...]) -> bool:
        """Whether all of some patterns are granted, for this session or for all of the principal's. None are not."""
        ...

    async def grant(self, grants: Sequence[Grant]) -> None:
        """Remember some, all or none."""
        ...

    async def grants(self, principal: str) -> tuple[Grant, ...]:
        """Everything that a principal granted, oldest first."""
        ...

    async def revoke(self, principal: str, session_id: str, pattern: str) -> bool:
        """Forget one; False if there is none."""
        ...


@runtime_checkable
class CountsCommits(Protocol):
    """A store that can tell how many transactions it has made. Not all have something to count."""

    @property
    def commits(self) -> int:
        """How many, since it was opened."""
        ...


class Store(SessionStore, RunStore, ConversationStore, ClaimStore, ApprovalStore, Protocol):
    """All of it, each thing visible only to the principal that made it.

    Every method raises :class:`StoreError` when the store fails or is closed, and when a principal or an id is not
    valid Unicode. Text inside messages and items may hold anything a Python string can. What was kept and cannot be
    read any more is a :class:`StoreError` that names the run, the session or the conversation.
    """

    async def check(self) -> None:
        """Return if the store can read and write now.

        Raises:
            StoreError: it cannot, and why.
        """
        ...
