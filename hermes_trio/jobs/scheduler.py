"""The scheduler: starts the runs of jobs when they are due.

It is one task, which sleeps until the next job is due or one has changed. What it knows is in the
store: a run begins in the transaction that moves its job on to the next time, so that every run
begins once, on whichever node, however often processes end in between.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import tzinfo
from enum import StrEnum
from functools import partial

import structlog
import trio
from attrs import evolve, frozen

from hermes_trio.core.errors import ApiError
from hermes_trio.core.jobs import Job, JobState, LastResult, NoJob
from hermes_trio.core.records import EndedRun, LiveRun
from hermes_trio.jobs.schedules import grace_seconds, next_run
from hermes_trio.runs.run import JobChanged, Run
from hermes_trio.stores.base import JobStore, RunStore, Store, StoreError

# How long to sleep at most. Clocks are set, machines are suspended, and jobs are changed on other
# nodes, none of which wakes this task.
LOOK_SECONDS = 60.0
MIN_SECONDS = 1.0
RETRY_SECONDS = 5.0  # while the store fails, or there is no slot
BATCH = 100  # jobs that are read at once
_BUSY = frozenset({429, 503})

log = structlog.get_logger(__name__)

Start = Callable[[Job, Job], Awaitable[Run]]
"""Start the run of a job, which becomes the second one with that.

Raises:
    ApiError: 429 or 503 if there is no slot for it now, 4xx if it cannot run.
    JobChanged: the job is not what it was when it was read.
    StoreError: the store does not take the run.
"""


class MissedJobs(StrEnum):
    """What becomes of the times that passed while no server ran."""

    RUN = "run"  # once, for all times that were missed
    SKIP = "skip"


@frozen
class JobRules:
    """How the schedules of a server are read."""

    zone: tzinfo
    missed: MissedJobs = MissedJobs.RUN


class Scheduler:
    """Starts the runs of all jobs of a store. Create it in Trio."""

    def __init__(self, store: Store, wall_clock: Callable[[], float], rules: JobRules) -> None:
        self._store, self._clock, self._rules = store, wall_clock, rules
        self._changed = trio.Event()
        self._error = ""  # why the store failed, as it was logged
        # Starts of which the store has not said whether it took them, by the id of the run: the
        # job, and what becomes of it.
        self._unsure: dict[str, tuple[Job, Job]] = {}

    @property
    def zone(self) -> tzinfo:
        """The time zone of schedules."""
        return self._rules.zone

    def wake(self) -> None:
        """Look for jobs that are due: one was added or changed."""
        self._changed.set()
        self._changed = trio.Event()

    async def run(self, start: Start) -> None:
        """Start runs until cancelled."""
        self._start = start
        async with trio.open_nursery() as nursery:
            while True:
                changed = self._changed
                with trio.move_on_after(await self._look(nursery)):
                    await changed.wait()

    async def _look(self, nursery: trio.Nursery) -> float:
        """Start what is due, and return for how long to sleep."""
        try:
            refused = await self._start_due(nursery)
            seconds = await self._store.next_due_job() - self._clock()
        except StoreError as error:
            if str(error) != self._error:
                log.error("jobs cannot be run", error=str(error))
            self._error = str(error)
            return RETRY_SECONDS
        except Exception:
            log.exception("jobs cannot be run")  # a bug of ours, which must not end the server
            return LOOK_SECONDS
        self._error = ""
        return RETRY_SECONDS if refused else min(max(seconds, MIN_SECONDS), LOOK_SECONDS)

    async def _start_due(self, nursery: trio.Nursery) -> int:
        """Start every job that is due. Return how many there was no slot for."""
        refused = 0
        for job, started in [*self._unsure.values()]:
            await self._try(nursery, job, partial(self._begin, job, started))
        while jobs := await self._store.list_due_jobs(self._clock(), BATCH, refused):
            for job in jobs:
                refused += not await self._try(nursery, job, partial(self._start_one, job))
        return refused + len(self._unsure)

    async def _try(
        self, nursery: trio.Nursery, job: Job, start: Callable[[], Awaitable[Run | None]]
    ) -> bool:
        """Start the run of a job and wait for its end in the nursery. Return False without a slot."""
        try:
            run = await start()
        except ApiError as error:
            log.info("a job waits", job_id=job.job_id, error=error.message)
            return False
        if run is not None:
            nursery.start_soon(self._note_end, job, run)
        return True

    async def _start_one(self, job: Job) -> Run | None:
        """Start a job that is due, or move it on to its next time.

        Raises:
            ApiError: there is no slot for it now.
            StoreError: the store fails.
        """
        now, zone = self._clock(), self._rules.zone
        next_run_at = next_run(job.schedule, now, zone, job.next_run_at)
        is_late = now - job.next_run_at > grace_seconds(job.schedule, job.next_run_at, zone)
        if is_late and self._rules.missed is MissedJobs.SKIP:
            log.warning("a job has missed its time", job_id=job.job_id)
            await self._store.replace_job(_moved_on(job, next_run_at))
            return None
        if await self.is_running(job):
            log.warning("a job is due while it runs", job_id=job.job_id)
            await self._store.replace_job(_moved_on(job, next_run_at))
            return None
        try:
            return await self._begin(job, job.started(now, next_run_at))
        except ApiError as error:
            if error.status in _BUSY:
                raise
            log.error("a job cannot run", job_id=job.job_id, error=error.message)
            failed = evolve(job, last_result=LastResult.ERROR, last_error=error.message)
            await self._store.replace_job(_moved_on(failed, next_run_at))
            return None

    async def _begin(self, job: Job, started: Job) -> Run | None:
        """Start the run of a job, unless that has been done.

        If the store fails, it may have begun the run all the same. Then only this node can tell,
        which asks it again.
        """
        try:
            run = await self._start(job, started)
        except JobChanged:
            run = None
        except StoreError:
            self._unsure[started.last_run_id] = job, started
            raise
        self._unsure.pop(started.last_run_id, None)
        return run

    async def is_running(self, job: Job) -> bool:
        """Return whether the last run of a job is in progress, on whichever node."""
        if not job.is_awaiting_result:
            return False
        return isinstance(await self._store.find_run(job.principal, job.last_run_id), LiveRun)

    async def _note_end(self, job: Job, run: Run) -> None:
        """Wait for the end of a run, and store in its job how it ended.

        If that fails, or this process ends before, ``with_result`` finds it out.
        """
        await run.ended.wait()
        try:
            while True:
                found = await self._store.find_job(job.principal, job.job_id)
                if isinstance(found, NoJob) or found.last_run_id != run.header.run_id:
                    return
                ended = await with_result(self._store, found)
                if ended is found or await self._store.replace_job(ended):
                    return
        except StoreError as error:
            log.warning("the end of a job was not noted", job_id=job.job_id, error=str(error))


def _moved_on(job: Job, next_run_at: float) -> Job:
    if next_run_at:
        return evolve(job, next_run_at=next_run_at)
    return job.finished(JobState.MISSED)


async def with_result(store: RunStore, job: Job) -> Job:
    """Return a job with the result of its last run, if that has ended."""
    if not job.is_awaiting_result:
        return job
    found = await store.find_run(job.principal, job.last_run_id)
    return job.ended(found) if isinstance(found, EndedRun) else job


async def change_job(
    store: JobStore, principal: str, job_id: str, change: Callable[[Job], Job]
) -> Job | NoJob:
    """Change a job, whoever else does at the same time, and return it.

    ``change`` may be called several times; what it raises is raised.
    """
    while True:
        found = await store.find_job(principal, job_id)
        if isinstance(found, NoJob):
            return found
        changed = change(found)
        if await store.replace_job(changed):
            return evolve(changed, revision=found.revision + 1)
