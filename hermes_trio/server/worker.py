"""Serving an application: the sibling of Hypercorn's ``worker_serve``, made of guarded connections.

Three nurseries, one inside the other, so that each part outlives what needs it: the application's lifespan outlives
the connections, and the connections outlive the listeners.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import trio
from attrs import frozen
from hypercorn.config import Config
from hypercorn.trio.lifespan import Lifespan
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import (
    AppWrapper,
    ASGIReceiveCallable,
    ASGISendCallable,
    Framework,
    LifespanState,
    Scope,
)
from hypercorn.utils import repr_socket_addr

from hermes_trio.server.accepting import Doors, Stream
from hermes_trio.server.connection import GuardedTCPServer
from hermes_trio.server.keeping import Guards
from hermes_trio.server.sockets import close_all

Trigger = Callable[[], Awaitable[object]]
Started = trio.TaskStatus[list[str]]


async def serve(
    app: Framework,
    sockets: Sequence[socket.socket],
    config: Config,
    shutdown_trigger: Trigger,
    guards: Guards | None = None,
    task_status: Started = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until the trigger returns, then let the connections finish within ``config.graceful_timeout``.

    The sockets are listening already and are closed at the end. ``task_status`` gets the addresses as URLs.
    """
    wrapped = Application(app)
    state: LifespanState = {}
    lifespan = Lifespan(wrapped, config, state)
    with _closing(sockets):
        doors = Doors(sockets, config.create_ssl_context())
        async with trio.open_nursery() as nursery:
            await nursery.start(lifespan.handle_lifespan)
            await lifespan.wait_for_startup()
            server = _Server(wrapped, config, guards or Guards(), state)
            urls = _urls(sockets, config)
            await server.run(doors, shutdown_trigger, lambda: task_status.started(urls))
            await lifespan.wait_for_shutdown()
            nursery.cancel_scope.cancel()


@frozen
class Application:
    """An ASGI application as Hypercorn calls it: as its own wrapper is, without a coroutine around each answer."""

    app: Any

    def __call__(
        self,
        scope: Scope,
        receive: ASGIReceiveCallable,
        send: ASGISendCallable,
        sync_spawn: object,  # noqa: ARG002 - for those that are not ASGI, as is the next
        call_soon: object,  # noqa: ARG002
    ) -> Coroutine[Any, Any, None]:
        """Let it answer."""
        answer: Coroutine[Any, Any, None] = self.app(scope, receive, send)
        return answer


@frozen
class _Server:
    app: AppWrapper
    config: Config
    guards: Guards
    state: LifespanState

    async def run(self, doors: Doors, trigger: Trigger, started: Callable[[], None]) -> None:
        """Let connections in until the trigger returns, and serve them to their end."""
        context = WorkerContext(None)
        async with trio.open_nursery() as connections:
            async with doors.open(partial(self._enter, connections, context)):
                started()
                await trigger()
            await context.terminated.set()
            self._give_notice(connections.cancel_scope)

    def _enter(self, nursery: trio.Nursery, context: WorkerContext, stream: Stream) -> None:
        connection = GuardedTCPServer(self.guards, self.app, self.config, context, self.state.copy(), stream)
        nursery.start_soon(connection.run)

    def _give_notice(self, connections: trio.CancelScope) -> None:
        """All connections, those that ignore cancellation in a write included, end when the grace is over."""
        connections.deadline = trio.current_time() + self.config.graceful_timeout
        self.guards.connections.limit_writes(connections.deadline)


@contextmanager
def _closing(sockets: Sequence[socket.socket]) -> Iterator[None]:
    try:
        yield
    finally:
        close_all(sockets)


def _urls(sockets: Sequence[socket.socket], config: Config) -> list[str]:
    scheme = "https" if config.ssl_enabled else "http"
    return [f"{scheme}://{repr_socket_addr(sock.family, sock.getsockname())}" for sock in sockets]
