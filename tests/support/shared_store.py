"""A store in memory that several nodes of one test share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import trio

from hermes_trio.core.records import (
    Command,
    CommandAnswer,
    LiveRun,
    LogCursor,
    LogProgress,
    Node,
    Notice,
    Ownership,
    RunHeader,
)
from hermes_trio.stores.base import StoreError
from hermes_trio.stores.sqlite import MemoryStore


class SharedMemoryStore(MemoryStore):
    """Notices arrive at once if ``can_listen``; otherwise never. ``broken`` methods fail."""

    lease_seconds = 8.0

    def __init__(self, can_listen: bool = True) -> None:
        super().__init__()
        self.can_listen = can_listen
        self.owners: dict[str, str] = {}  # by run id: the node that executes it
        self.dead: set[str] = set()
        self.commands: list[Command] = []
        self.answers: dict[str, Mapping[str, Any]] = {}
        self.locks: dict[tuple[str, str], str] = {}
        self.run_slots: dict[str, tuple[str, str]] = {}  # by name: principal and node
        self.notices: dict[str, list[Notice]] = {}
        self.broken: set[str] = set()
        self.queries = 0  # of logs
        self.begin_gate: trio.Event | None = None  # before a run can begin
        self._arrived = trio.Event()

    async def begin_run(self, header: RunHeader, ownership: Ownership) -> None:
        """Store a run, and note its node."""
        if self.begin_gate is not None:
            await self.begin_gate.wait()
        await super().begin_run(header, ownership)
        self.owners.setdefault(header.run_id, ownership.node)

    async def join(self, node: str, address: str) -> None:
        """Add a node."""
        await self._pass("join")

    async def renew_lease(self, node: str) -> bool:
        """Renew a lease."""
        await self._pass("renew_lease")
        return node not in self.dead

    async def leave(self, node: str) -> None:
        """Remove a node."""
        await self._pass("leave")
        self.dead.add(node)

    async def list_nodes(self) -> tuple[Node, ...]:
        """Return no nodes."""
        await self._pass("list_nodes")
        return ()

    async def find_owner(self, principal: str, run_id: str) -> str:
        """Return the node that was noted for a live run."""
        await self._pass("find_owner")
        found = await self.find_run(principal, run_id)
        return self.owners.get(run_id, "") if isinstance(found, LiveRun) else ""

    async def follow_logs(self, cursors: Sequence[LogCursor]) -> tuple[LogProgress, ...]:
        """Read logs."""
        await self._pass("follow_logs")
        self.queries += 1
        found = []
        for cursor in cursors:
            live = isinstance(await self.find_run(cursor.principal, cursor.run_id), LiveRun)
            batches = await self.read_log(cursor.principal, cursor.run_id, cursor.first)
            end = batches[-1].first + batches[-1].count if batches else cursor.first
            more = bool(await self.read_log(cursor.principal, cursor.run_id, end))
            found.append(LogProgress(cursor, batches, live or more, more))
        return tuple(found)

    async def send_command(self, command: Command) -> None:
        """Keep a command and notify the owner of its run."""
        await self._pass("send_command")
        self.commands.append(command)
        await self.notify(self.owners.get(command.run_id, ""), [Notice("commands")])

    async def find_commands(self, node: str) -> tuple[Command, ...]:
        """Return the commands of a node's runs that have no answer."""
        await self._pass("find_commands")
        return tuple(
            each
            for each in self.commands
            if self.owners.get(each.run_id) == node and each.command_id not in self.answers
        )

    async def answer_commands(self, answers: Sequence[CommandAnswer]) -> None:
        """Keep answers and notify the senders of the commands."""
        await self._pass("answer_commands")
        for each in answers:
            command = each.command
            self.answers.setdefault(command.command_id, each.answer)
            await self.notify(command.sender, [Notice("answered", (command.command_id,))])

    async def find_answer(self, command_id: str) -> Mapping[str, Any] | None:
        """Return an answer."""
        await self._pass("find_answer")
        return self.answers.get(command_id)

    async def lock_session(self, principal: str, session_id: str, node: str) -> bool:
        """Lock a session."""
        await self._pass("lock_session")
        holder = self.locks.get((principal, session_id))
        if holder is not None and holder not in self.dead:
            return False
        self.locks[principal, session_id] = node
        return True

    async def unlock_session(self, principal: str, session_id: str, node: str) -> None:
        """Unlock a session."""
        await self._pass("unlock_session")
        if self.locks.get((principal, session_id)) == node:
            del self.locks[principal, session_id]

    async def take_run_slot(self, principal: str, slot: str, node: str, limit: int) -> bool:
        """Take a slot."""
        await self._pass("take_run_slot")
        held = [
            name
            for name, (owner, holder) in self.run_slots.items()
            if owner == principal and holder not in self.dead
        ]
        if len(held) >= limit:
            return False
        self.run_slots[slot] = (principal, node)
        return True

    async def give_back_run_slots(self, slots: Sequence[str]) -> None:
        """Give slots back."""
        await self._pass("give_back_run_slots")
        for slot in slots:
            self.run_slots.pop(slot, None)

    async def notify(self, node: str, notices: Sequence[Notice]) -> None:
        """Pass notices on, or lose them."""
        await self._pass("notify")
        if self.can_listen:
            self.notices.setdefault(node, []).extend(notices)
            self._arrived.set()
            self._arrived = trio.Event()

    async def wait_notices(self, node: str, seconds: float) -> tuple[Notice, ...]:
        """Wait for notices."""
        await self._pass("wait_notices")
        with trio.move_on_after(seconds):
            while not self.notices.get(node):
                await self._arrived.wait()
        return tuple(self.notices.pop(node, ()))

    async def _pass(self, method: str) -> None:
        await trio.lowlevel.checkpoint()
        if method in self.broken:
            raise StoreError(f"{method} fails")
