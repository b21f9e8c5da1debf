"""No packet ends the process, and none touches another client's stream."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import hypercorn.protocol
import hypercorn.protocol.h2
import hypercorn.trio.run
import pytest
import trio
from hypercorn.config import Config
from hypercorn.protocol.h2 import H2Protocol, StreamBuffer
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext

from hermes_trio.server.guards import Guards, installed
from hermes_trio.server.guards.connection import GuardedTCPServer, handle_connection
from hermes_trio.server.guards.http1 import GuardedH11Protocol
from tests.server.apps import Demo
from tests.support.fatal_packets import TRIGGERS, Trigger
from tests.support.in_process_server import RunningServer, hypercorn_serving, serving
from tests.support.raw_http import ask, connect, get, h2_client, read_until

Serving = Callable[..., AbstractAsyncContextManager[RunningServer]]
both_ways = pytest.mark.parametrize("way", [serving, hypercorn_serving])
every_trigger = pytest.mark.parametrize("trigger", TRIGGERS)
CLOSE = "Connection: close"


async def beside_a_stream(app: Demo, live: RunningServer, trigger: Trigger) -> None:
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
    assert live.guards.faults == 0  # each of these is understood, not only survived


@both_ways
@every_trigger
async def test_the_guard_holds_without_our_protocols(
    way: Serving, trigger: Trigger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With Hypercorn's own protocols each trigger raises, which proves both the trigger and the guard."""
    app = Demo()
    async with way(app) as live:
        with monkeypatch.context() as patch:
            patch.setattr(hypercorn.protocol, "H11Protocol", H11Protocol)
            patch.setattr(hypercorn.protocol, "H2Protocol", H2Protocol)
            patch.setattr(hypercorn.protocol.h2, "StreamBuffer", StreamBuffer)
            fault = trio.Event()
            live.guards.on_fault = lambda _: fault.set()
            while not fault.is_set():  # which task meets the error is a matter of their order
                await beside_a_stream(app, live, briefly(trigger))


def briefly(trigger: Trigger) -> Trigger:
    """Give up when the server does not answer.

    Hypercorn may also take the bytes for a WebSocket and wait.
    """

    async def run(port: int) -> None:
        with trio.move_on_after(0.5):
            await trigger(port)

    return run


@every_trigger
async def test_each_trigger_ends_a_server_without_guards(trigger: Trigger) -> None:
    """Else there would be nothing to guard against, and the guards could go."""
    config, stopped = Config.from_mapping(bind=["127.0.0.1:0"], errorlog=None), False

    async def run(task_status: trio.TaskStatus[list[str]]) -> None:
        nonlocal stopped
        try:
            await hypercorn.trio.serve(Demo(), config, task_status=task_status)
        except* Exception:  # noqa: BLE001 - any of them ends the process
            stopped = True

    with trio.move_on_after(20):
        async with trio.open_nursery() as nursery:
            urls = await nursery.start(run)
            while not stopped:
                try:
                    await briefly(trigger)(int(urls[0].rpartition(":")[2]))
                except* (OSError, AssertionError, trio.BrokenResourceError):
                    await trio.sleep(0.01)
    assert stopped


async def test_any_error_in_a_connection_closes_just_that(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[BaseException] = []

    async def fail(*_: Any) -> None:
        raise ExceptionGroup("two", [ValueError("first"), KeyError("second")])

    app = Demo()
    async with serving(app) as live:
        live.guards.on_fault = told.append
        async with await connect(live.port) as other:
            await other.send_all(get("/"))
            await read_until(other, b"hello")
            with monkeypatch.context() as patch:
                patch.setattr(GuardedH11Protocol, "_create_stream", fail)
                assert await ask(live.port, get("/")) == b""
            await other.send_all(get("/"))
            await read_until(other, b"hello")
    assert sorted(type(error).__name__ for error in told) == ["KeyError", "ValueError"]
    assert live.guards.faults == 2


async def test_a_failing_fault_callback_does_no_harm() -> None:
    def fail(_: BaseException) -> None:
        raise RuntimeError("no")

    guards = Guards(on_fault=fail)
    guards.record_fault(ValueError("x"))
    assert guards.faults == 1


async def handle_failing(
    error: BaseException, guards: Guards, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Handle a connection that ends with an exception."""

    async def run(_: object) -> None:
        try:
            await trio.lowlevel.checkpoint()
        except trio.Cancelled as cancelled:
            raise BaseExceptionGroup("mixed", [cancelled, error]) from None
        raise error

    monkeypatch.setattr(GuardedTCPServer, "run", run)
    left, right = trio.socket.socketpair()
    with right:
        parts: tuple[Any, ...] = (
            Demo(),
            Config(),
            WorkerContext(None),
            {},
            trio.SocketStream(left),
        )
        await handle_connection(guards, *parts)
        assert left.fileno() == -1


async def test_cancellation_leaves_a_mixed_group(monkeypatch: pytest.MonkeyPatch) -> None:
    guards = Guards()
    with trio.CancelScope() as scope:
        scope.cancel()
        await handle_failing(ValueError("beside"), guards, monkeypatch)
    assert scope.cancelled_caught
    assert guards.faults == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
async def test_an_interrupt_is_not_caught(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.RaisesGroup(type(error)):
        await handle_failing(error, Guards(), monkeypatch)


@pytest.mark.parametrize("error", [GeneratorExit(), ValueError(), ExceptionGroup("g", [OSError()])])
async def test_anything_else_is_caught(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    guards = Guards()
    await handle_failing(error, guards, monkeypatch)
    assert guards.faults == 1


async def test_a_client_that_is_gone_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    guards = Guards()
    await handle_failing(ExceptionGroup("g", [trio.BrokenResourceError()]), guards, monkeypatch)
    assert guards.faults == 0


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
        async with (
            await connect(live.port),
            await connect(live.port) as used,
            h2_client(live.port) as second,
        ):
            await used.send_all(get("/"))
            await read_until(used, b"hello")
            await second.answer(await second.request())
            assert len(live.guards.connections) == 3
        await trio.testing.wait_all_tasks_blocked(0.02)
        assert len(live.guards.connections) == 0


def test_the_guards_are_taken_out_again() -> None:
    names = {
        "hypercorn.trio.run:TCPServer": TCPServer,
        "hypercorn.protocol:H11Protocol": H11Protocol,
        "hypercorn.protocol:H2Protocol": H2Protocol,
        "hypercorn.protocol.h2:StreamBuffer": StreamBuffer,
    }
    with installed(Guards()):
        assert [name for name, own in names.items() if pkgutil.resolve_name(name) is own] == []
    assert [name for name, own in names.items() if pkgutil.resolve_name(name) is not own] == []
