"""Large request bodies, many at once: what they took is returned when they are gone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from tests.robustness.real_connections import (
    ClientRequest,
    Http1Connection,
    Target,
    request_bytes,
)
from tests.robustness.real_footprint import at_rest, memory, peak_memory
from tests.robustness.real_servers import chat, server_in
from tests.robustness.report import CaseCounter
from tests.support.server_process import ServerProcess

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("robustness-memory"),
    pytest.mark.timeout(600),
]

CHAT = "/v1/chat/completions"
BODY_BYTES = 9_000_000
# Seen: 1 to 15. Without returning it: 62 after 12 bodies, 370 after 120.
LEFT_MEGABYTES = 40


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with server_in(tmp_path, "synthetic", body_seconds=120) as running:
        for _ in range(3):
            chat(running, "tokens=3")
        yield running


async def send_bodies(server: ServerProcess, count: int, at_once: int) -> list[int]:
    """Send so many large bodies, and return the statuses."""
    target, statuses = Target.of(server), list[int]()
    texts = ("x" * BODY_BYTES, "I see.", "tokens=3")
    roles = ("user", "assistant", "user")
    body = {"messages": [{"role": r, "content": t} for r, t in zip(roles, texts, strict=True)]}
    request = request_bytes(ClientRequest("POST", CHAT, body), target)
    limit = trio.CapacityLimiter(at_once)

    async def send() -> None:
        async with limit, await trio.open_tcp_stream("127.0.0.1", target.port) as stream:
            line = Http1Connection(stream, target)
            await stream.send_all(request)
            while not line.is_whole:
                await line.receive()
            statuses.append(line.status)

    async with trio.open_nursery() as nursery:
        for _ in range(count):
            nursery.start_soon(send)
    return statuses


async def test_the_memory_of_large_bodies_is_returned(
    server: ServerProcess, full: bool, cases: CaseCounter
) -> None:
    count, at_once = (120, 40) if full else (12, 12)
    before = memory(server)
    assert await send_bodies(server, count, at_once) == [200] * count
    await trio.to_thread.run_sync(at_rest, server)
    left = memory(server) - before
    assert left < LEFT_MEGABYTES * 1024
    peak = peak_memory(server) - before
    cases.add("memory", {f"kilobytes left by {count} bodies of 9 MB, {at_once} at once": left})
    cases.add("memory", {f"kilobytes at the peak of {count} bodies of 9 MB": peak})
