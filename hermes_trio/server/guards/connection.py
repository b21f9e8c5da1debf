"""The handler of a connection, in place of Hypercorn's.

Whatever a client sends ends at most its own connection.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import structlog
import trio
from hypercorn.config import Config
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import AppWrapper

from hermes_trio.server.guards.middleware import GuardedApp
from hermes_trio.server.guards.stream import GONE, GuardedStream, Transport, guard_stream
from hermes_trio.server.sockets import ensure_options

log = structlog.get_logger(__name__)

OnFault = Callable[[BaseException], None]


class Guards:
    """Shared state of the guarded connections of one server.

    Attributes:
        connections: The connections that are open now.
        faults: How many exceptions were caught at the edge of a connection.

    Args:
        write_seconds: How long a client may take to accept 64 KiB.
        on_fault: Called with each exception that is caught; what it raises is ignored.
    """

    def __init__(self, write_seconds: float = 30.0, on_fault: OnFault | None = None) -> None:
        self.connections: set[GuardedStream] = set()
        self.faults = 0
        self.on_fault = on_fault
        self._write_seconds = write_seconds
        self._write_limit = math.inf
        self._context: WorkerContext | None = None
        self._has_context = trio.Event()
        self._graceful_seconds = 0.0

    def write_deadline(self) -> float:
        """Return when a write that begins now must have ended."""
        return min(trio.current_time() + self._write_seconds, self._write_limit)

    def limit_writes(self, deadline: float) -> None:
        """Let every write, running or to come, end by `deadline`, so that no stalled reader holds up a shutdown."""
        self._write_limit = min(self._write_limit, deadline)
        for connection in self.connections:
            connection.limit_write(deadline)

    async def wait_terminated(self) -> float:
        """Return when Hypercorn begins to terminate: the seconds until it cancels the connections.

        Hypercorn has no public hook for this. Its context is known from the first connection on;
        before that there is nothing to end.
        """
        await self._has_context.wait()
        assert self._context is not None
        await self._context.terminated.wait()
        return self._graceful_seconds

    def connection_opened(
        self, connection: GuardedStream, context: WorkerContext, config: Config
    ) -> None:
        """Take note of a connection and, through it, of Hypercorn's context."""
        self.connections.add(connection)
        self._context, self._graceful_seconds = context, config.graceful_timeout
        self._has_context.set()

    def record_fault(self, error: BaseException) -> None:
        """Log and count each exception in a group.

        Does not raise, also if the log or `on_fault` does.
        """
        for leaf in _leaves(error):
            self.faults += 1
            with suppress(Exception):
                log.warning("connection_fault", error=repr(leaf)[:200], at=_location(leaf))
            with suppress(Exception):
                if self.on_fault is not None:
                    self.on_fault(leaf)


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


def _location(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__, limit=-1)
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "unknown"


class WriteLock:
    """The lock around Hypercorn's writes, acquired in spite of cancellation.

    See `_GuardedExchange.send` for the defect.

    Waiting for it is bounded because every write has a deadline.
    """

    def __init__(self) -> None:
        self._lock = trio.Lock()

    async def __aenter__(self) -> None:
        try:
            self._lock.acquire_nowait()
        except trio.WouldBlock:
            with trio.CancelScope(shield=True):
                await self._lock.acquire()

    async def __aexit__(self, *_: object) -> None:
        self._lock.release()


class GuardedTCPServer(TCPServer):
    """Hypercorn's connection handler with a `WriteLock`."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.send_lock = WriteLock()  # type: ignore[assignment]  # used as a context manager only

    async def run(self) -> None:
        """Serve the connection to its end, then break the reference cycle between server and protocol.

        The collector runs rarely in this process (`tuning.py`); memory that waits for it looks like
        a leak.
        """
        try:
            await super().run()
        finally:
            with suppress(AttributeError):  # the TLS handshake failed
                del self.protocol


async def handle_connection(
    guards: Guards,
    app: AppWrapper,
    config: Config,
    context: WorkerContext,
    state: Any,
    stream: Transport,
) -> None:
    """Serve one connection to its end.

    Only cancellation, an interrupt or an exit leaves this function.

    Defect: An exception in a connection reaches the nursery of the server and ends the process with
    every stream in it. Six packets that do so are in `tests/support/fatal_packets.py` (hypercorn
    #225, #329, cf. #177, #228). Delete when: Hypercorn's handler catches exceptions as
    `trio.serve_listeners` asks its handlers to.
    """
    guarded: GuardedStream | None = None
    try:
        async with trio.open_nursery() as nursery:
            guarded = guard_stream(stream, nursery.cancel_scope, guards.write_deadline)
            guards.connection_opened(guarded, context, config)
            with suppress(OSError):  # reset before we looked at it
                ensure_options(guarded.socket)
            guarded_app = GuardedApp(app, guarded, nursery)
            await GuardedTCPServer(guarded_app, config, context, state, guarded).run()
            nursery.cancel_scope.cancel()
    except* GONE:
        pass
    except* (Exception, GeneratorExit) as group:  # noqa: BLE001 - nothing that a client sends may go further
        guards.record_fault(group)
    finally:
        if guarded is not None:
            guards.connections.discard(guarded)
            await guarded.finish()  # noqa: ASYNC102 - bounded, and closes in spite of cancellation
