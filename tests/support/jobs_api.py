"""Create, read and control jobs."""

from __future__ import annotations

from typing import Any

import msgspec
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from hermes_trio.schema.jobs import JobList, JobReply
from tests.support.asgi import HttpResponse, real_timeout
from tests.support.fakes import EPOCH, AppHarness

JOBS = "/api/jobs"
HALF_HOURLY = {"name": "watch", "schedule": "every 30m", "prompt": "Look around."}
Json = dict[str, Any]


def job_of(answer: HttpResponse) -> Json:
    """Return the job of a reply."""
    assert answer.status == 200, answer.body
    msgspec.convert(answer.json, JobReply)
    return dict(answer.json["job"])


async def created(harness: AppHarness, **changes: Any) -> Json:
    """Create a job."""
    return job_of(await harness.client.send(JOBS, {**HALF_HOURLY, **changes}))


async def found(harness: AppHarness, job: Json) -> Json:
    """Return a job as it is now."""
    return job_of(await harness.client.get(f"{JOBS}/{job['id']}"))


async def ended(harness: AppHarness, job: Json) -> Json:
    """Return a job once its last run has ended."""
    with real_timeout():
        while (now := await found(harness, job))["last_status"] is None:
            await harness.until_idle()
    return now


async def listed(harness: AppHarness, query: str = "") -> list[Json]:
    """Return the list of jobs."""
    answer = await harness.client.get(f"{JOBS}{query}")
    assert answer.status == 200, answer.body
    msgspec.convert(answer.json, JobList)
    return list(answer.json["jobs"])


async def runs_of(harness: AppHarness, job: Json) -> list[Json]:
    """Return the runs of a job, oldest first."""
    answer = await harness.client.get("/v1/runs?kind=cron&order=asc&limit=100")
    assert answer.status == 200, answer.body
    return [run for run in answer.json["data"] if run["job_id"] == job["id"]]


def trio_clock() -> float:
    """The wall clock of a server whose time is that of Trio."""
    return EPOCH + trio.current_time()


async def pass_time(clock: MockClock, seconds: float, *harnesses: AppHarness) -> None:
    """Let time pass, and everything happen that is due at its end."""
    clock.jump(seconds)
    for _ in range(3):  # a run ends, what waits for its end goes on, and what was late starts
        await wait_all_tasks_blocked()
        for harness in harnesses:
            await harness.until_idle()
