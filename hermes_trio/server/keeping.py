"""What the connections of one server share."""

from __future__ import annotations

import math
from typing import Protocol

import trio
from attrs import frozen
from hypercorn.trio.worker_context import EventWrapper

from hermes_trio.pulse import Pulse
from hermes_trio.server.faults import Faults, OnFault
from hermes_trio.server.lookout import Lookout


class Closable(Protocol):
    """A connection, as far as others have to do with it."""

    def close_if_idle(self) -> None:
        """End it if it waits for a request."""
        ...

    def limit_write(self, deadline: float) -> None:
        """Let a write that is under way end by a point in time."""
        ...


class Connections:
    """The connections that are open now; health checks and leak tests read its length."""

    def __init__(self) -> None:
        self._open: set[Closable] = set()
        self.write_limit = math.inf

    def __len__(self) -> int:
        return len(self._open)

    def add(self, connection: Closable) -> None:
        """One is open."""
        self._open.add(connection)

    def discard(self, connection: Closable) -> None:
        """One is closed."""
        self._open.discard(connection)

    def close_idle(self) -> None:
        """End the connections that wait for a request."""
        for connection in list(self._open):
            connection.close_if_idle()

    def limit_writes(self, deadline: float) -> None:
        """Let no write, running or to come, outlast a point in time: a stalled reader cannot hold a shutdown."""
        self.write_limit = deadline
        for connection in self._open:
            connection.limit_write(deadline)


@frozen
class Keepers:
    """Of all connections of one server: each of them one task for all."""

    lookout: Lookout  # for clients that leave
    idle: Pulse  # for clients that ask for nothing
    clock: trio.abc.Clock  # which is quicker to ask than to find


class Guards:
    """What the connections of a server share: the write deadline, the register and the account of faults."""

    def __init__(self, write_seconds: float = 30.0, on_fault: OnFault | None = None) -> None:
        self.write_seconds = write_seconds
        self.faults = Faults(on_fault)
        self.connections = Connections()
        self._terminated: EventWrapper | None = None
        self._keepers: Keepers

    def begin(self, terminated: EventWrapper, idle_seconds: float) -> Keepers:
        """A connection begins: who looks after it. The first one of a server brings them along."""
        if self._terminated is not terminated:
            self._terminated = terminated
            self._keepers = Keepers(Lookout(self.faults), Pulse(idle_seconds), trio.lowlevel.current_clock())
            trio.lowlevel.spawn_system_task(self._keepers.lookout.run)
            trio.lowlevel.spawn_system_task(self._keep, terminated, self._keepers)
        return self._keepers

    async def _keep(self, terminated: EventWrapper, keepers: Keepers) -> None:
        """End connections that have been idle for too long, and the others that are idle when the server is to end."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keepers.idle.run)
            await terminated.wait()
            nursery.cancel_scope.cancel()
        self.connections.close_idle()
        keepers.lookout.retire()

    def write_deadline(self) -> float:
        """When a write that begins now must be through."""
        return min(trio.current_time() + self.write_seconds, self.connections.write_limit)
