"""No packet ends the process, and none touches another client's stream."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
import trio
from hypercorn.events import Event, Updated
from hypercorn.protocol.h2 import H2Protocol
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.tcp_server import TCPServer

from hermes_trio.server import keeping, protocols
from hermes_trio.server.alone import Alone
from hermes_trio.server.applications import Applications
from hermes_trio.server.connection import GuardedTCPServer
from hermes_trio.server.faults import Faults
from hermes_trio.server.guards import install_guards, installed_guards, remove_guards
from hermes_trio.server.http1 import PlainH11
from hermes_trio.server.writing import Outlet
from tests.server.apps import Demo
from tests.server.raw import ask, connect, get, h2_client, read_until
from tests.server.running import Live, hypercorn_serving, serving
from tests.server.triggers import TRIGGERS, Trigger

Serving = Callable[..., AbstractAsyncContextManager[Live]]
both_ways = pytest.mark.parametrize("way", [serving, hypercorn_serving])
every_trigger = pytest.mark.parametrize("trigger", TRIGGERS)
CLOSE = "Connection: close"


async def beside_a_stream(app: Demo, live: Live, trigger: Trigger) -> None:
    """Run a trigger while another client reads a stream, which must go on as if nothing had happened."""
    async with await connect(live.port) as victim:
        await victim.send_all(get("/ticks"))
        await app.ticks.send(1)
        await read_until(victim, b"data: 1\n\n")
        await trigger(live.port)
        await app.ticks.send(2)
        await read_until(victim, b"data: 2\n\n")
        assert b"hello" in await ask(live.port, get("/", CLOSE))


@both_ways
@every_trigger
async def test_no_packet_harms_another_stream(way: Serving, trigger: Trigger) -> None:
    app = Demo()
    async with way(app) as live:
        await beside_a_stream(app, live, trigger)
    assert live.guards.faults.count == 0  # each of these is understood, not only survived


async def stock_send(connection: GuardedTCPServer, event: Event) -> None:
    """What Hypercorn does with an event of a protocol, but for its tasks that wait for idle connections."""
    if isinstance(event, Updated):
        await OWN_SEND(connection, event)
    else:
        vars(connection).setdefault("send_lock", trio.Lock())  # as Hypercorn's has
        await TCPServer.protocol_send(connection, event)


async def nothing(*_: Any) -> None:
    """Answer no request in the task of its connection."""


OWN_SEND = GuardedTCPServer.protocol_send


@both_ways
@every_trigger
async def test_the_guard_holds_without_our_protocols(
    way: Serving, trigger: Trigger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With Hypercorn's own protocols and writes each trigger raises, which proves both the trigger and the guard."""
    monkeypatch.setattr(Alone, "run", nothing)
    monkeypatch.setattr(GuardedTCPServer, "protocol_send", stock_send)
    monkeypatch.setattr(Applications, "spawn_app", TaskGroup.spawn_app)
    monkeypatch.setattr(protocols, "PlainH11", H11Protocol)
    monkeypatch.setattr(protocols, "BoundedH2", H2Protocol)
    app = Demo()
    async with way(app) as live:
        fault = trio.Event()
        live.guards.faults._on_fault = lambda _: fault.set()
        while not fault.is_set():  # which task meets the error is a matter of their order
            await beside_a_stream(app, live, trigger)


async def test_any_error_in_a_connection_closes_just_that(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[BaseException] = []

    async def fail(*_: Any) -> None:
        raise ExceptionGroup("two", [ValueError("first"), KeyError("second")])

    app = Demo()
    async with serving(app) as live:
        live.guards.faults._on_fault = told.append
        async with await connect(live.port) as other:
            await other.send_all(get("/"))
            await read_until(other, b"hello")
            with monkeypatch.context() as patch:
                patch.setattr(PlainH11, "begin", fail)
                assert await ask(live.port, get("/")) == b""
            await other.send_all(get("/"))
            await read_until(other, b"hello")
    assert sorted(type(error).__name__ for error in told) == ["KeyError", "ValueError"]
    assert live.guards.faults.count == 2


async def test_a_failing_listener_for_faults_does_no_harm() -> None:
    def fail(_: BaseException) -> None:
        raise RuntimeError("no")

    faults = Faults(fail)
    faults.record(ValueError("x"))
    assert faults.count == 1


class Raising(GuardedTCPServer):
    """A connection that ends with a given exception."""

    error: BaseException

    def __init__(self, error: BaseException) -> None:
        self.guards = keeping.Guards()
        self._outlet = Outlet(trio.testing.memory_stream_pair()[0], self.guards)
        self.error = error

    async def _serve(self) -> None:
        try:
            await trio.lowlevel.checkpoint()
        except trio.Cancelled as cancelled:
            raise BaseExceptionGroup("mixed", [cancelled, self.error]) from None
        raise self.error


async def test_cancellation_goes_on_up_out_of_a_mixed_group() -> None:
    raising = Raising(ValueError("beside"))
    with trio.CancelScope() as scope:
        scope.cancel()
        await raising.run()
    assert scope.cancelled_caught
    assert raising.guards.faults.count == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
async def test_an_interrupt_goes_on_up(error: BaseException) -> None:
    with pytest.raises(type(error)):
        await Raising(error).run()


@pytest.mark.parametrize("error", [GeneratorExit(), ValueError(), ExceptionGroup("g", [OSError()])])
async def test_anything_else_ends_here(error: BaseException) -> None:
    raising = Raising(error)
    await raising.run()
    assert raising.guards.faults.count == 1


async def test_a_client_that_is_gone_is_no_fault() -> None:
    raising = Raising(ExceptionGroup("g", [trio.BrokenResourceError()]))
    await raising.run()
    assert raising.guards.faults.count == 0


async def test_a_write_under_way_is_shortened_and_never_lengthened() -> None:
    raising = Raising(ValueError())
    raising._outlet._writing = trio.CancelScope(deadline=50)
    raising.guards.connections.add(raising)
    for deadline in (40, 60):
        raising.guards.connections.limit_writes(deadline)
    assert raising._outlet._writing.deadline == 40
    assert raising.guards.write_deadline() <= 60


async def test_live_connections_are_counted() -> None:
    async with serving(Demo()) as live:
        assert len(live.guards.connections) == 0
        async with await connect(live.port) as first, await connect(live.port) as second:
            for stream in (first, second):
                await stream.send_all(get("/"))
                await read_until(stream, b"hello")
            assert len(live.guards.connections) == 2
    assert len(live.guards.connections) == 0


@both_ways
async def test_an_idle_connection_goes_with_its_client(way: Serving) -> None:
    """Not only when its time is up, which here is ten seconds."""
    async with way(Demo()) as live:
        async with await connect(live.port), await connect(live.port) as used, h2_client(live.port) as second:
            await used.send_all(get("/"))
            await read_until(used, b"hello")
            await second.answer(await second.request())
            assert len(live.guards.connections) == 3
        await trio.testing.wait_all_tasks_blocked(0.02)
        assert len(live.guards.connections) == 0


def test_installing_twice_changes_nothing() -> None:
    try:
        guards = install_guards(1.0)
        assert install_guards(2.0) is guards
        assert installed_guards() is guards
        assert guards.write_seconds == 1.0
    finally:
        remove_guards()
    assert installed_guards() is None
