"""Jobs: what is run on a schedule, and what is known of its runs."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from attrs import evolve, frozen

from hermes_trio.core.outcome import Status
from hermes_trio.core.records import NOTHING, EndedRun

ID_DIGITS = 12
KIND = "cron"  # of the runs that jobs start


class ScheduleKind(StrEnum):
    """How a schedule is given."""

    ONCE = "once"
    INTERVAL = "interval"
    CRON = "cron"


@frozen
class Schedule:
    """When a job is due. Only the field of its kind is set."""

    kind: ScheduleKind
    display: str  # for people
    run_at: float = 0.0  # seconds since the epoch
    minutes: int = 0
    expr: str = ""


class JobState(StrEnum):
    """What becomes of a job."""

    SCHEDULED = "scheduled"
    PAUSED = "paused"
    COMPLETED = "completed"  # it has run as often as it was to
    MISSED = "missed"  # its only time passed while no server ran


class LastResult(StrEnum):
    """How the last run of a job ended."""

    NONE = ""  # it has not run, or the run is in progress
    OK = "ok"
    ERROR = "error"


@frozen
class Job:
    """A job. Field names are part of the stored form. A time of 0 means that there is none."""

    principal: str  # the owner of its record, and of those of its runs
    job_id: str
    name: str
    prompt: str
    schedule: Schedule
    created_at: float
    next_run_at: float = 0.0
    key_name: str = ""  # of the key that gave it its form, and whose limits hold for its runs
    skills: tuple[str, ...] = ()
    deliver: str = "local"
    origin: Mapping[str, Any] = NOTHING
    max_runs: int = 0  # 0: no limit
    runs: int = 0  # how many count towards the limit
    starts: int = 0  # how many runs it has ever started
    is_enabled: bool = True
    state: JobState = JobState.SCHEDULED
    paused_at: float = 0.0
    last_run_at: float = 0.0
    last_run_id: str = ""
    last_result: LastResult = LastResult.NONE
    last_error: str = ""
    last_ended_at: float = 0.0
    revision: int = 0  # counts the changes; a store replaces only the revision that was read

    @property
    def due_at(self) -> float:
        """When the job is to run next; 0 if it is not to."""
        return self.next_run_at if self.is_enabled else 0.0

    @property
    def is_awaiting_result(self) -> bool:
        """Whether nothing is known yet of the end of its last run."""
        return bool(self.last_run_id) and self.last_result is LastResult.NONE

    @property
    def next_run_id(self) -> str:
        """The id of its next run. The same on every node, so that a run is never begun twice."""
        named = f"{self.principal}\n{self.job_id}\n{self.created_at!r}\n{self.starts}"
        return f"run_{hashlib.sha256(named.encode()).hexdigest()[:32]}"

    def started(self, now: float, next_run_at: float) -> Job:
        """Return the job once its next run has begun."""
        job = evolve(
            self,
            next_run_at=next_run_at,
            runs=self.runs + 1,
            starts=self.starts + 1,
            last_run_at=now,
            last_run_id=self.next_run_id,
            last_result=LastResult.NONE,
            last_error="",
            last_ended_at=0.0,
        )
        is_over = not next_run_at or (self.max_runs and job.runs >= self.max_runs)
        return job.finished(JobState.COMPLETED) if is_over else job

    def finished(self, state: JobState) -> Job:
        """Return the job when it is not to run any more."""
        return evolve(self, next_run_at=0.0, is_enabled=False, state=state)

    def ended(self, run: EndedRun) -> Job:
        """Return the job once its last run has ended."""
        outcome, ended_at = run.outcome, run.header.stamp.created_at + run.ended_after
        if outcome.status is Status.COMPLETED:
            return evolve(self, last_result=LastResult.OK, last_ended_at=ended_at)
        error = outcome.failure.message or str(outcome.reason)
        return evolve(self, last_result=LastResult.ERROR, last_error=error, last_ended_at=ended_at)

    def paused(self, now: float) -> Job:
        """Return the job when it is not to run until it is resumed."""
        return evolve(self, is_enabled=False, state=JobState.PAUSED, paused_at=now)

    def scheduled(self, next_run_at: float) -> Job:
        """Return the job when it is to run at some time."""
        return evolve(
            self,
            next_run_at=next_run_at,
            is_enabled=True,
            state=JobState.SCHEDULED,
            paused_at=0.0,
        )


@frozen
class NoJob:
    """The job does not exist, or belongs to another principal."""
