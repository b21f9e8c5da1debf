"""A full server that is stopped, a burst, closed HTTP/2 windows, a disk that hangs, and a connection cut at every byte."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest
import trio

from tests.e2e.conftest import AGENTS
from tests.robustness.real_connections import (
    ClientRequest,
    ConnectionEnded,
    Http1Connection,
    Http2Connection,
    Target,
    request_bytes,
)
from tests.robustness.real_footprint import at_rest, faults_at_rest, faults_of_all, memory
from tests.robustness.real_proxy import proxied
from tests.robustness.real_servers import being_there, chat, server_in
from tests.robustness.real_turns import start_turns
from tests.robustness.report import CaseCounter
from tests.robustness.streams import Dialect, ReceivedStream, read_stream
from tests.robustness.violations import VIOLATIONS, Violation
from tests.support.server_process import ServerProcess, eventually
from tests.support.socket_client import chat_bytes, open_chat_stream, open_connection
from tests.support.stored_records import unfinished

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("robustness-floor"),
    pytest.mark.timeout(600),
]

HUGE = "tokens=10000000 size=200"
RESPONSES = "/v1/responses"
STALLED, IDLE = 20, 20
EXIT_SECONDS = 15.0  # three for the last words, a second of grace, and a machine with other work
SHUT, SHUT_MEGABYTES = 100, 80  # seen: 45, the full window of each in its record included
WINDOW = 65_535  # what a client of HTTP/2 takes if it says nothing
BURST, SLOTS = 1_000, 200
AT_ONCE = 20
STALL_SECONDS = 3.0


def test_a_full_server_is_stopped(tmp_path: Path, cases: CaseCounter) -> None:
    """Many who do not read, many who say nothing, and a tool that does not listen hold nothing up."""
    settings = {"drain_seconds": 0.2, "interrupt_grace_seconds": 0.5}
    expected = "a stream was cut off|did not stop and was abandoned"
    with server_in(tmp_path, AGENTS, expected, **settings) as server, ExitStack() as clients:
        for number in range(STALLED):
            talk = clients.enter_context(open_connection(server, receive_buffer=4096))
            talk.send(chat_bytes(server, f"stalled-{number}", HUGE))
            talk.until(b"t000001")
        for _ in range(IDLE):
            clients.enter_context(open_connection(server))
        deaf = clients.enter_context(open_chat_stream(server, "deaf", "!deaf 60"))
        deaf.until("ready")
        begun = server.signal()
        assert deaf.last_chunk()["hermes"]["error_code"] == "server_shutdown"
        assert server.wait() == 0
        assert time.monotonic() - begun < EXIT_SECONDS
        assert unfinished(server) == 0
    cases.add(
        "process faults",
        {"SIGTERM with 20 stalled, 20 idle clients and an agent that ignores interrupts": 1},
    )


async def test_windows_that_stay_shut(tmp_path: Path, full: bool, cases: CaseCounter) -> None:
    """Over HTTP/2 the client says how much it takes.

    Who takes nothing costs no more than the beginning of its stream.
    """
    count = SHUT if full else 10
    with server_in(
        tmp_path, "synthetic", "a stream was cut off", stall_seconds=20, max_runs=500
    ) as server:
        before = await trio.to_thread.run_sync(at_rest, server)
        kilobytes, target = memory(server), Target.of(server)
        async with trio.open_nursery() as nursery:
            for _ in range(count):
                line = Http2Connection(await trio.open_tcp_stream("127.0.0.1", target.port), target)
                line.client.grant = False
                await line.ask(ClientRequest("POST", RESPONSES, {"stream": True, "input": HUGE}))
                await nursery.start(_take_in, line)
            # A second of somebody else's. Without back-pressure each of them would take ten
            # megabytes in it.
            other = await trio.to_thread.run_sync(chat, server, "tokens=50 rate=50")
            assert len(other.received.ends) == 1
            grown = memory(server) - kilobytes
            assert grown < SHUT_MEGABYTES * 1024
            nursery.cancel_scope.cancel()
        assert await trio.to_thread.run_sync(faults_at_rest, server, before, 2 * count) == []
    cases.add("real clients", {"closed HTTP/2 windows": count})
    cases.add("memory", {f"kilobytes for {count} closed HTTP/2 windows": grown})


async def _take_in(
    line: Http2Connection, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Started when the window is full."""
    async with line.stream:
        while len(line.body) < WINDOW:
            await line.receive()
        task_status.started()
        while True:
            await line.receive()


async def test_a_burst(tmp_path: Path, full: bool, cases: CaseCounter) -> None:
    """Far more at once than there are slots.

    Each is served to its end or refused with a time to come back.
    """
    count = BURST if full else 60
    slots = SLOTS if full else 20
    with server_in(tmp_path, "synthetic", max_runs=slots) as server:
        before = await trio.to_thread.run_sync(at_rest, server)
        target, lines = Target.of(server), list[Http1Connection]()

        async def ask() -> None:
            line = Http1Connection(await trio.open_tcp_stream("127.0.0.1", target.port), target)
            lines.append(line)
            async with line.stream:
                await line.ask(
                    ClientRequest("POST", RESPONSES, {"stream": True, "input": "tokens=50 rate=50"})
                )
                while not line.is_whole:
                    await line.receive()

        async with trio.open_nursery() as nursery:
            for _ in range(count):
                nursery.start_soon(ask)
        served = [read_stream(Dialect.RESPONSES, line.body) for line in lines if line.status == 200]
        refused = [line for line in lines if line.status != 200]
        VIOLATIONS.record(
            Violation.SERVER_ERROR, sum(line.status >= 500 for line in lines), len(lines)
        )
        assert len(served) >= slots
        assert all(len(received.ends) == 1 for received in served)
        assert {line.status for line in refused} <= {429}
        assert all(b"retry-after" in line.raw.lower() for line in refused)
        assert await trio.to_thread.run_sync(faults_of_all, server, served) == []
        assert await trio.to_thread.run_sync(faults_at_rest, server, before, slots + 20) == []
    cases.add(
        "real clients",
        {"requests of a burst, served": len(served), "requests of a burst, refused": len(refused)},
    )


def test_a_disk_that_hangs(tmp_path: Path, cases: CaseCounter) -> None:
    """Nobody else waits for it.

    Streams go on, the server answers; only ends wait, and then they are told and stored.
    """
    switch = tmp_path / "hangs"
    with server_in(tmp_path, "synthetic", fault_stall=switch) as server:
        before = at_rest(server)
        with start_turns(server, ["tokens=100 rate=50 tools=1"] * 8) as crowd:
            eventually(crowd.have_begun)
            with being_there(switch):
                slowest = max(_answered_in(server, STALL_SECONDS))
                assert all(b"t000100" in turn.raw for turn in crowd.turns)
                assert all(not turn.received.ends for turn in crowd.turns)
            received = crowd.wait()
        assert slowest < 1.0  # the aim is 20 ms; the rest is a machine with other work
        assert [each.ends for each in received if len(each.ends) != 1] == []
        assert all("completed" in each.ends[0] for each in received)
        assert faults_of_all(server, received) == []
        assert faults_at_rest(server, before, idle_threads=40) == []
    cases.add("store faults", {"turns whose store hangs": len(received)})


def _answered_in(server: ServerProcess, seconds: float) -> Iterator[float]:
    begun = time.monotonic()
    with httpx2.Client(trust_env=False) as http:
        while time.monotonic() - begun < seconds:
            asked = time.monotonic()
            assert http.get(f"{server.url}/health").status_code == 200
            yield time.monotonic() - asked


async def test_a_line_cut_after_every_byte(tmp_path: Path, full: bool, cases: CaseCounter) -> None:
    """Between the client and us, by a proxy.

    Whatever got through is the beginning of the record.
    """
    with server_in(tmp_path, "synthetic") as server:
        async with proxied(server.port) as proxy:
            target = Target(proxy.port, server.key)
            await _cut_stream(target, 10**9, "FIN")
            before = await trio.to_thread.run_sync(at_rest, server)
            received: list[ReceivedStream] = []
            left = iter(range(0, proxy.longest, 1 if full else 97))

            async def client() -> None:
                for n in left:
                    cut = await _cut_stream(target, n, ("FIN", "RST")[n % 2])
                    received.append(cut)

            async with trio.open_nursery() as nursery:
                for _ in range(AT_ONCE):
                    nursery.start_soon(client)
            assert await trio.to_thread.run_sync(faults_at_rest, server, before, 2 * AT_ONCE) == []
            assert await trio.to_thread.run_sync(faults_of_all, server, received) == []
        assert any(each.text and not each.ends for each in received)
        cases.add("real disconnects", {"1: cut after n bytes": len(received)})


async def _cut_stream(target: Target, n: int, way: str) -> ReceivedStream:
    """What came of one stream, of which so many bytes got through."""
    body = {"stream": True, "input": "tokens=3 rate=200"}
    request = request_bytes(ClientRequest("POST", RESPONSES, body), target)
    async with await trio.open_tcp_stream("127.0.0.1", target.port) as stream:
        line = Http1Connection(stream, target)
        await stream.send_all(
            request.replace(
                b"host: localhost", b"host: localhost\r\nx-order: cut=%d by=%s" % (n, way.encode())
            )
        )
        try:
            with trio.fail_after(30):
                while not line.is_whole:
                    await line.receive()
        except (ConnectionEnded, trio.BrokenResourceError):
            pass
        return read_stream(Dialect.RESPONSES, line.body if line.status == 200 else b"")
