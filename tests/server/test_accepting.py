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
from hermes_trio.server.accepting import PAUSE_SECONDS, SET_UP_SECONDS, Clock, Doors, NoRoom, Stream


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


class Hands:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def door(sock: Any, entered: list[Stream], clock: Clock = Hands()) -> accepting.Door:  # noqa: B008 - it stands still
    return accepting.Door(sock, None, entered.append, clock)


async def let_in(listening: socket.socket, waiting: int, *pauses: float) -> list[int]:
    """How many come in at each time, after pauses that are measured in set-ups."""
    entered, clock, counts = list[Stream](), Hands(), list[int]()
    one = door(listening, entered, clock)
    with ExitStack() as clients:
        for _ in range(waiting):
            clients.enter_context(socket.create_connection(listening.getsockname()))
        for pause in (0.0, *pauses):
            clock.seconds += pause * SET_UP_SECONDS
            one.let_in()
            counts.append(len(entered) - sum(counts))
    for stream in entered:
        await stream.aclose()
    return counts


async def test_as_many_are_let_in_as_could_be_set_up_in_half_of_the_time_that_passed(
    listening: socket.socket,
) -> None:
    assert await let_in(listening, 12, 1.0, 4.1, 8.1, 2.1) == [1, 1, 2, 4, 1]


async def test_after_nobody_was_left_it_is_one_again(listening: socket.socket) -> None:
    assert await let_in(listening, 3, 100.0, 100.0) == [1, 2, 0]
    assert await let_in(listening, 2, 1.0) == [1, 1]


async def test_a_door_at_which_nobody_waited_opens_for_one(listening: socket.socket) -> None:
    entered, clock = list[Stream](), Hands()
    one = door(listening, entered, clock)
    one.let_in()
    clock.seconds += 1_000
    with (
        socket.create_connection(listening.getsockname()),
        socket.create_connection(listening.getsockname()),
    ):
        one.let_in()
    assert len(entered) == 1
    await entered[0].aclose()


async def test_nobody_comes_in_or_waits_once_the_doors_are_shut(listening: socket.socket) -> None:
    address, entered = listening.getsockname(), list[Stream]()
    async with Doors([listening], None).open(entered.append):
        with socket.create_connection(address), socket.create_connection(address):
            await trio.testing.wait_all_tasks_blocked()
            assert len(entered) == 2
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)
    for stream in entered:
        await stream.aclose()


async def test_the_kernel_watches_the_door_only_when_nobody_is_left(
    listening: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched: list[int] = []
    real = trio.lowlevel.wait_readable

    async def note(sock: Any) -> None:
        watched.append(len(entered))
        await real(sock)

    entered = list[Stream]()
    with ExitStack() as clients:
        for _ in range(5):
            clients.enter_context(socket.create_connection(listening.getsockname()))
        async with Doors([listening], None).open(entered.append):
            monkeypatch.setattr(trio.lowlevel, "wait_readable", note)
            await trio.testing.wait_all_tasks_blocked()
            monkeypatch.undo()
    assert (len(entered), watched) == (5, [0, 5])
    for stream in entered:
        await stream.aclose()


def test_connections_that_ended_while_they_waited_are_passed_over() -> None:
    entered: list[Stream] = []
    door(Troubled(errno.ECONNABORTED, errno.EPROTO), entered).let_in()
    door(Troubled(errno.EPROTO), entered).let_in()
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
        async with Doors([listening], None).open(enter):
            while len(entered) < 2:  # noqa: ASYNC110 - the clock is ours: it jumps only when nothing else can be done
                await trio.sleep(PAUSE_SECONDS / 10)
            assert trio.current_time() - begun == pytest.approx(PAUSE_SECONDS, abs=PAUSE_SECONDS / 10)
    for stream in entered:
        await stream.aclose()
