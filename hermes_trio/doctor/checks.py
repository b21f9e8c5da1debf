"""Run all checks concurrently, each with a timeout, so that the doctor never hangs."""

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
from hermes_trio.settings import Settings

Check = Callable[[], Awaitable[list[Finding]]]


@frozen
class CheckTimeouts:
    """How long checks may take, in seconds."""

    local: float = 5.0
    remote: float = 10.0
    imports: float = 30.0


DEFAULTS = CheckTimeouts()


def run_checks(settings: Settings, timeouts: CheckTimeouts = DEFAULTS) -> list[Finding]:
    """Find out whether a server with these settings can work. Blocks; starts its own Trio loop."""
    return trio.run(_run_all, settings, timeouts)


async def _run_all(settings: Settings, timeouts: CheckTimeouts) -> list[Finding]:
    checks = _list_checks(settings, timeouts)
    results = [list[Finding]() for _ in checks]
    async with trio.open_nursery() as nursery:
        for result, (name, seconds, check) in zip(results, checks, strict=True):
            nursery.start_soon(_run, name, seconds, check, result)
    return [finding for result in results for finding in result]


async def _run(name: str, seconds: float, check: Check, result: list[Finding]) -> None:
    try:
        with trio.move_on_after(seconds) as limit:
            result += await check()
    except OSError as error:
        result.append(findings.not_checked(name, error.strerror or str(error)))
        return
    if limit.cancelled_caught:
        result.append(findings.timed_out(name, seconds))


def _list_checks(settings: Settings, timeouts: CheckTimeouts) -> list[tuple[str, float, Check]]:
    """Return name, timeout and check, in the order of the report."""
    in_thread: list[tuple[str, Callable[[Settings], Finding]]] = [
        ("key", local.check_key),
        ("data folder", local.check_directory),
        ("disk", local.check_disk),
        ("SQLite", local.check_sqlite),
        ("store", local.check_store),
        ("sandbox", local.check_sandbox),
    ]
    # The timeout of a request is shorter than that of its check, because its message is more
    # precise.
    return [
        ("port", 3 * timeouts.remote, partial(remote.check_port, settings, timeouts.remote)),
        *(
            (name, timeouts.local, partial(_check_in_thread, check, settings))
            for name, check in in_thread
        ),
        ("upstream", 2 * timeouts.remote, partial(_check_upstreams, settings, timeouts.remote)),
        ("packages", timeouts.local, partial(_check_packages, settings)),
        (
            "package hermes-agent",
            2 * timeouts.imports,
            partial(_check_hermes, settings, timeouts.imports),
        ),
    ]


async def _check_in_thread(
    check: Callable[[Settings], Finding], settings: Settings
) -> list[Finding]:
    return [await trio.to_thread.run_sync(check, settings, abandon_on_cancel=True)]


async def _check_packages(settings: Settings) -> list[Finding]:
    return await trio.to_thread.run_sync(
        lambda: [*local.check_packages(settings)], abandon_on_cancel=True
    )


async def _check_upstreams(settings: Settings, seconds: float) -> list[Finding]:
    """Check the model servers, and compare their clocks with ours."""
    upstreams = remote.list_upstreams(settings)
    results: dict[remote.Upstream, remote.UpstreamResult] = {}

    async def check(each: remote.Upstream, key: str) -> None:
        results[each] = await remote.check_upstream(each, key, seconds)

    async with trio.open_nursery() as nursery:
        for each, key in upstreams.items():
            nursery.start_soon(check, each, key)
    found = [results[each].finding for each in upstreams]
    dates = [result.date for result in results.values() if result.date is not None]
    missing = remote.assess_no_upstream(remote.list_agents_without_upstream(settings))
    return [*(found or [missing]), local.assess_clock(time.time(), dates)]


async def _check_hermes(settings: Settings, seconds: float) -> list[Finding]:
    """Import the package in a separate process.

    What its import does, and for how long, is unknown.
    """
    package = local.hermes_package(settings)
    if not await trio.to_thread.run_sync(
        local.is_installed, local.HERMES_MODULE, abandon_on_cancel=True
    ):
        return [local.assess_package(package, "not installed")]
    return [local.assess_package(package, await try_import(local.HERMES_MODULE, seconds))]


async def try_import(module: str, seconds: float) -> str:
    """Import a module in a separate process; return why that failed, or an empty string."""
    command = [sys.executable, "-c", f"import {module}"]
    with trio.move_on_after(seconds):
        done = await trio.run_process(
            command, check=False, stdin=subprocess.DEVNULL, capture_stdout=True, capture_stderr=True
        )
        return "" if done.returncode == 0 else "installed, but its import fails"
    return f"installed, but its import takes more than {seconds:g} s"
