"""How many are let in at a time, and what becomes of those that cannot be."""

from __future__ import annotations

import errno
import logging
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import trio
import trio.testing

from hermes_trio.server import accepting
from hermes_trio.server.accepting import OPEN_FOR_EACH_NEW, PAUSE_SECONDS, Doors, NoRoom, Stream


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        sock.setblocking(False)
        yield sock


class Troubled:
    """A listening socket that has nothing but errors to tell."""

    def __init__(self, *numbers: int) -> None:
        self._numbers = list(numbers)

    def accept(self) -> tuple[socket.socket, Any]:
        raise OSError(self._numbers.pop(0), "trouble") if self._numbers else BlockingIOError


def door(sock: Any, entered: list[Stream], open_now: int = 0) -> accepting.Door:
    return accepting.Door(sock, None, entered.append, lambda: open_now)


@pytest.mark.parametrize(
    ("open_now", "let_in"),
    [(0, 1), (OPEN_FOR_EACH_NEW - 1, 1), (OPEN_FOR_EACH_NEW, 2), (4 * OPEN_FOR_EACH_NEW, 5), (10_000, 8)],
)
async def test_the_more_are_open_the_more_are_let_in_at_a_time(
    listening: socket.socket, open_now: int, let_in: int
) -> None:
    entered: list[Stream] = []
    with ExitStack() as clients:
        for _ in range(8):
            clients.enter_context(socket.create_connection(listening.getsockname()))
        door(listening, entered, open_now).let_in()
    assert len(entered) == let_in
    for stream in entered:
        await stream.aclose()


async def test_nobody_comes_in_or_waits_once_the_doors_are_shut(listening: socket.socket) -> None:
    address, entered = listening.getsockname(), list[Stream]()
    async with Doors([listening], None).open(entered.append, lambda: 0):
        with socket.create_connection(address), socket.create_connection(address):
            await trio.testing.wait_all_tasks_blocked()
            assert len(entered) == 2
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)
    for stream in entered:
        await stream.aclose()


def test_connections_that_ended_while_they_waited_are_passed_over() -> None:
    entered: list[Stream] = []
    door(Troubled(errno.ECONNABORTED, errno.EPROTO), entered, 100).let_in()
    assert entered == []


def test_no_room_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR), pytest.raises(NoRoom):
        door(Troubled(errno.EMFILE), []).let_in()
    assert "accept returned EMFILE" in caplog.text


def test_what_is_wrong_with_the_socket_itself_is_not_passed_over() -> None:
    with pytest.raises(OSError, match="trouble"):
        door(Troubled(errno.EBADF), []).let_in()


async def test_after_no_room_there_is_a_pause(
    listening: socket.socket, autojump_clock: trio.testing.MockClock
) -> None:
    entered, begun = list[Stream](), trio.current_time()

    def enter(stream: Stream) -> None:
        entered.append(stream)
        if len(entered) == 1:
            raise NoRoom

    with socket.create_connection(listening.getsockname()), socket.create_connection(listening.getsockname()):
        async with Doors([listening], None).open(enter, lambda: 0):
            while len(entered) < 2:  # noqa: ASYNC110 - the clock is ours: it jumps only when nothing else can be done
                await trio.sleep(PAUSE_SECONDS / 10)
            assert trio.current_time() - begun == pytest.approx(PAUSE_SECONDS, abs=PAUSE_SECONDS / 10)
    for stream in entered:
        await stream.aclose()
