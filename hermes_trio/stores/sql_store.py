"""The contract on top of SQLite, whoever runs the jobs: a file with threads, or a database in memory."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Protocol, TypeVar

import structlog

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
from hermes_trio.stores import statements_approvals as approvals
from hermes_trio.stores import statements_claims as claims
from hermes_trio.stores import statements_conversations as conversations
from hermes_trio.stores import statements_forget as forgetting
from hermes_trio.stores import statements_history, statements_lists, statements_runs
from hermes_trio.stores import statements_logs as logs
from hermes_trio.stores import statements_session_objects as objects
from hermes_trio.stores import statements_sessions as sessions
from hermes_trio.stores.base import StoreError
from hermes_trio.stores.codec import clamped, require_keys
from hermes_trio.stores.records import require_end, require_header
from hermes_trio.stores.statements_forget import Look

MAX_LOOKS = 1000


class Recent:
    """The latest look at each of so many runs. Beyond that the oldest are lost, and those runs seem less used."""

    def __init__(self, limit: int = MAX_LOOKS) -> None:
        self._limit = limit
        self._looks: dict[tuple[str, str], Look] = {}

    def note(self, look: Look) -> None:
        """Somebody looked."""
        key = (look.principal, look.run_id)
        self._looks.pop(key, None)  # so that it goes to the end
        self._looks[key] = look
        if len(self._looks) > self._limit:
            del self._looks[next(iter(self._looks))]

    def take(self) -> tuple[Look, ...]:
        """All of it; nothing is left here."""
        looks = tuple(self._looks.values())
        self._looks.clear()
        return looks


T = TypeVar("T")

log = structlog.get_logger(__name__)


class Writes(Protocol):
    """Runs jobs that write, each whole or not at all."""

    async def submit(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Return what the job returned once it is durable."""
        ...


class Reads(Protocol):
    """Runs jobs that read."""

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Return what the job returned."""
        ...


class SqlStore:
    """A :class:`~hermes_trio.stores.base.Store`. It checks ids, and hands each call over as one job."""

    def __init__(self, writes: Writes, reads: Reads) -> None:
        self._submit = writes.submit
        self._read = reads.read
        self._recent = Recent()

    async def load_messages(self, principal: str, session_id: str) -> tuple[Message, ...]:
        """The transcript of a session."""
        require_keys(principal, session_id)
        return await self._read(partial(sessions.load, principal=principal, session_id=session_id))

    async def list_messages(
        self, principal: str, session_id: str, after: int = 0, limit: int = 1000
    ) -> MessagePage:
        """Some messages of a session."""
        require_keys(principal, session_id)
        work = partial(objects.messages, place=(principal, session_id), after=after, limit=limit)
        return await self._read(work)

    async def create_session(self, session: Session) -> Session | SessionExists | TitleTaken:
        """Make a session, or say why not."""
        require_keys(session.principal, session.session_id, session.title, session.kind, session.parent)
        return await self._submit(partial(objects.create, session=session))

    async def find_session(self, principal: str, session_id: str) -> Session | NoSession:
        """A session, without its messages."""
        require_keys(principal, session_id)
        return await self._read(partial(objects.find, place=(principal, session_id)))

    async def list_sessions(self, principal: str, query: SessionQuery) -> SessionPage:
        """Some sessions."""
        require_keys(principal, query.kind)
        return await self._read(partial(objects.page, principal=principal, query=query))

    async def update_session(
        self, principal: str, session_id: str, change: SessionChange, now: float
    ) -> Session | NoSession | TitleTaken:
        """Change a session."""
        require_keys(principal, session_id, change.title, change.end_reason)
        return await self._submit(
            partial(objects.update, place=(principal, session_id), change=change, now=now)
        )

    async def fork_session(
        self, principal: str, session_id: str, child_id: str, title: str, now: float
    ) -> Session | NoSession | SessionExists | TitleTaken:
        """Branch a session."""
        require_keys(principal, session_id, child_id, title)
        wanted = objects.Fork(principal, session_id, child_id, title, now)
        return await self._submit(partial(objects.fork, wanted=wanted))

    async def delete_session(
        self, principal: str, session_id: str
    ) -> SessionDeleted | SessionBusy | NoSession:
        """Forget a session and the runs in it."""
        require_keys(principal, session_id)
        return await self._submit(partial(objects.delete, place=(principal, session_id)))

    async def begin_run(self, header: RunHeader, owner: str) -> None:
        """Keep a run as in progress."""
        require_header(header)
        require_keys(owner)
        await self._submit(partial(statements_runs.begin, header=header, owner=owner))

    async def append_log(self, batches: Sequence[LogBatch]) -> None:
        """Append to logs, in one transaction."""
        for batch in batches:
            require_keys(batch.principal, batch.run_id)
        if batches:
            await self._submit(partial(logs.append, batches=tuple(batches)))

    async def end_run(
        self, ended: EndedRun, tail: Sequence[LogBatch] = (), items: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        """Give a run its terminal form. It is a write, so the looks of the meantime ride along."""
        require_end(ended, tuple(tail), bool(items))
        work = partial(statements_runs.end, ended=ended, tail=tuple(tail), items=tuple(items))
        await self._submit(partial(forgetting.after_notes, looks=self._recent.take(), work=work))

    async def find_run(self, principal: str, run_id: str) -> LiveRun | EndedRun | NoRun:
        """A run as it stands; when it was looked at is written with the next write."""
        require_keys(principal, run_id)
        found = await self._read(partial(statements_runs.find, principal=principal, run_id=run_id))
        if not isinstance(found, NoRun):
            self._recent.note(forgetting.Look(principal, run_id, time.time()))
        return found

    async def find_latest_run(self, principal: str, conversation: str) -> LiveRun | EndedRun | NoRun:
        """The run that began last in a conversation."""
        require_keys(principal, conversation)
        return await self._read(
            partial(statements_runs.latest, principal=principal, conversation=conversation)
        )

    async def list_runs(self, principal: str, query: RunQuery) -> RunPage:
        """Some runs. A list is no look at each of them."""
        require_keys(principal, query.after.run_id, query.session_id, *query.kinds)
        return await self._read(partial(statements_lists.load, principal=principal, query=query))

    async def read_log(self, principal: str, run_id: str, first: int) -> tuple[LogBatch, ...]:
        """Some batches of a log."""
        require_keys(principal, run_id)
        return await self._read(partial(logs.read, principal=principal, run_id=run_id, first=first))

    async def load_history(self, principal: str, run_id: str) -> tuple[Message, ...]:
        """What was said in a run and before it."""
        require_keys(principal, run_id)
        return await self._read(partial(statements_history.load, principal=principal, run_id=run_id))

    async def delete_run(self, principal: str, run_id: str) -> bool:
        """Forget an ended run."""
        require_keys(principal, run_id)
        return await self._submit(partial(forgetting.delete, principal=principal, run_id=run_id))

    async def find_abandoned_runs(self, owner: str) -> tuple[RunHeader, ...]:
        """The runs in progress of other owners: one process at a time has this store, so they are all dead."""
        require_keys(owner)
        found = await self._submit(partial(statements_runs.abandoned, owner=owner))
        for error in found.damaged:
            log.error("gave up a run that a dead process left behind", error=str(error))
        return found.headers

    async def purge(self, retention: Retention, now: float) -> PurgeResult:
        """Remove what has been kept long enough, some of it."""
        work = partial(forgetting.forget, retention=retention, now=now)
        return await self._submit(partial(forgetting.after_notes, looks=self._recent.take(), work=work))

    async def write_notes(self) -> None:
        """Write down what is only in memory yet. If that fails, some runs seem less used than they were."""
        if looks := self._recent.take():
            with suppress(StoreError):
                await self._submit(partial(forgetting.note, looks=looks))

    async def save_conversation(self, conversation: Conversation) -> None:
        """Make a conversation, or change its metadata."""
        require_keys(conversation.principal, conversation.conversation_id)
        await self._submit(partial(conversations.save, conversation=conversation))

    async def find_conversation(self, principal: str, conversation_id: str) -> Conversation | NoConversation:
        """A conversation, without its items."""
        require_keys(principal, conversation_id)
        return await self._read(
            partial(conversations.find, principal=principal, conversation_id=conversation_id)
        )

    async def delete_conversation(self, principal: str, conversation_id: str) -> bool:
        """Forget a conversation and its items."""
        require_keys(principal, conversation_id)
        return await self._submit(partial(conversations.delete, place=(principal, conversation_id)))

    async def add_items(
        self, principal: str, conversation_id: str, items: Sequence[Mapping[str, Any]]
    ) -> None:
        """Append items to a conversation that is there."""
        require_keys(principal, conversation_id)
        place = (principal, conversation_id)
        await self._submit(partial(conversations.add, place=place, items=tuple(items)))

    async def list_items(
        self,
        principal: str,
        conversation_id: str,
        after: str = "",
        limit: int = 0,
        newest_first: bool = False,
    ) -> ItemPage:
        """Some items of a conversation."""
        require_keys(principal, conversation_id, after)
        page = conversations.Page(after, clamped(limit), newest_first)
        return await self._read(partial(conversations.items, place=(principal, conversation_id), page=page))

    async def delete_item(self, principal: str, conversation_id: str, item_id: str) -> bool:
        """Remove one item."""
        require_keys(principal, conversation_id, item_id)
        place = (principal, conversation_id)
        return await self._submit(partial(conversations.delete_item, place=place, item_id=item_id))

    async def is_granted(self, principal: str, session_id: str, patterns: tuple[str, ...]) -> bool:
        """Whether all of some patterns are granted."""
        require_keys(principal, session_id)
        work = partial(approvals.is_granted, principal=principal, session_id=session_id, patterns=patterns)
        return await self._read(work)

    async def grant(self, grants: Sequence[Grant]) -> None:
        """Remember some approvals."""
        for each in grants:
            require_keys(each.principal, each.session_id)
        await self._submit(partial(approvals.grant, grants=tuple(grants)))

    async def list_grants(self, principal: str) -> tuple[Grant, ...]:
        """Everything that a principal granted."""
        require_keys(principal)
        return await self._read(partial(approvals.grants, principal=principal))

    async def revoke(self, principal: str, session_id: str, pattern: str) -> bool:
        """Forget an approval."""
        require_keys(principal, session_id)
        work = partial(approvals.revoke, principal=principal, session_id=session_id, pattern=pattern)
        return await self._submit(work)

    async def claim_key(self, record: IdempotencyRecord) -> IdempotencyRecord:
        """Store an idempotency record, or return the one already held."""
        require_keys(record.principal, record.route, record.key, record.fingerprint, record.run_id)
        return await self._submit(partial(claims.claim, wanted=record))

    async def release_key(self, record: IdempotencyRecord) -> None:
        """Release an idempotency key."""
        require_keys(record.principal, record.route, record.key, record.run_id)
        await self._submit(partial(claims.unclaim, made=record))

    async def check(self) -> None:
        """Read something, and write something."""
        await self._read(sessions.read_probe)
        await self._submit(partial(sessions.write_probe, now=time.time()))
