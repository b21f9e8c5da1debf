"""A server in this process, on a loopback port, for the length of a block; started in one of two ways."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import hypercorn.trio
import trio
from attrs import define, field
from hypercorn.config import Config

from hermes_trio.server.config import ServerConfig, hypercorn_config
from hermes_trio.server.guards import Guards, installed
from hermes_trio.server.main import serve_sockets
from hermes_trio.server.sockets import open_listening_sockets

SECONDS = 20  # less than the sixty of the timers that some tests must not wait for
"""No test waits longer than this for anything."""


@define
class RunningServer:
    """A running server."""

    port: int
    guards: Guards
    stop: trio.Event = field(factory=trio.Event)
    stopped: trio.Event = field(factory=trio.Event)


Way = Callable[..., Any]


@asynccontextmanager
async def serving(
    app: Any, config: ServerConfig | None = None, write_seconds: float = 2.0
) -> AsyncIterator[RunningServer]:
    """Run ``serve_sockets`` for the length of the block, with a time limit."""
    config = config or hypercorn_config(graceful_seconds=0.05)
    sockets = open_listening_sockets("127.0.0.1", 0)
    live = RunningServer(sockets[0].getsockname()[1], Guards(write_seconds))
    with trio.fail_after(SECONDS):
        async with trio.open_nursery() as nursery:
            run = partial(serve_sockets, app, sockets, config, live.stop.wait, live.guards)
            await nursery.start(partial(_run, run, live))
            yield live
            live.stop.set()


@asynccontextmanager
async def hypercorn_serving(
    app: Any, config: Config | None = None, write_seconds: float = 2.0
) -> AsyncIterator[RunningServer]:
    """Run Hypercorn's ``serve`` with its own sockets and the guards, as its command line does."""
    config = config or Config.from_mapping(graceful_timeout=0.05, errorlog=None)
    config.bind = ["127.0.0.1:0"]
    live = RunningServer(0, Guards(write_seconds))
    with installed(live.guards), trio.fail_after(SECONDS):
        async with trio.open_nursery() as nursery:
            run = partial(hypercorn.trio.serve, app, config, shutdown_trigger=live.stop.wait)
            urls = await nursery.start(partial(_run, run, live))
            live.port = int(urls[0].rpartition(":")[2])
            yield live
            live.stop.set()


async def _run(run: Way, live: RunningServer, task_status: trio.TaskStatus[list[str]]) -> None:
    try:
        await run(task_status=task_status)
    finally:
        live.stopped.set()
