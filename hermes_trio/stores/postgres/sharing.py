"""Operations for nodes that share a PostgreSQL store: logs, commands, locks and notices.

These statements do not join the transactions of the group commit. They are rare, must not wait for
a batch, and must not hold a lock that another node wants while this one is suspended.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from attrs import frozen

from hermes_trio.core.records import (
    Command,
    CommandAnswer,
    LogCursor,
    LogProgress,
    Notice,
    PurgeResult,
    Retention,
    Topic,
)
from hermes_trio.stores.base import StoreError
from hermes_trio.stores.codec import check_ids
from hermes_trio.stores.postgres import commands, following, listening, run_slots
from hermes_trio.stores.postgres.connections import PostgresDatabase
from hermes_trio.stores.sql.database import SqlConnection
from hermes_trio.stores.sql.store import SqlStore, SqlStoreOptions

T = TypeVar("T")


@frozen
class PostgresOptions(SqlStoreOptions):
    """The limits of a PostgreSQL store.

    It has one connection more for writing, one for notices, and up to two for its lease.
    """

    lease_seconds: float = 8.0  # how long a node may be silent before others take over its runs


class SharedSqlStore(SqlStore):
    """Half of :class:`~hermes_trio.stores.base.SharedStore`, which documents the methods."""

    _database: PostgresDatabase
    _options: PostgresOptions

    def __init__(self, database: PostgresDatabase, options: PostgresOptions) -> None:
        super().__init__(database, options)
        self._listeners = listening.Listeners(database)

    # -- logs --

    async def follow_logs(self, cursors: Sequence[LogCursor]) -> tuple[LogProgress, ...]:
        """See the interface. The batches are not verified: decoding them shows any damage."""
        for cursor in cursors:
            check_ids(cursor.principal, cursor.run_id)
        if not cursors:
            return ()
        return await self._autocommit(partial(following.follow_logs, cursors=tuple(cursors)))

    # -- commands --

    async def send_command(self, command: Command) -> None:
        """See the interface. Safe to repeat."""
        check_ids(
            command.command_id, command.principal, command.run_id, command.kind, command.sender
        )
        owner = await self._autocommit(partial(commands.send, command=command))
        if owner:
            await self._hint(owner, Notice(Topic.COMMANDS))

    async def find_commands(self, node: str) -> tuple[Command, ...]:
        """See the interface."""
        check_ids(node)
        return await self._autocommit(partial(commands.find, node=node))

    async def answer_commands(self, answers: Sequence[CommandAnswer]) -> None:
        """See the interface. Safe to repeat."""
        by_sender: defaultdict[str, list[str]] = defaultdict(list)
        for each in answers:
            check_ids(each.command.command_id, each.command.sender)
            by_sender[each.command.sender].append(each.command.command_id)
        if answers:
            await self._autocommit(partial(commands.answer, answers=tuple(answers)))
        for sender, command_ids in by_sender.items():
            if sender:
                await self._hint(sender, Notice(Topic.ANSWERED, tuple(command_ids)))

    async def find_answer(self, command_id: str) -> Mapping[str, Any] | None:
        """See the interface."""
        check_ids(command_id)
        return await self._autocommit(partial(commands.find_answer, command_id=command_id))

    # -- locks --

    async def lock_session(self, principal: str, session_id: str, node: str) -> bool:
        """See the interface. A call that fails or is cancelled may have locked the session: unlock it."""
        check_ids(principal, session_id, node)
        attempt = commands.LockAttempt(principal, session_id, node)
        try:
            return await self._autocommit(attempt, is_repeatable=False)
        finally:
            attempt.is_abandoned = True

    async def unlock_session(self, principal: str, session_id: str, node: str) -> None:
        """See the interface."""
        check_ids(principal, session_id, node)
        job = partial(
            commands.unlock_session, principal=principal, session_id=session_id, node=node
        )
        await self._autocommit(job)

    # -- slots for runs --

    async def take_run_slot(self, principal: str, slot: str, node: str, limit: int) -> bool:
        """See the interface. After a call that fails or is cancelled, give the slot back."""
        check_ids(principal, slot, node)
        attempt = run_slots.SlotAttempt(principal, slot, node, limit)
        try:
            return await self._autocommit(attempt)
        finally:
            attempt.is_abandoned = True

    async def give_back_run_slots(self, slots: Sequence[str]) -> None:
        """See the interface."""
        check_ids(*slots)
        await self._autocommit(partial(run_slots.give_back, slots=tuple(slots)))

    # -- notices --

    @property
    def can_listen(self) -> bool:
        """See the interface."""
        return self._listeners.can_listen

    async def notify(self, node: str, notices: Sequence[Notice]) -> None:
        """See the interface. Notices of one topic are merged; all are sent with one statement."""
        check_ids(node)
        payloads = listening.encode_notices(notices)
        if payloads and self.can_listen:
            await self._autocommit(
                partial(listening.send_payloads, node=node, payloads=tuple(payloads))
            )

    async def wait_notices(self, node: str, seconds: float) -> tuple[Notice, ...]:
        """See the interface. The first notice on every new connection has the topic ``reconnected``.

        One task may wait for each node. Notices that arrive while none waits are kept for the next.
        """
        check_ids(node)
        return await self._listeners.wait(node, seconds)

    async def _hint(self, node: str, notice: Notice) -> None:
        """Notify a node of what has been stored; it looks by itself if that fails."""
        with suppress(StoreError):
            await self.notify(node, [notice])

    # -- life --

    async def purge(self, retention: Retention, now: float) -> PurgeResult:
        """See the interface. Also removes old commands, and locks and slots that dead nodes left."""
        result = await super().purge(retention, now)
        await self._autocommit(commands.purge)
        await self._autocommit(run_slots.purge)
        return result

    async def _autocommit(
        self, job: Callable[[SqlConnection], T], *, is_repeatable: bool = True
    ) -> T:
        return await self._readers.run(
            partial(self._database.autocommit, job, is_repeatable=is_repeatable)
        )

    async def _close(self) -> None:
        self._listeners.stop()
        await super()._close()
        await self._listeners.close()
