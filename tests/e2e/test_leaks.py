"""A thousand connections later the process has what it had at the beginning."""

from __future__ import annotations

import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from tests.e2e.conftest import AGENTS, Measured
from tests.support.server_process import LaunchOptions, ServerProcess, eventually, serving
from tests.support.socket_client import RawConnection, chat_bytes, open_connection
from tests.support.stored_records import count

pytestmark = [pytest.mark.xdist_group("e2e-leaks"), pytest.mark.slow]

AT_ONCE = 20


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    plan = LaunchOptions(
        tmp_path_factory.mktemp("target"), ("--agent", AGENTS), {"drain_seconds": 1}
    )
    with serving(plan) as running:
        _warm_up(running)
        yield running
        # A connection whose tasks were left behind would hold the end up for the whole grace of 5
        # s.
        running.signal()
        assert running.wait(3) == 0


def _warm_up(server: ServerProcess) -> None:
    """Some descriptors are opened at the first use and kept. No socket is."""
    sockets = descriptors(server)["socket"]
    for index in range(AT_ONCE):
        come_and_go(server, index)
        leave_in_mid_stream(server, index)
    eventually(lambda: server.is_idle)
    # A server without runs may still be closing connections.
    eventually(lambda: descriptors(server)["socket"] == sockets)


def descriptors(server: ServerProcess) -> Counter[str]:
    """What the process has open, by kind.

    The readers of the store open their log when they first need it.
    """
    kinds: Counter[str] = Counter()
    for name in os.listdir(f"/proc/{server.pid}/fd"):
        with suppress(FileNotFoundError):
            kinds[os.readlink(f"/proc/{server.pid}/fd/{name}").partition(":")[0]] += 1
    del kinds[str(server.plan.data_dir / "hermes.db-wal")]
    return kinds


def threads(server: ServerProcess) -> int:
    return len(os.listdir(f"/proc/{server.pid}/task"))


def memory(server: ServerProcess) -> int:
    """Resident kilobytes."""
    status = Path(f"/proc/{server.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


def come_and_go(server: ServerProcess, _index: int) -> None:
    with open_connection(server) as talk:
        talk.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert b"200" in talk.to_end()


def leave_in_mid_stream(server: ServerProcess, index: int) -> None:
    leave = (RawConnection.leave, RawConnection.reset, RawConnection.half_close)[index % 3]
    with open_connection(server) as talk:
        talk.send(chat_bytes(server, f"left-{index}", "!silent"))
        talk.until(b'"content": "ready"')
        leave(talk)


def finish(server: ServerProcess, index: int) -> None:
    with open_connection(server) as talk:
        talk.send(chat_bytes(server, f"finished-{index}", "tokens=3 tools=1", close=True))
        assert b"[DONE]" in talk.to_end()


def hang_up_early(server: ServerProcess, index: int) -> None:
    """Gone before there is an answer, or even a whole request."""
    request = chat_bytes(server, f"early-{index}", "!silent")
    with open_connection(server) as talk:
        talk.send(request[: 1 + index * 7 % len(request)])
        with suppress(OSError):
            talk.sock.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    ("visit", "times", "stored"),
    [
        (come_and_go, 500, 0),
        (leave_in_mid_stream, 500, 500),
        (finish, 200, 200),
        (hang_up_early, 200, 0),
    ],
)
def test_nothing_is_left_behind(
    target: ServerProcess,
    visit: Callable[[ServerProcess, int], None],
    times: int,
    stored: int,
    measured: Measured,
) -> None:
    before, turns, kilobytes = descriptors(target), count(target), memory(target)
    begun = time.monotonic()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(lambda index: visit(target, index), range(times)))
    measured("seconds_of_visits", round(time.monotonic() - begun, 2))
    eventually(lambda: target.is_idle, 3)
    eventually(lambda: descriptors(target) == before, 3)
    assert count(target) >= turns + stored
    # Trio keeps idle threads for a while: as many as ran at once, not as many as ran.
    assert threads(target) <= 3 * AT_ONCE
    measured("more_kilobytes", memory(target) - kilobytes)


def test_an_idle_connection_is_closed_with_its_client(target: ServerProcess) -> None:
    before = descriptors(target)
    with open_connection(target) as talk, open_connection(target):
        talk.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        talk.until(b"}")
        assert target.is_idle  # by now both are in their idle state
    eventually(lambda: descriptors(target) == before, 1)
