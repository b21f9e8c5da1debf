"""Clients that leave are seen by one task for all of them, and no other client is taken for them."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager

import pytest
import trio
from attrs import define

from hermes_trio.server.connection import GuardedTCPServer
from hermes_trio.server.faults import Faults
from hermes_trio.server.lookout import Lookout
from tests.server.apps import BIG, Demo
from tests.server.raw import connect, get, read_until
from tests.server.running import serving

SECONDS = 5


@define(eq=False)
class Told:
    """Notes how often it was told that its client has left."""

    times: int = 0

    async def leave(self) -> None:
        self.times += 1


class Failing(Told):
    """Cannot take it."""

    async def leave(self) -> None:
        await super().leave()
        raise ValueError("no")


@asynccontextmanager
async def looking_out() -> AsyncIterator[Lookout]:
    """A lookout whose task runs for the length of a block."""
    lookout = Lookout(Faults())
    with trio.fail_after(SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lookout.run)
            yield lookout
            nursery.cancel_scope.cancel()
    assert lookout._epoll.closed


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Our end, and the client's."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


async def settle() -> None:
    """Let whoever can do something do it."""
    await trio.testing.wait_all_tasks_blocked(0.01)


async def test_the_end_is_news_and_data_is_not(pair: tuple[socket.socket, socket.socket]) -> None:
    told = Told()
    async with looking_out() as lookout:
        lookout.watch(pair[0].fileno(), told)
        pair[1].send(b"more")
        await settle()
        assert told.times == 0
        pair[1].close()
        await settle()
        assert told.times == 1  # though nobody has read what came before


async def test_who_has_left_already_is_told_of(pair: tuple[socket.socket, socket.socket]) -> None:
    told = Told()
    pair[1].shutdown(socket.SHUT_WR)
    async with looking_out() as lookout:
        lookout.watch(pair[0].fileno(), told)
        await settle()
    assert told.times == 1


async def test_what_is_forgotten_is_not_told(pair: tuple[socket.socket, socket.socket]) -> None:
    told = Told()
    async with looking_out() as lookout:
        lookout.watch(pair[0].fileno(), told)
        lookout.forget(pair[0].fileno(), Told())
        assert len(lookout) == 1  # the number is another's by now
        lookout.forget(pair[0].fileno(), told)
        assert len(lookout) == 0
        pair[1].close()
        await settle()
    assert told.times == 0


async def test_a_number_that_is_used_again_means_the_new_one() -> None:
    """A child process may keep a connection open that we have closed, and the kernel still tells of it."""
    old, new = Told(), Told()
    with ExitStack() as stack:
        ours, theirs = socket.socketpair()
        kept = stack.enter_context(socket.socket(fileno=os.dup(ours.fileno())))
        stack.enter_context(theirs)
        number = ours.fileno()
        async with looking_out() as lookout:
            lookout.watch(number, old)
            ours.close()
            lookout.forget(number, old)
            pair = socket.socketpair()
            for sock in pair:
                stack.enter_context(sock)
            assert pair[0].fileno() == number
            lookout.watch(number, new)
            theirs.close()
            await settle()
            assert (old.times, new.times) == (0, 0)
            pair[1].close()
            await settle()
            assert (old.times, new.times) == (0, 1)
        assert kept.fileno() >= 0


async def test_one_that_fails_is_no_other_s_business(pair: tuple[socket.socket, socket.socket]) -> None:
    failing, told = Failing(), Told()
    async with looking_out() as lookout:
        for sock, watched in zip(pair, (failing, told), strict=True):
            lookout.watch(sock.fileno(), watched)
            sock.shutdown(socket.SHUT_RDWR)
        await settle()
        assert (failing.times, told.times) == (1, 1)
        assert lookout._faults.count == 1


async def test_one_that_is_ignored_is_watched_again(pair: tuple[socket.socket, socket.socket]) -> None:
    told = Told()
    async with looking_out() as lookout:
        lookout.watch(pair[0].fileno(), told)
        lookout.ignore(pair[0].fileno(), told)
        assert len(lookout) == 0
        pair[1].close()
        await settle()
        assert told.times == 0
        lookout.watch(pair[0].fileno(), told)
        await settle()
        assert told.times == 1


async def test_it_retires_with_the_last(pair: tuple[socket.socket, socket.socket]) -> None:
    told = Told()
    lookout = Lookout(Faults())
    with trio.fail_after(SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lookout.run)
            lookout.watch(pair[0].fileno(), told)
            await settle()
            lookout.retire()
            assert not lookout.is_open
            pair[1].close()
            await settle()
            assert told.times == 1
            lookout.forget(pair[0].fileno(), told)  # and the task ends by itself
    assert lookout._epoll.closed


async def test_one_without_work_retires_at_once() -> None:
    lookout = Lookout(Faults())
    lookout.retire()
    with trio.fail_after(SECONDS):
        await lookout.run()


async def test_an_end_that_came_with_the_request_is_not_missed() -> None:
    """It is there before anybody looks out for it."""
    app = Demo()
    async with serving(app) as live, await connect(live.port) as client:
        await client.send_all(get("/"))
        await read_until(client, b"hello")
        await client.send_all(get("/ticks"))
        client.socket.shutdown(trio.socket.SHUT_WR)  # nobody on the other side had a turn in between
        with trio.fail_after(SECONDS):
            await app.ended.wait()


async def test_an_idle_connection_is_not_looked_out_for() -> None:
    """It reads, and sees for itself."""
    app = Demo()
    async with serving(app) as live, await connect(live.port) as client:
        await client.send_all(get("/"))
        await read_until(client, b"hello")
        await settle()
        [connection] = live.guards.connections._open
        assert isinstance(connection, GuardedTCPServer)
        lookout = connection._alone._keepers.lookout
        assert len(lookout) == 0
        await client.send_all(get("/ticks"))
        await app.ticks.send(1)
        await read_until(client, b"data: 1")
        assert len(lookout) == 1


async def test_what_nobody_will_read_does_not_spoil_the_answer() -> None:
    """To close with something unread would reset the connection, and the reset overtakes the answer."""
    async with serving(Demo()) as live, await connect(live.port) as client:
        await client.send_all(get("/big", "Connection: close") + get("/", "X: " + "x" * 1000) * 100)
        seen = 0
        while data := await client.receive_some(2**16):
            seen += len(data)
        assert seen > len(BIG)


async def test_no_descriptor_is_left() -> None:
    before = len(os.listdir("/proc/self/fd"))
    async with serving(Demo()) as live, await connect(live.port) as client:
        await client.send_all(get("/"))
        await read_until(client, b"hello")
    assert len(os.listdir("/proc/self/fd")) == before
