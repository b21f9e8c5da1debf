"""Signals, and what SIGHUP reads again."""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable

import trio
from structlog.testing import capture_logs
from trio.testing import wait_all_tasks_blocked

from hermes_trio.core.errors import ConfigurationError
from hermes_trio.server.signals import ReloadHandlers, SignalCallback, handle_signals


def counting(done: list[str], name: str) -> Callable[[], Awaitable[None]]:
    async def reload() -> None:
        await trio.lowlevel.checkpoint()
        done.append(name)

    return reload


async def refuse() -> None:
    raise ConfigurationError("keys.toml: is not valid TOML")


async def fail() -> None:
    raise ZeroDivisionError


async def test_a_reload_reads_everything_and_survives_failures(
    nursery: trio.Nursery,
) -> None:
    done: list[str] = []
    reloads = ReloadHandlers()
    reloads.add("keys", refuse)
    reloads.add("other", fail)
    reloads.add("certificate", counting(done, "certificate"))
    nursery.start_soon(reloads.run)
    with capture_logs() as lines:
        reloads.request("SIGHUP")
        await wait_all_tasks_blocked()
    assert done == ["certificate"]
    assert [(line["event"].partition(":")[0], line.get("what")) for line in lines] == [
        ("reloading", None),
        ("cannot reload", "keys"),
        ("cannot reload", "other"),
        ("reloaded", "certificate"),
    ]
    assert lines[1]["error"] == "keys.toml: is not valid TOML"


async def test_a_request_before_the_start_is_kept(nursery: trio.Nursery) -> None:
    done: list[str] = []
    reloads = ReloadHandlers()
    reloads.request("SIGHUP")
    reloads.add("keys", counting(done, "keys"))
    nursery.start_soon(reloads.run)
    await wait_all_tasks_blocked()
    assert done == ["keys"]


async def test_requests_during_a_reload_lead_to_one_more(nursery: trio.Nursery) -> None:
    started: list[int] = []
    may_end = trio.Event()

    async def slow() -> None:
        started.append(1)
        await may_end.wait()

    reloads = ReloadHandlers()
    reloads.add("slow", slow)
    nursery.start_soon(reloads.run)
    reloads.request("SIGHUP")
    await wait_all_tasks_blocked()
    reloads.request("SIGHUP")
    reloads.request("SIGHUP")
    may_end.set()
    await wait_all_tasks_blocked()
    assert len(started) == 2


async def test_each_signal_goes_where_it_belongs() -> None:
    before = {number: signal.getsignal(number) for number in (1, 2, 15)}
    stops: list[str] = []
    reloads: list[str] = []
    try:
        async with handle_signals(SignalCallback(stops.append), reloads.append):
            for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
                os.kill(os.getpid(), number)
                with trio.fail_after(5):
                    while number.name not in stops + reloads:  # noqa: ASYNC110 - signals arrive by the kernel
                        await trio.sleep(0.001)
        os.kill(os.getpid(), signal.SIGHUP)  # ignored after the block
        await trio.lowlevel.checkpoint()
    finally:
        for number_, handler in before.items():
            signal.signal(number_, handler)
    assert (stops, reloads) == (["SIGTERM", "SIGINT"], ["SIGHUP"])
