"""A request leaves no reference cycles of ours behind.

The garbage collector runs seldom, so memory that waits for it looks like a leak.
"""

from __future__ import annotations

import gc
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from hermes_trio.core.events import Event, Text, ToolCompleted, ToolStarted
from hermes_trio.server.guards.stream import GuardedStream
from tests.support.fakes import (
    CHAT,
    KEY,
    AppHarness,
    Pause,
    RecordingRegistry,
    ScriptedAgentFactory,
    bearer,
    open_harness,
)
from tests.support.in_process_server import serving
from tests.support.raw_http import connect, read_to_end, read_until

RESPONSES = "/v1/responses"
SCRIPT: list[Event] = [
    Text("Hi"),
    ToolStarted("c1", "tool", {}),
    ToolCompleted("c1", "done"),
    Text(" there"),
]


@contextmanager
def saved_garbage() -> Iterator[Counter[str]]:
    """What the collector finds of ours at the end of a block."""
    found: Counter[str] = Counter()
    gc.collect()
    gc.disable()
    try:
        yield found
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        found.update(type(thing).__qualname__ for thing in gc.garbage if _is_ours(thing))
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def _is_ours(thing: object) -> bool:
    return type(thing).__module__.startswith(("hermes_trio", "hypercorn", "h11"))


def request(path: str, stream: bool) -> bytes:
    words = {"messages": [{"role": "user", "content": "Go"}]} if path == CHAT else {"input": "Go"}
    body = json.dumps({**words, "stream": stream}).encode()
    headers = {
        **bearer(KEY),
        "Host": "localhost",
        "Connection": "close",
        "Content-Length": str(len(body)),
    }
    lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode() + body


@pytest.mark.parametrize("path", [CHAT, RESPONSES])
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("is_async", [True, False])
async def test_a_turn_that_ends(path: str, stream: bool, is_async: bool) -> None:
    async with (
        open_harness(ScriptedAgentFactory(SCRIPT, is_async=is_async)) as harness,
        serving(harness.client.app) as live,
    ):
        with saved_garbage() as found:
            for _ in range(3):
                async with await connect(live.port) as client:
                    await client.send_all(request(path, stream))
                    assert b"there" in await read_to_end(client)
            await _until_left(harness, live.guards.connections)
        assert found == {}


@pytest.mark.parametrize("path", [CHAT, RESPONSES])
async def test_a_client_that_leaves(path: str) -> None:
    pause = Pause()
    async with (
        open_harness(ScriptedAgentFactory([Text("Hi"), pause], is_async=True)) as harness,
        serving(harness.client.app) as live,
    ):
        with saved_garbage() as found:
            async with await connect(live.port) as client:
                await client.send_all(request(path, True))
                await read_until(client, b"Hi")
            pause.go()
            await _until_left(harness, live.guards.connections)
        assert found == {}


async def _until_closed(connections: set[GuardedStream]) -> None:
    with trio.fail_after(5):
        while len(connections):
            await wait_all_tasks_blocked(0.001)
    await wait_all_tasks_blocked()


async def _until_left(harness: AppHarness, connections: set[GuardedStream]) -> None:
    registry = harness.state.services.registry
    assert isinstance(registry, RecordingRegistry)
    with trio.fail_after(5):
        await registry.wait_empty()
    await _until_closed(connections)
    registry.runs.clear()
