"""All checks, side by side, each with a time limit: the doctor never hangs."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial

import trio
from attrs import frozen

from hermes_trio.doctor import findings, local, remote
from hermes_trio.doctor.findings import Finding
from hermes_trio.doctor.findings_local import clock, package
from hermes_trio.doctor.findings_remote import Upstream, no_upstream
from hermes_trio.settings import Settings

Check = Callable[[], Awaitable[list[Finding]]]


@frozen
class Limits:
    """How long checks may take, in seconds."""

    local: float = 5.0
    remote: float = 10.0
    imports: float = 30.0


DEFAULTS = Limits()


def examine(settings: Settings, limits: Limits = DEFAULTS) -> list[Finding]:
    """Find out whether a server with these settings can work."""
    return trio.run(_examine, settings, limits)


async def _examine(settings: Settings, limits: Limits) -> list[Finding]:
    results = [list[Finding]() for _ in _checks(settings, limits)]
    async with trio.open_nursery() as nursery:
        for place, (name, seconds, check) in zip(results, _checks(settings, limits), strict=True):
            nursery.start_soon(_run, name, seconds, check, place)
    return [finding for result in results for finding in result]


async def _run(name: str, seconds: float, check: Check, place: list[Finding]) -> None:
    try:
        with trio.move_on_after(seconds) as limit:
            place += await check()
    except OSError as error:
        place.append(findings.broken(name, error.strerror or str(error)))
        return
    if limit.cancelled_caught:
        place.append(findings.too_slow(name, seconds))


def _checks(settings: Settings, limits: Limits) -> list[tuple[str, float, Check]]:
    """Name, time limit and check, in the order of the report."""
    one = [("key", local.key), ("data folder", local.folder), ("disk", local.disk), ("SQLite", local.sqlite),
           ("store", local.store)]  # fmt: skip
    # The limit of a request is the shorter one, so that it can say more than that it took too long.
    return [
        ("port", 3 * limits.remote, partial(remote.port, settings, limits.remote)),
        *((name, limits.local, partial(_in_thread, check, settings)) for name, check in one),
        ("upstream", 2 * limits.remote, partial(_upstreams, settings, limits.remote)),
        ("packages", limits.local, partial(_packages, settings)),
        ("package hermes-agent", 2 * limits.imports, partial(_hermes, settings, limits.imports)),
    ]


async def _in_thread(check: Callable[[Settings], Finding], settings: Settings) -> list[Finding]:
    return [await trio.to_thread.run_sync(check, settings, abandon_on_cancel=True)]


async def _packages(settings: Settings) -> list[Finding]:
    return await trio.to_thread.run_sync(lambda: [*local.packages(settings)], abandon_on_cancel=True)


async def _upstreams(settings: Settings, seconds: float) -> list[Finding]:
    """The servers of models, and what they say about the time."""
    wanted = remote.upstreams(settings)
    asked: dict[Upstream, remote.Asked] = {}

    async def ask(each: Upstream, key: str) -> None:
        asked[each] = await remote.upstream(each, key, seconds)

    async with trio.open_nursery() as nursery:
        for each, key in wanted.items():
            nursery.start_soon(ask, each, key)
    found = [asked[each].finding for each in wanted] or [no_upstream(remote.wanting(settings))]
    dates = [date for each in asked.values() for date in each.dates]
    return [*found, clock(time.time(), dates)]


async def _hermes(settings: Settings, seconds: float) -> list[Finding]:
    """Imported in a process of its own: nobody knows what that does, or how long it takes."""
    wanted = local.hermes_package(settings)
    if not await trio.to_thread.run_sync(local.is_there, local.HERMES_MODULE, abandon_on_cancel=True):
        return [package(wanted, "not installed")]
    return [package(wanted, await importing(local.HERMES_MODULE, seconds))]


async def importing(module: str, seconds: float) -> str:
    """Why a module cannot be imported; "" if it can."""
    command = [sys.executable, "-c", f"import {module}"]
    with trio.move_on_after(seconds):
        done = await trio.run_process(
            command, check=False, stdin=subprocess.DEVNULL, capture_stdout=True, capture_stderr=True
        )
        return "" if done.returncode == 0 else "installed, but its import fails"
    return f"installed, but its import takes more than {seconds:g} s"
