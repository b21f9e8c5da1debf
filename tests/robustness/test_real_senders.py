"""Clients that read slowly or not at all, that send slowly, too early, too much or nonsense, or that only sit there."""

from __future__ import annotations

import math
import random
import socket
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import trio

from tests.robustness.real_abuse import BAD_BODIES, HOSTILE, hostile_h2
from tests.robustness.real_clients import AT_ONCE
from tests.robustness.real_connections import ClientRequest, Http1Connection, Target, request_bytes
from tests.robustness.real_footprint import Footprint, at_rest, faults_at_rest, memory
from tests.robustness.real_servers import chat, server_in
from tests.robustness.report import CaseCounter
from tests.robustness.violations import VIOLATIONS, Violation
from tests.support.server_process import ServerProcess

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("robustness-senders"),
    pytest.mark.timeout(1500),
]

HUGE = "tokens=10000000 size=200"
CHAT = "/v1/chat/completions"
HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
HEADER_SECONDS = 10.0  # of the server
BODY_SECONDS = 2.0
SLACK = 15.0  # for a busy machine; a leak lasts forever
# for two hundred, with a thread and 0.3 MB each; seen: 3 to 58, as much as is not there already
READERS_MEGABYTES = 75
IDLE, LORIS, READERS = 5_000, 1_000, 100


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    settings = {
        "body_seconds": BODY_SECONDS,
        "stall_seconds": 1,
        "write_seconds": 1,
        "max_runs": 500,
    }
    expected = "a stream was cut off|connection_fault|refused a key|refused a host"
    with server_in(tmp_path, "synthetic", expected, fault_sockets="quick", **settings) as running:
        chat(running, "tokens=3")
        yield running


async def resting(server: ServerProcess) -> Footprint:
    return await trio.to_thread.run_sync(at_rest, server)


async def check_rest(server: ServerProcess, before: Footprint) -> None:
    assert await trio.to_thread.run_sync(faults_at_rest, server, before, 2 * READERS) == []


@asynccontextmanager
async def watched(server: ServerProcess) -> AsyncIterator[None]:
    """A stream that must not notice what goes on beside it."""
    async with trio.open_nursery() as nursery:
        target = Target.of(server)
        line = Http1Connection(await trio.open_tcp_stream("127.0.0.1", target.port), target)
        body = {"stream": True, "messages": [{"role": "user", "content": "tokens=5000 rate=50"}]}
        await line.ask(ClientRequest("POST", CHAT, body))
        gaps: list[float] = []

        async def read() -> None:
            while True:
                begun = trio.current_time()
                await line.receive()
                gaps.append(trio.current_time() - begun)

        nursery.start_soon(read)
        yield
        assert line.status == 200
        assert len(gaps) > 3
        assert (
            max(gaps[1:]) < 5
        )  # it says something 50 times a second; the rest is a machine with other work
        nursery.cancel_scope.cancel()
        await trio.aclose_forcefully(line.stream)


async def until_closed(stream: trio.SocketStream, seconds: float = math.inf) -> bytes:
    """All that comes before the server closes, or before some time is over."""
    seen = b""
    with trio.move_on_after(seconds), suppress(trio.BrokenResourceError):
        while data := await stream.receive_some(65536):
            seen += data
    return seen


async def test_slow_and_stalled_readers(
    server: ServerProcess, full: bool, cases: CaseCounter
) -> None:
    """The stalled are given up in time, the slow are served, and neither costs memory."""
    before, count = await resting(server), READERS if full else 10
    kilobytes, target = memory(server), Target.of(server)

    async def read(is_slow: bool) -> None:
        sock = trio.socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        await sock.connect(("127.0.0.1", target.port))
        load = "tokens=300 size=100 rate=100" if is_slow else HUGE
        body = {"stream": True, "messages": [{"role": "user", "content": load}]}
        async with trio.SocketStream(sock) as stream:
            await stream.send_all(request_bytes(ClientRequest("POST", CHAT, body), target))
            if not is_slow:
                await given_up.wait()
                return
            seen = b""
            while b"[DONE]" not in seen:
                seen += await stream.receive_some(2000)
                await trio.sleep(0.01)

    given_up = trio.Event()
    async with watched(server), trio.open_nursery() as nursery:
        for _ in range(count):
            nursery.start_soon(read, True)
            nursery.start_soon(read, False)
        with trio.fail_after(60):
            while (await trio.to_thread.run_sync(server.health))["active_agents"] > 1:  # noqa: ASYNC110 - a process
                await trio.sleep(0.05)
        # Two hundred agents' threads with what they could not say; without back-pressure it would
        # be a gigabyte.
        grown = memory(server) - kilobytes
        assert grown < READERS_MEGABYTES * 1024
        given_up.set()
    await check_rest(server, before)
    cases.add("real clients", {"slow readers": count, "stalled readers": count})
    cases.add("memory", {f"kilobytes for {count} slow and {count} stalled readers": grown})


async def test_slow_senders(server: ServerProcess, full: bool, cases: CaseCounter) -> None:
    """Heads and bodies that come byte by byte are waited for so long and not longer."""
    before, count = await resting(server), LORIS if full else 10
    target, statuses = Target.of(server), list[bytes]()
    request = request_bytes(
        ClientRequest("POST", CHAT, {"messages": [{"role": "user", "content": "tokens=1"}]}), target
    )
    head, _, body = request.partition(b"\r\n\r\n")

    async def drip(stream: trio.SocketStream, data: bytes) -> None:
        for n in range(len(data)):
            await stream.send_all(data[n : n + 1])
            await trio.sleep(1)

    async def send(first: bytes, rest: bytes, limit: float) -> None:
        stream = await trio.open_tcp_stream("127.0.0.1", target.port)
        begun = trio.current_time()
        async with stream, trio.open_nursery() as nursery:
            await stream.send_all(first)
            nursery.start_soon(_quietly, drip, stream, rest)
            statuses.append((await until_closed(stream))[9:12])
            assert trio.current_time() - begun < limit + SLACK
            nursery.cancel_scope.cancel()

    async with watched(server), trio.open_nursery() as nursery:
        for n in range(count):
            if full or n % 2:
                nursery.start_soon(send, head + b"\r\n\r\n", body, BODY_SECONDS + HEADER_SECONDS)
            if full:
                nursery.start_soon(send, b"", head, HEADER_SECONDS)
    # 429: a slot is taken before the body comes, so that many slow ones are refused rather than
    # waited for.
    assert set(statuses) <= {b"408", b"429", b""}
    assert b"408" in statuses
    await check_rest(server, before)
    cases.add("real clients", {"slow senders": len(statuses)})


async def _quietly(send: object, *args: object) -> None:
    with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        await send(*args)  # type: ignore[operator]


async def test_pipelined_requests(server: ServerProcess, full: bool, cases: CaseCounter) -> None:
    """Answered in order; or the client leaves with some of them unanswered."""
    before, count, target = await resting(server), 500 if full else 20, Target.of(server)
    turn = request_bytes(
        ClientRequest("POST", CHAT, {"messages": [{"role": "user", "content": "tokens=2"}]}), target
    )

    async def send(dice: random.Random) -> None:
        async with await trio.open_tcp_stream("127.0.0.1", target.port) as stream:
            await stream.send_all(turn + HEALTH * 5 + turn)
            seen = b""
            if dice.random() < 0.5:
                await trio.sleep(dice.uniform(0, 0.2))
                return
            while seen.count(b"HTTP/1.1 200") < 7 or not seen.endswith(b"}"):
                data = await stream.receive_some(65536)
                assert data, seen
                seen += data
            assert seen.count(b"HTTP/1.1 ") == 7

    async with trio.open_nursery() as nursery:
        limit = trio.CapacityLimiter(AT_ONCE)

        async def one(n: int) -> None:
            async with limit:
                with trio.fail_after(60):
                    await send(random.Random(n))

        for n in range(count):
            nursery.start_soon(one, n)
    await check_rest(server, before)
    cases.add("real clients", {"pipelines of seven requests": count})


async def test_idle_connections(server: ServerProcess, full: bool, cases: CaseCounter) -> None:
    """Thousands of them harm nobody, and go when their time is over."""
    before, count = await resting(server), IDLE if full else 200
    async with watched(server):
        streams = [await trio.open_tcp_stream("127.0.0.1", server.port) for _ in range(count)]
        answer = await trio.to_thread.run_sync(chat, server, "tokens=3")
        assert len(answer.received.ends) == 1
        if full:
            with trio.fail_after(HEADER_SECONDS + 4 * SLACK):
                for stream in streams:
                    assert await until_closed(stream) == b""
        for stream in streams:
            await trio.aclose_forcefully(stream)
    await check_rest(server, before)
    cases.add("real clients", {"idle connections": count})


async def test_hostile_bytes(server: ServerProcess, full: bool, cases: CaseCounter) -> None:
    """Whatever comes: no 5xx, the stream beside it goes on, and nothing is left."""
    before, target, times = await resting(server), Target.of(server), 20 if full else 1
    statuses = Counter[bytes]()

    async def send(data: bytes) -> None:
        async with (
            await trio.open_tcp_stream("127.0.0.1", target.port) as stream,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(_quietly, stream.send_all, data)
            # What waits for more is right too; another test sees that end.
            status = (await until_closed(stream, 1.0))[9:12]
            VIOLATIONS.record(Violation.SERVER_ERROR, status.startswith(b"5") and status != b"501")
            statuses[status] += 1
            nursery.cancel_scope.cancel()

    bodies = [request_bytes(ClientRequest("POST", CHAT), target).replace(b"content-length: 0", b"content-length: %d" % len(body)) + body for body in BAD_BODIES]  # fmt: skip
    async with watched(server):
        for _ in range(times):
            async with trio.open_nursery() as nursery:
                for data in (*HOSTILE, *bodies):
                    nursery.start_soon(send, data)
            await hostile_h2(target.port)
    # 501 is what HTTP wants for a transfer coding that nobody knows.
    assert [status for status in statuses if status.startswith(b"5") and status != b"501"] == [], (
        statuses
    )
    assert statuses[b"400"] > len(bodies) / 2
    await check_rest(server, before)
    cases.add("real clients", {"hostile requests": times * (len(HOSTILE) + len(bodies) + 4)})
