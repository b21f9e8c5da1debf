"""The scheduler, in a whole server whose time the test controls."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC
from typing import Any

import pytest
from structlog.testing import capture_logs
from trio.testing import MockClock, wait_all_tasks_blocked

from hermes_trio.core.events import Result, Text, Verdict
from hermes_trio.core.jobs import Job
from hermes_trio.core.records import Ownership, RunHeader
from hermes_trio.jobs.scheduler import LOOK_SECONDS, RETRY_SECONDS, JobRules, MissedJobs
from hermes_trio.keys import Keyring, NamedKey
from hermes_trio.runs.recovery import recover
from hermes_trio.stores.base import StoreError
from hermes_trio.stores.sqlite import MemoryStore
from tests.support.fakes import (
    HELLO,
    KEY,
    OTHER_KEY,
    AppHarness,
    Pause,
    open_harness,
)
from tests.support.jobs_api import (
    JOBS,
    created,
    found,
    job_of,
    listed,
    pass_time,
    runs_of,
    trio_clock,
)

MINUTE = 60.0
HOUR = 3600.0


@asynccontextmanager
async def server(script: Any = HELLO, end: Any = None, **more: Any) -> AsyncIterator[AppHarness]:
    """A server whose time is that of Trio."""
    async with open_harness(script, end, wall_clock=trio_clock, **more) as harness:
        yield harness


# -- runs --


async def test_a_job_runs_when_it_is_due(mock_clock: MockClock) -> None:
    async with server() as harness:
        job = await created(harness)
        await pass_time(mock_clock, 30 * MINUTE - 1, harness)
        assert await runs_of(harness, job) == []
        await pass_time(mock_clock, 1, harness)
        [run] = await runs_of(harness, job)
        assert (run["status"], run["kind"], run["job_id"]) == ("completed", "cron", job["id"])
        now = await found(harness, job)
        assert (now["last_run_id"], now["last_status"]) == (run["run_id"], "ok")
        assert (now["state"], now["repeat"]) == ("scheduled", {"times": None, "completed": 1})
        whole = (await harness.client.get(f"/v1/runs/{run['run_id']}")).json
        assert (whole["output"], whole["job_id"]) == ("Hello world", job["id"])


async def test_the_agent_gets_the_prompt_in_a_new_session(mock_clock: MockClock) -> None:
    async with server() as harness:
        job = await created(harness)
        for _ in range(2):
            await pass_time(mock_clock, 30 * MINUTE, harness)
        first, second = harness.agents.turns
        assert (first.message, first.history, first.principal) == ("Look around.", (), "ann")
        assert first.session_id.startswith(f"cron_{job['id']}_")
        assert (second.history, second.run_id != first.run_id) == ((), True)
        assert second.session_id != first.session_id
        said = [("user", "Look around."), ("assistant", "Hello world")]
        assert await harness.transcript(second.session_id) == said


async def test_an_interval_keeps_its_step(mock_clock: MockClock) -> None:
    async with server() as harness:
        job = await created(harness)
        times = []
        for _ in range(3):
            await pass_time(mock_clock, 30 * MINUTE, harness)
            times.append((await found(harness, job))["next_run_at"])
        assert len(await runs_of(harness, job)) == 3
        assert [time[11:16] for time in times] == ["23:13", "23:43", "00:13"]


async def test_a_job_that_is_to_run_once_is_over_then(mock_clock: MockClock) -> None:
    async with server() as harness:
        job = await created(harness, schedule="in 2h")
        await pass_time(mock_clock, 2 * HOUR, harness)
        assert await listed(harness) == []
        [over] = await listed(harness, "?include_disabled=true")
        assert (over["state"], over["enabled"], over["next_run_at"]) == ("completed", False, None)
        assert (over["last_status"], over["repeat"]) == ("ok", {"times": 1, "completed": 1})
        assert over["latest_execution"]["status"] == "completed"
        await pass_time(mock_clock, 24 * HOUR, harness)
        assert len(await runs_of(harness, job)) == 1


async def test_a_job_runs_as_often_as_it_is_to(mock_clock: MockClock) -> None:
    async with server() as harness:
        job = await created(harness, repeat=2)
        for _ in range(4):
            await pass_time(mock_clock, 30 * MINUTE, harness)
        assert len(await runs_of(harness, job)) == 2
        assert (await found(harness, job))["state"] == "completed"


async def test_a_failure_is_told(mock_clock: MockClock) -> None:
    result = Result(verdict=Verdict.FAILED, error="the model is gone")
    async with server([Text("…")], result) as harness:
        job = await created(harness)
        await pass_time(mock_clock, 30 * MINUTE, harness)
        now = await found(harness, job)
        assert (now["last_status"], now["last_error"]) == ("error", "the model is gone")
        assert now["state"] == "scheduled"


async def test_a_new_job_wakes_the_scheduler(mock_clock: MockClock) -> None:
    async with server() as harness:
        await created(harness, schedule="every 1d")
        await wait_all_tasks_blocked()
        soon = await created(harness, schedule="1m")
        await pass_time(mock_clock, MINUTE, harness)
        assert len(await runs_of(harness, soon)) == 1


async def test_a_deleted_job_does_not_run(mock_clock: MockClock) -> None:
    async with server() as harness:
        job = await created(harness)
        assert (await harness.client.get(f"{JOBS}/{job['id']}", method="DELETE")).status == 200
        await pass_time(mock_clock, HOUR, harness)
        assert harness.agents.turns == []


async def test_a_paused_job_does_not_run(mock_clock: MockClock) -> None:
    async with server() as harness:
        job = await created(harness)
        await harness.client.send(f"{JOBS}/{job['id']}/pause", {})
        await pass_time(mock_clock, HOUR, harness)
        assert harness.agents.turns == []
        resumed = job_of(await harness.client.send(f"{JOBS}/{job['id']}/resume", {}))
        assert resumed["state"] == "scheduled"
        await pass_time(mock_clock, 30 * MINUTE, harness)
        assert len(harness.agents.turns) == 1


async def test_nothing_is_approved_in_the_absence_of_people(mock_clock: MockClock) -> None:
    async with server() as harness:
        await created(harness)
        await pass_time(mock_clock, 30 * MINUTE, harness)
        [run] = harness.state.services.registry.runs  # type: ignore[attr-defined]
        assert run._spec.can_ask is False


# -- at the wrong time --


async def test_a_job_does_not_run_twice_at_once(mock_clock: MockClock) -> None:
    pause = Pause()
    async with server([pause, Text(".")]) as harness:
        job = await created(harness)
        mock_clock.jump(30 * MINUTE)
        await pause.wait_reached()
        assert (await found(harness, job))["last_status"] is None
        refused = await harness.client.send(f"{JOBS}/{job['id']}/run", {})
        assert (refused.status, refused.error["code"]) == (409, "job_running")
        with capture_logs() as logged:
            mock_clock.jump(30 * MINUTE)
            await wait_all_tasks_blocked()
        assert [line["event"] for line in logged] == ["a job is due while it runs"]
        pause.go()
        await harness.until_idle()
        assert len(await runs_of(harness, job)) == 1
        assert (await found(harness, job))["next_run_at"][11:16] == "23:43"


async def test_a_job_waits_for_a_slot(mock_clock: MockClock) -> None:
    pause = Pause()
    async with server([pause, Text(".")], max_runs=1) as harness:
        job = await created(harness, schedule="30m")
        other = await harness.client.send("/v1/runs", {"input": "Hi"})
        await pause.wait_reached()
        mock_clock.jump(30 * MINUTE)
        await wait_all_tasks_blocked()
        assert await runs_of(harness, job) == []
        pause.go()
        await harness.until_idle()
        await pass_time(mock_clock, RETRY_SECONDS, harness)
        assert other.status == 202
        assert len(await runs_of(harness, job)) == 1


async def test_what_was_missed_is_made_up_for_once(mock_clock: MockClock) -> None:
    store = MemoryStore()
    async with server(store=store) as harness:
        job = await created(harness)
    mock_clock.jump(10 * HOUR)
    async with server(store=store) as harness:
        await pass_time(mock_clock, 0, harness)
        assert len(await runs_of(harness, job)) == 1
        await pass_time(mock_clock, 30 * MINUTE, harness)
        assert len(await runs_of(harness, job)) == 2


@pytest.mark.parametrize(
    ("schedule", "state", "next_run_at"),
    [("every 30m", "scheduled", "08:43"), ("in 2h", "missed", None)],
)
async def test_what_was_missed_can_be_skipped(
    mock_clock: MockClock, schedule: str, state: str, next_run_at: str | None
) -> None:
    store = MemoryStore()
    async with server(store=store) as harness:
        job = await created(harness, schedule=schedule)
    mock_clock.jump(10 * HOUR)
    rules = JobRules(UTC, MissedJobs.SKIP)
    async with server(store=store, job_rules=rules) as harness:
        await pass_time(mock_clock, 0, harness)
        assert await runs_of(harness, job) == []
        now = await found(harness, job)
        assert now["state"] == state
        assert (now["next_run_at"] or "")[11:16] == (next_run_at or "")


async def test_a_job_without_its_key_does_not_run(mock_clock: MockClock) -> None:
    store = MemoryStore()
    async with server(store=store) as harness:
        job = await created(harness)
    bob = Keyring((NamedKey("bob", OTHER_KEY),))
    async with server(store=store, keyring=bob) as harness:
        await pass_time(mock_clock, 30 * MINUTE, harness)
        assert harness.agents.turns == []
    async with server(store=store) as harness:
        now = await found(harness, job)
        assert (now["last_status"], "does not exist any more" in now["last_error"]) == (
            "error",
            True,
        )
        assert KEY not in now["last_error"]


# -- restarts, crashes and other nodes --


async def test_a_restart_neither_loses_nor_repeats_a_run(mock_clock: MockClock) -> None:
    store = MemoryStore()
    for _ in range(3):
        async with server(store=store) as harness:
            if not await listed(harness):
                job = await created(harness, schedule="30m")
            await pass_time(mock_clock, 30 * MINUTE, harness)
    async with server(store=store) as harness:
        assert len(await runs_of(harness, job)) == 1


class SilentStore(MemoryStore):
    """A store that does what it is told, and once, or always, loses the answer."""

    def __init__(self, times: float) -> None:
        super().__init__()
        self.times = times

    async def begin_job_run(self, job: Job, header: RunHeader, ownership: Ownership) -> bool:
        begun = await super().begin_job_run(job, header, ownership)
        self.times -= 1
        if self.times >= 0:
            raise StoreError("the connection is lost")
        return begun


async def test_a_run_whose_beginning_was_not_confirmed_begins_once(mock_clock: MockClock) -> None:
    async with server(store=SilentStore(times=2)) as harness:
        job = await created(harness)
        with capture_logs():
            await pass_time(mock_clock, 30 * MINUTE, harness)
            assert harness.agents.turns == []
            for _ in range(2):
                await pass_time(mock_clock, RETRY_SECONDS, harness)
        assert len(harness.agents.turns) == 1
        [run] = await runs_of(harness, job)
        assert run["status"] == "completed"


async def test_a_crash_after_the_beginning_does_not_repeat_the_run(mock_clock: MockClock) -> None:
    store = SilentStore(times=math.inf)
    async with server(store=store) as harness:
        job = await created(harness)
        with capture_logs():
            await pass_time(mock_clock, 30 * MINUTE, harness)
    store.times = 0
    await recover(store, "next", lambda ended: ())
    async with server(store=store, node="next") as harness:
        await pass_time(mock_clock, 0, harness)
        assert harness.agents.turns == []
        [run] = await runs_of(harness, job)
        assert (run["status"], run["reason"]) == ("failed", "process_died")
        now = await found(harness, job)
        assert (now["last_status"], now["last_error"]) == (
            "error",
            "The server process ended during the run.",
        )
        await pass_time(mock_clock, 30 * MINUTE, harness)
        assert len(harness.agents.turns) == 1


async def test_two_schedulers_start_a_job_once(mock_clock: MockClock) -> None:
    store = MemoryStore()
    async with (
        server(store=store, max_runs=9) as one,
        server(store=store, max_runs=9, node="other") as two,
    ):
        jobs = [await created(one, name=f"job {number}") for number in range(5)]
        for _ in range(3):
            await pass_time(mock_clock, 30 * MINUTE, one, two)
        assert [len(await runs_of(two, job)) for job in jobs] == [3] * 5
        assert len(one.agents.turns) + len(two.agents.turns) == 15


async def test_another_node_runs_what_this_one_cannot(mock_clock: MockClock) -> None:
    store = MemoryStore()
    async with server(store=store, node="other") as two:
        await wait_all_tasks_blocked()
        async with server(store=store) as one:
            job = await created(one, schedule="30m")
        await pass_time(mock_clock, 30 * MINUTE, two)
        await pass_time(mock_clock, LOOK_SECONDS, two)
        assert len(await runs_of(two, job)) == 1


class FailingStore(MemoryStore):
    """A store that fails to read the jobs while ``is_broken``."""

    is_broken = False

    async def list_due_jobs(self, now: float, limit: int, offset: int = 0) -> tuple[Job, ...]:
        if self.is_broken:
            raise StoreError("the disk is on fire")
        return await super().list_due_jobs(now, limit, offset)


async def test_a_store_that_fails_is_asked_again(mock_clock: MockClock) -> None:
    store = FailingStore()
    async with server(store=store) as harness:
        job = await created(harness, schedule="30m")
        await wait_all_tasks_blocked()
        store.is_broken = True
        with capture_logs() as logged:
            await pass_time(mock_clock, 30 * MINUTE, harness)
            await pass_time(mock_clock, RETRY_SECONDS, harness)
        assert [line["event"] for line in logged] == ["jobs cannot be run"]
        store.is_broken = False
        await pass_time(mock_clock, RETRY_SECONDS, harness)
        assert len(await runs_of(harness, job)) == 1


async def test_a_bug_does_not_end_the_server(mock_clock: MockClock) -> None:
    class Faulty(FailingStore):
        async def next_due_job(self) -> float:
            if self.is_broken:
                raise ZeroDivisionError
            return await super().next_due_job()

        async def list_due_jobs(self, now: float, limit: int, offset: int = 0) -> tuple[Job, ...]:
            return await MemoryStore.list_due_jobs(self, now, limit, offset)

    store = Faulty()
    async with server(store=store) as harness:
        job = await created(harness, schedule="30m")
        await wait_all_tasks_blocked()
        store.is_broken = True
        with capture_logs() as logged:
            await pass_time(mock_clock, 30 * MINUTE, harness)
        assert [line["log_level"] for line in logged if line["event"] == "jobs cannot be run"] == [
            "error"
        ]
        store.is_broken = False
        later = await created(harness, schedule="5m")
        await pass_time(mock_clock, 5 * MINUTE, harness)
        assert [len(await runs_of(harness, each)) for each in (job, later)] == [1, 1]


async def test_a_run_that_was_not_confirmed_waits_for_a_slot(mock_clock: MockClock) -> None:
    pause = Pause()
    async with server([pause, Text(".")], store=SilentStore(times=1), max_runs=1) as harness:
        job = await created(harness)
        with capture_logs():
            mock_clock.jump(30 * MINUTE)
            await wait_all_tasks_blocked()
            await harness.client.send("/v1/runs", {"input": "Hi"})
            await pause.wait_reached()
            mock_clock.jump(RETRY_SECONDS)
            await wait_all_tasks_blocked()
            assert len(harness.agents.turns) == 1
            pause.go()
            await harness.until_idle()
            await pass_time(mock_clock, RETRY_SECONDS, harness)
        assert [turn.message for turn in harness.agents.turns] == ["Hi", "Look around."]
        assert [run["status"] for run in await runs_of(harness, job)] == ["completed"]
