"""The supervisor, with real processes that are a small script."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio
from attrs import define, field
from structlog.testing import capture_logs

from hermes_trio.core.errors import ConfigurationError
from hermes_trio.server.workers import (
    Backoff,
    Launch,
    RestartPolicy,
    Supervisor,
    describe_exit,
    run_supervisor,
)
from tests.support.asgi import real_timeout
from tests.support.server_process import eventually, has_ended, processes

SCRIPT = Path(__file__).with_name("worker_script.py")
QUICK = RestartPolicy(first=0.01, longest=0.1, steady=60)


def command(folder: Path, name: str, steps: Sequence[str], channel: int) -> list[str]:
    return [sys.executable, str(SCRIPT), str(channel), str(folder), name, *steps]


def launch(number: int, folder: Path, *steps: str) -> Launch:
    return Launch(number, partial(command, folder, str(number), steps))


def notes(folder: Path, number: int) -> list[str]:
    """What a worker noted: its starts without the numbers of processes, and its orders."""
    path = folder / str(number)
    lines = path.read_text().splitlines() if path.exists() else []
    return [line.split()[0] for line in lines]


@define
class Supervised:
    """A supervisor that runs in a nursery."""

    supervisor: Supervisor
    ready: trio.Event
    stops: list[str]
    code: int | None = None
    ended: trio.Event = field(factory=trio.Event)

    async def run(self) -> None:
        self.code = await self.supervisor.run()
        self.ended.set()


@asynccontextmanager
async def supervised(
    *launches: Launch, kill_seconds: float = 30, policy: RestartPolicy = QUICK
) -> AsyncIterator[Supervised]:
    """Run a supervisor; the block must let it end."""
    ready, stops = trio.Event(), list[str]()
    on_stop = partial(stops.append, "closed")
    supervisor = Supervisor(launches, kill_seconds, ready.set, on_stop, policy)
    running = Supervised(supervisor, ready, stops)
    with real_timeout():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(running.run)
            yield running
            await running.ended.wait()


async def until_noted(folder: Path, number: int, expected: list[str]) -> None:
    """Wait until a worker in another process has noted something."""
    await trio.to_thread.run_sync(eventually, lambda: notes(folder, number) == expected)


# -- pauses --


def test_pauses_double_up_to_a_limit() -> None:
    backoff = Backoff(RestartPolicy(first=1, longest=6, steady=60))
    assert [backoff.next_pause(0) for _ in range(5)] == [1, 2, 4, 6, 6]


def test_a_worker_that_was_ready_for_long_starts_afresh() -> None:
    backoff = Backoff(RestartPolicy(first=1, longest=6, steady=60))
    assert [backoff.next_pause(seconds) for seconds in (0, 0, 59.9, 60, 0)] == [1, 2, 4, 1, 2]


@pytest.mark.parametrize(
    ("code", "text"),
    [(3, "exit code 3"), (-9, "killed by signal 9 (Killed)"), (-64, "killed by signal 64 (")],
)
def test_ends_in_words(code: int, text: str) -> None:
    assert describe_exit(code).startswith(text)


# -- starting and stopping --


async def test_workers_drain_when_asked(tmp_path: Path) -> None:
    launches = [launch(number, tmp_path, "ready", "obey") for number in (1, 2, 3)]
    async with supervised(*launches) as running:
        await running.ready.wait()
        assert running.stops == []
        running.supervisor.request_stop("the test")
    assert (running.code, running.stops) == (0, ["closed"])
    for number in (1, 2, 3):
        # One that was not started yet never is.
        assert notes(tmp_path, number) in (["started", "DRAIN"], [])


async def test_a_second_request_ends_the_drain(tmp_path: Path) -> None:
    async with supervised(launch(1, tmp_path, "ready", "finish")) as running:
        await running.ready.wait()
        running.supervisor.request_stop("the test")
        await until_noted(tmp_path, 1, ["started", "DRAIN"])
        running.supervisor.request_stop("the test")
    assert running.code == 0
    assert notes(tmp_path, 1) == ["started", "DRAIN", "STOP_NOW"]


async def test_a_worker_that_does_not_end_is_killed(tmp_path: Path) -> None:
    with capture_logs() as logs:
        async with supervised(
            launch(1, tmp_path, "ready", "stubborn"), kill_seconds=0.05
        ) as running:
            await running.ready.wait()
            running.supervisor.request_stop("the test")
    assert running.code == 1
    assert [line["event"] for line in logs if line["log_level"] == "critical"] == [
        "a worker does not end: killing it"
    ]


async def test_a_worker_that_ends_badly_after_the_request_is_a_failure(tmp_path: Path) -> None:
    async with supervised(launch(1, tmp_path, "ready", "obey", "crash")) as running:
        await running.ready.wait()
        running.supervisor.request_stop("the test")
    assert running.code == 1


# -- restarts --


@pytest.mark.parametrize("end", ["crash", "kill"])
async def test_a_worker_that_died_is_started_again(tmp_path: Path, end: str) -> None:
    healthy, weak = launch(1, tmp_path, "ready", "obey"), launch(2, tmp_path, "ready", end)
    with capture_logs() as logs:
        async with supervised(healthy, weak) as running:
            await trio.to_thread.run_sync(eventually, lambda: len(notes(tmp_path, 2)) >= 4)
            running.supervisor.request_stop("the test")
    assert notes(tmp_path, 1) == ["started", "DRAIN"]
    pauses = [line["restart_seconds"] for line in logs if line["event"] == "a worker ended"]
    assert pauses[:3] == [0.01, 0.02, 0.04]


async def test_a_restarted_worker_serves_again(tmp_path: Path) -> None:
    healthy = launch(1, tmp_path, "ready", "obey")
    async with supervised(healthy, launch(2, tmp_path, "once", "ready", "obey")) as running:
        await until_noted(tmp_path, 2, ["started", "started"])
        await running.ready.wait()
        running.supervisor.request_stop("the test")
    assert notes(tmp_path, 2) == ["started", "started", "DRAIN"]
    assert running.code == 0


async def test_a_request_ends_a_long_pause(tmp_path: Path) -> None:
    patient = RestartPolicy(first=1_000, longest=1_000)
    healthy = launch(1, tmp_path, "ready", "obey")
    async with supervised(healthy, launch(2, tmp_path, "crash"), policy=patient) as running:
        await running.ready.wait()
        await until_noted(tmp_path, 2, ["started"])
        running.supervisor.request_stop("the test")
    assert running.ended.is_set()
    assert notes(tmp_path, 2) == ["started"]


# -- workers that cannot start --


@pytest.fixture
def restored_signals() -> Iterator[None]:
    """Handle signals after a test as before: a supervisor ignores them when it has ended."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


async def test_a_configuration_error_of_all_workers_is_the_error_of_the_supervisor(
    tmp_path: Path, restored_signals: None
) -> None:
    launches = [launch(number, tmp_path, "refuse") for number in (1, 2)]
    with real_timeout(), pytest.raises(ConfigurationError, match=r"^agent: there is none$"):
        await run_supervisor(partial(Supervisor, launches, 30, policy=QUICK))


async def test_workers_that_all_crash_are_not_started_for_ever(tmp_path: Path) -> None:
    async with supervised(*(launch(number, tmp_path, "crash") for number in (1, 2))) as running:
        await running.ended.wait()
    assert running.code == 1
    assert running.supervisor.refusal == ""


async def test_one_that_is_refused_beside_one_that_serves_is_tried_again(tmp_path: Path) -> None:
    healthy = launch(1, tmp_path, "ready", "obey")
    async with supervised(healthy, launch(2, tmp_path, "refuse")) as running:
        await trio.to_thread.run_sync(eventually, lambda: len(notes(tmp_path, 2)) >= 3)
        await running.ready.wait()
        running.supervisor.request_stop("the test")
    assert notes(tmp_path, 1) == ["started", "DRAIN"]


async def test_a_command_that_does_not_exist(tmp_path: Path) -> None:
    missing = Launch(1, lambda _channel: [str(tmp_path / "missing")])
    with capture_logs() as logs:
        async with supervised(missing) as running:
            await running.ended.wait()
    assert running.code == 1
    assert "No such file" in next(line["how"] for line in logs if line["event"] == "a worker ended")


# -- the end of the supervisor --

SUPERVISOR = """
import sys
from functools import partial
from pathlib import Path
import trio
from hermes_trio import logs
from hermes_trio.server.workers import Supervisor, run_supervisor
from tests.server.test_workers import launch
logs.configure("error", "text")
folder = Path(sys.argv[1])
launches = [launch(number, folder, "ready", "obey") for number in (1, 2)]
on_ready = partial(print, "ready", flush=True)
sys.exit(trio.run(run_supervisor, partial(Supervisor, launches, 30, on_ready)))
"""


def start_supervisor(folder: Path) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-c", SUPERVISOR, str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], 30)[0]
    eventually(lambda: notes(folder, 1)[:1] == notes(folder, 2)[:1] == ["started"])
    return process


def test_workers_notice_that_the_supervisor_was_killed(tmp_path: Path) -> None:
    with start_supervisor(tmp_path) as process:
        process.kill()
    for number in (1, 2):
        eventually(lambda number=number: notes(tmp_path, number) == ["started", "lost"])  # type: ignore[misc]
    eventually(lambda: processes(str(tmp_path)) == [])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_terminal_signals_only_the_supervisor(tmp_path: Path, number: int) -> None:
    with start_supervisor(tmp_path) as process:
        os.killpg(process.pid, number)  # as Ctrl-C does
        assert has_ended(process, 30)
    assert process.returncode == 0
    assert notes(tmp_path, 1) == notes(tmp_path, 2) == ["started", "DRAIN"]
