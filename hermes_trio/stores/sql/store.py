"""A store on an SQL database: one writer with group commit, several readers, and each method of the interface as one job."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import Any, Protocol, TypeVar

import structlog
import trio
from attrs import frozen

from hermes_trio.core.approvals import Grant
from hermes_trio.core.jobs import Job, NoJob
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
from hermes_trio.stores.base import StoreError
from hermes_trio.stores.codec import check_end, check_header, check_ids, clamp_int
from hermes_trio.stores.retention import AccessTimes, RunAccess
from hermes_trio.stores.sql import conversations, jobs, owners, run_lists, runs, sessions
from hermes_trio.stores.sql.database import Database, ReaderPool, SqlConnection
from hermes_trio.stores.sql.purge import list_usages, purge, stored_bytes
from hermes_trio.stores.sql.retention import (
    delete_run,
    save_access_times,
    save_access_times_and_run,
)
from hermes_trio.stores.sql.writer import Writer

T = TypeVar("T")
_Job = Callable[[SqlConnection], T]

log = structlog.get_logger(__name__)


class _WriteExecutor(Protocol):
    """Runs jobs that write, each as a whole or not at all."""

    async def submit(self, job: _Job[T]) -> T:
        """Return the value of the job once it is durable."""
        ...


class _ReadExecutor(Protocol):
    """Runs jobs that read."""

    async def read(self, job: _Job[T]) -> T:
        """Return the value of the job."""
        ...


class BaseSqlStore:
    """A :class:`~hermes_trio.stores.base.Store` on an SQL database, whichever way jobs are executed.

    Each method checks the ids it was given and passes one job on. The contract is documented in the
    interface.
    """

    def __init__(self, writer: _WriteExecutor, reader: _ReadExecutor) -> None:
        self._submit = writer.submit
        self._read = reader.read
        self._access_times = AccessTimes()

    async def load_messages(self, principal: str, session_id: str) -> tuple[Message, ...]:
        check_ids(principal, session_id)
        return await self._read(
            partial(sessions.load_messages, principal=principal, session_id=session_id)
        )

    async def list_messages(
        self, principal: str, session_id: str, after: int = 0, limit: int = 1000
    ) -> MessagePage:
        check_ids(principal, session_id)
        key = (principal, session_id)
        return await self._read(partial(sessions.list_messages, key=key, after=after, limit=limit))

    async def create_session(self, session: Session) -> Session | SessionExists | TitleTaken:
        check_ids(
            session.principal, session.session_id, session.title, session.kind, session.parent
        )
        return await self._submit(partial(sessions.create, session=session))

    async def find_session(self, principal: str, session_id: str) -> Session | NoSession:
        check_ids(principal, session_id)
        return await self._read(partial(sessions.find, key=(principal, session_id)))

    async def list_sessions(self, principal: str, query: SessionQuery) -> SessionPage:
        check_ids(principal, query.kind, query.parent)
        return await self._read(partial(sessions.list_page, principal=principal, query=query))

    async def update_session(
        self, principal: str, session_id: str, change: SessionChange, now: float
    ) -> Session | NoSession | TitleTaken:
        check_ids(principal, session_id, change.title, change.end_reason)
        key = (principal, session_id)
        return await self._submit(partial(sessions.update, key=key, change=change, now=now))

    async def fork_session(
        self, request: SessionFork
    ) -> Session | NoSession | SessionExists | TitleTaken:
        check_ids(request.principal, request.source_id, request.child_id, request.title)
        return await self._submit(partial(sessions.fork, request=request))

    async def search_messages(self, principal: str, query: MessageSearch) -> SearchPage:
        check_ids(principal)
        return await self._read(partial(sessions.search, principal=principal, query=query))

    async def delete_session(
        self, principal: str, session_id: str
    ) -> SessionDeleted | SessionBusy | NoSession:
        check_ids(principal, session_id)
        return await self._submit(partial(sessions.delete, key=(principal, session_id)))

    async def begin_run(self, header: RunHeader, ownership: Ownership) -> None:
        check_header(header)
        check_ids(ownership.node)
        await self._submit(partial(runs.begin, header=header, ownership=ownership))

    async def append_log(
        self, batches: Sequence[LogBatch], ownership: Ownership | None = None
    ) -> frozenset[str]:
        for batch in batches:
            check_ids(batch.principal, batch.run_id)
        if not batches:
            return frozenset()
        return await self._submit(
            partial(runs.append_log, batches=tuple(batches), ownership=ownership)
        )

    async def end_run(
        self,
        ended: EndedRun,
        tail: Sequence[LogBatch] = (),
        items: Sequence[Mapping[str, Any]] = (),
        ownership: Ownership | None = None,
    ) -> bool:
        check_end(ended, tuple(tail), bool(items))
        job = runs.EndJob(ended, tuple(tail), tuple(items), ownership)
        return await self._submit(self._with_access_times(job))

    async def find_run(self, principal: str, run_id: str) -> LiveRun | EndedRun | NoRun:
        check_ids(principal, run_id)
        found = await self._read(partial(runs.find, principal=principal, run_id=run_id))
        if not isinstance(found, NoRun):
            self._access_times.record(RunAccess(principal, run_id, time.time()))
        return found

    async def find_items(
        self, principal: str, item_ids: Sequence[str]
    ) -> Mapping[str, Mapping[str, Any]]:
        check_ids(principal, *item_ids)
        job = partial(runs.find_items, principal=principal, item_ids=tuple(item_ids))
        found = await self._read(job)
        for run_id in found.run_ids:
            self._access_times.record(RunAccess(principal, run_id, time.time()))
        return found.items

    async def find_latest_run(
        self, principal: str, conversation: str
    ) -> LiveRun | EndedRun | NoRun:
        check_ids(principal, conversation)
        return await self._read(
            partial(runs.find_latest, principal=principal, conversation=conversation)
        )

    async def list_runs(self, principal: str, query: RunQuery) -> RunPage:
        check_ids(principal, query.after.run_id, query.session_id, *query.kinds)
        return await self._read(partial(run_lists.list_page, principal=principal, query=query))

    async def read_log(self, principal: str, run_id: str, first: int) -> tuple[LogBatch, ...]:
        check_ids(principal, run_id)
        return await self._read(
            partial(runs.read_log, principal=principal, run_id=run_id, first=first)
        )

    async def load_history(self, principal: str, run_id: str) -> tuple[Message, ...]:
        check_ids(principal, run_id)
        return await self._read(partial(runs.load_history, principal=principal, run_id=run_id))

    async def delete_run(self, principal: str, run_id: str) -> bool:
        check_ids(principal, run_id)
        return await self._submit(partial(delete_run, principal=principal, run_id=run_id))

    async def take_over_runs(self, node: str) -> tuple[TakenOverRun, ...]:
        """See the interface.

        Only one process at a time has this store, so every other owner is dead. Idempotency keys
        whose runs never began are released: the process that claimed them died in between.
        """
        check_ids(node)
        await self._submit(owners.release_claims)
        return await self._take_over(node)

    async def _take_over(self, node: str) -> tuple[TakenOverRun, ...]:
        while True:
            found = await self._submit(partial(owners.take_over, node=node))
            for error in found.errors:
                log.error("gave up an abandoned run that cannot be read", error=str(error))
            if found.runs or not found.errors:
                return found.runs

    async def stored_bytes(self, principal: str) -> int:
        check_ids(principal)
        return await self._read(partial(stored_bytes, principal=principal))

    async def list_usages(self) -> tuple[OwnerUsage, ...]:
        return tuple(await self._read(list_usages))

    async def purge(self, retention: Retention, now: float) -> PurgeResult:
        job = partial(purge, retention=retention, now=now)
        return await self._submit(self._with_access_times(job))

    def _with_access_times(self, job: _Job[T]) -> _Job[T]:
        """Add the pending access times to a job that writes anyway."""
        accesses = self._access_times.drain()
        return partial(save_access_times_and_run, accesses=accesses, job=job) if accesses else job

    async def flush_access_times(self) -> None:
        """Write the access times that are only in memory.

        If that fails, some runs look less recently used.
        """
        if accesses := self._access_times.drain():
            with suppress(StoreError):
                await self._submit(partial(save_access_times, accesses=accesses))

    async def save_conversation(self, conversation: Conversation) -> None:
        check_ids(conversation.principal, conversation.conversation_id)
        await self._submit(partial(conversations.save, conversation=conversation))

    async def find_conversation(
        self, principal: str, conversation_id: str
    ) -> Conversation | NoConversation:
        check_ids(principal, conversation_id)
        job = partial(conversations.find, principal=principal, conversation_id=conversation_id)
        return await self._read(job)

    async def delete_conversation(self, principal: str, conversation_id: str) -> bool:
        check_ids(principal, conversation_id)
        return await self._submit(partial(conversations.delete, key=(principal, conversation_id)))

    async def add_items(
        self, principal: str, conversation_id: str, items: Sequence[Mapping[str, Any]]
    ) -> None:
        check_ids(principal, conversation_id)
        key = (principal, conversation_id)
        await self._submit(partial(conversations.add_items, key=key, items=tuple(items)))

    async def list_items(
        self,
        principal: str,
        conversation_id: str,
        after: str = "",
        limit: int = 0,
        newest_first: bool = False,
    ) -> ItemPage:
        check_ids(principal, conversation_id, after)
        query = conversations.ItemQuery(after, clamp_int(limit), newest_first)
        return await self._read(
            partial(conversations.list_items, key=(principal, conversation_id), query=query)
        )

    async def delete_item(self, principal: str, conversation_id: str, item_id: str) -> bool:
        check_ids(principal, conversation_id, item_id)
        key = (principal, conversation_id)
        return await self._submit(partial(conversations.delete_item, key=key, item_id=item_id))

    async def is_granted(
        self, principal: str, session_id: str, patterns: tuple[str, ...], end_user: str = ""
    ) -> bool:
        check_ids(principal, session_id, end_user)
        job = partial(
            sessions.is_granted,
            principal=principal,
            session_id=session_id,
            patterns=patterns,
            end_user=end_user,
        )
        return await self._read(job)

    async def grant(self, grants: Sequence[Grant]) -> None:
        for each in grants:
            check_ids(each.principal, each.session_id, each.end_user)
        await self._submit(partial(sessions.grant, grants=tuple(grants)))

    async def list_grants(self, principal: str) -> tuple[Grant, ...]:
        check_ids(principal)
        return await self._read(partial(sessions.list_grants, principal=principal))

    async def revoke(
        self, principal: str, session_id: str, pattern: str, end_user: str | None = None
    ) -> bool:
        check_ids(principal, session_id, end_user or "")
        job = partial(
            sessions.revoke,
            principal=principal,
            session_id=session_id,
            pattern=pattern,
            end_user=end_user,
        )
        return await self._submit(job)

    async def claim_key(self, record: IdempotencyRecord) -> IdempotencyRecord:
        check_ids(record.principal, record.route, record.key, record.fingerprint, record.run_id)
        return await self._submit(partial(runs.claim_key, record=record))

    async def release_key(self, record: IdempotencyRecord) -> None:
        check_ids(record.principal, record.route, record.key, record.run_id)
        await self._submit(partial(runs.release_key, record=record))

    async def add_job(self, job: Job, limit: int) -> bool:
        check_ids(job.principal, job.job_id)
        return await self._submit(partial(jobs.add, job=job, limit=limit))

    async def find_job(self, principal: str, job_id: str) -> Job | NoJob:
        check_ids(principal, job_id)
        return await self._read(partial(jobs.find, key=(principal, job_id)))

    async def list_jobs(self, principal: str) -> tuple[Job, ...]:
        check_ids(principal)
        return await self._read(partial(jobs.list_all, principal=principal))

    async def replace_job(self, job: Job) -> bool:
        check_ids(job.principal, job.job_id)
        return await self._submit(partial(jobs.replace, job=job))

    async def delete_job(self, principal: str, job_id: str) -> bool:
        check_ids(principal, job_id)
        return await self._submit(partial(jobs.delete, key=(principal, job_id)))

    async def next_due_job(self) -> float:
        return await self._read(jobs.next_due)

    async def list_due_jobs(self, now: float, limit: int, offset: int = 0) -> tuple[Job, ...]:
        return await self._read(partial(jobs.list_due, now=now, limit=limit, offset=offset))

    async def begin_job_run(self, job: Job, header: RunHeader, ownership: Ownership) -> bool:
        check_header(header)
        check_ids(job.principal, job.job_id, ownership.node)
        return await self._submit(
            partial(jobs.begin_run, job=job, header=header, ownership=ownership)
        )

    async def check(self) -> None:
        await self._read(_read_probe)
        await self._submit(partial(_write_probe, now=time.time()))


def _read_probe(connection: SqlConnection) -> None:
    connection.execute("SELECT principal FROM sessions LIMIT 1").fetchall()


def _write_probe(connection: SqlConnection, now: float) -> None:
    connection.execute(
        "INSERT INTO probe (id, checked_at) VALUES (1, ?)"
        " ON CONFLICT (id) DO UPDATE SET checked_at = excluded.checked_at",
        (now,),
    )


@frozen
class SqlStoreOptions:
    """The limits of a store on an SQL database."""

    readers: int = 4
    max_pending: int = 1024  # jobs waiting for a transaction; beyond that callers block
    max_batch: int = 256  # jobs in one transaction
    close_seconds: float = 20.0  # how long closing may take


class SqlStore(BaseSqlStore):
    """A :class:`~hermes_trio.stores.base.Store` on an open database, used within :meth:`running`."""

    def __init__(self, database: Database, options: SqlStoreOptions) -> None:
        self._database = database
        self._past_failures = 0  # failures of the writer before it was found to work again
        self._options = options
        self._writer = Writer(database, options.max_pending, options.max_batch)
        self._readers = ReaderPool(database, options.readers)
        super().__init__(self._writer, self._readers)

    @property
    def commits(self) -> int:
        """Number of transactions since the store was opened."""
        return self._writer.commits

    async def heartbeat(self) -> None:
        """See :class:`~hermes_trio.stores.base.Heartbeat`."""
        # A job can fail by its own fault; only a write shows whether others fail, too.
        if self._writer.failures > self._past_failures:
            await self.check()

    async def check(self) -> None:
        """See the interface. After a failure, also writes to new pages.

        On a full disk, what needs no new page still succeeds.
        """
        failures = self._writer.failures
        if failures > self._past_failures:
            for job in self._database.space_probe:
                await self._submit(job)
        await super().check()
        self._past_failures = failures

    @asynccontextmanager
    async def running(self, name: str) -> AsyncIterator[None]:
        """Accept jobs within the context, then commit what was accepted and close the database.

        This happens even when the task is being cancelled.

        Raises:
            StoreError: The database, which ``name`` names, did not close in time.
        """
        with _unwrap_group():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._writer.run)
                try:
                    yield
                finally:
                    seconds = self._options.close_seconds
                    with trio.move_on_after(seconds, shield=True) as limit:
                        await self._close()
                    if limit.cancelled_caught:
                        self._writer.abandon()
                        raise StoreError(f"{name} did not close within {seconds:g} s")

    async def _close(self) -> None:
        """Finish every accepted job, and write the last access times."""
        await self.flush_access_times()
        await self._writer.close()
        await self._readers.close()
        await trio.to_thread.run_sync(self._database.close, abandon_on_cancel=True)


@contextmanager
def _unwrap_group() -> Iterator[None]:
    """Raise the error of the ``async with`` body itself, not the exception group our nursery wraps it in."""
    try:
        yield
    except BaseExceptionGroup as group:
        if len(group.exceptions) > 1:
            raise
        [error] = group.exceptions
        context = error.__context__
        try:
            raise error
        finally:
            error.__context__ = context
