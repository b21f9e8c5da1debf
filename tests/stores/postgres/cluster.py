"""Helpers for tests of what nodes do through a shared database."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import trio

from hermes_trio.core.records import Command, LogCursor, Notice, Ownership
from hermes_trio.stores.base import Store
from hermes_trio.stores.postgres import PostgresOptions, PostgresStore, open_postgres
from hermes_trio.stores.postgres.listening import RECONNECTED
from tests.stores.samples import header
from tests.support.postgres import PostgresServer

LEASE_SECONDS = 8.0
SOCKET = ".s.PGSQL.5432"


@asynccontextmanager
async def open_two(
    url: str, other_url: str = ""
) -> AsyncIterator[tuple[PostgresStore, PostgresStore]]:
    """Open two stores on one database."""
    options = PostgresOptions(lease_seconds=LEASE_SECONDS)
    async with (
        open_postgres(url, options) as first,
        open_postgres(other_url or url, options) as second,
    ):
        yield first, second


async def begin(store: Store, run_id: str, node: str = "n1") -> None:
    """Begin a run on a node."""
    await store.begin_run(header(run_id), Ownership(node))


def command(command_id: str, run_id: str = "r", sender: str = "") -> Command:
    """Return a command for a run."""
    return Command(command_id, "ann", run_id, "stop", {"text": "\ud800 \0"}, sender)


def cursor(run_id: str, first: int = 0, principal: str = "ann") -> LogCursor:
    """Return a position in the log of a run."""
    return LogCursor(principal, run_id, first)


def add_node(server: PostgresServer, url: str, node: str, silent_seconds: float = 0.0) -> None:
    """Add a node that renewed its lease some time ago, or let it be silent for that time."""
    server.execute(
        f"INSERT INTO nodes (node, epoch, address, heartbeat_at)"
        f" VALUES ('{node}', 0, '', clock_timestamp() - interval '{silent_seconds} s')"
        " ON CONFLICT (node) DO UPDATE SET heartbeat_at = excluded.heartbeat_at",
        url,
    )


def listening_processes(server: PostgresServer) -> list[int]:
    """Return the server's processes whose connection waits for notices."""
    rows = server.execute("SELECT pid FROM pg_stat_activity WHERE query LIKE 'LISTEN %'")
    return [int(str(pid)) for (pid,) in rows]


def cut_listeners(server: PostgresServer) -> None:
    """Cut the connections that wait for notices, and return when they are gone."""
    server.execute(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE query LIKE 'LISTEN %'"
    )


def end_idle_connections(server: PostgresServer) -> None:
    """Cut every idle connection, and return when they are gone."""
    server.execute(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
        " WHERE state = 'idle' AND pid <> pg_backend_pid()"
    )


class Proxy:
    """A proxy before a server, which can lose a connection while a statement waits for its reply."""

    def __init__(self, server: PostgresServer, place: Path) -> None:
        self._server = server
        self._place = place
        self._is_cutting = False
        self.cuts = 0

    def url(self, url: str) -> str:
        """Return the URL of a database through the proxy."""
        return f"{url.partition('?')[0]}?host={self._place}"

    def cut_next_reply(self) -> None:
        """Lose the next connection on which the server replies, with the reply."""
        self._is_cutting = True

    async def serve(self, client: trio.SocketStream) -> None:
        """Forward what both sides send."""
        upstream = await trio.open_unix_socket(self._server.directory / SOCKET)
        async with client, upstream, trio.open_nursery() as nursery:
            nursery.start_soon(self._forward_requests, client, upstream)
            async for data in upstream:
                if self._is_cutting:
                    self._is_cutting = False
                    self.cuts += 1
                    break
                await client.send_all(data)
            nursery.cancel_scope.cancel()

    async def _forward_requests(
        self, client: trio.SocketStream, upstream: trio.SocketStream
    ) -> None:
        async for data in client:
            await upstream.send_all(data)
        await upstream.send_eof()


@asynccontextmanager
async def serve_proxy(server: PostgresServer) -> AsyncIterator[Proxy]:
    """Run a proxy before a server."""
    with TemporaryDirectory(prefix="proxy-") as folder:
        proxy = Proxy(server, Path(folder))
        listening = trio.socket.socket(trio.socket.AF_UNIX)
        await listening.bind(f"{folder}/{SOCKET}")
        listening.listen()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, proxy.serve, [trio.SocketListener(listening)])
            yield proxy
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def receive(
    store: PostgresStore, node: str
) -> AsyncIterator[trio.MemoryReceiveChannel[tuple[Notice, ...]]]:
    """Receive what arrives for a node, once it listens."""
    send, received = trio.open_memory_channel[tuple[Notice, ...]](100)

    async def wait() -> None:
        while True:
            await send.send(await store.wait_notices(node, 60))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        with trio.fail_after(10):
            assert await received.receive() == (RECONNECTED,)
            yield received
        nursery.cancel_scope.cancel()
