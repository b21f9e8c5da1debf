"""Jobs: what becomes of them when they run, end, pause and go on."""

from __future__ import annotations

import pytest
from attrs import evolve

from hermes_trio.core.jobs import Job, JobState, LastResult, Schedule, ScheduleKind
from hermes_trio.core.outcome import Failure, Outcome, Reason, Status
from hermes_trio.core.records import EndedRun, RunHeader, Stamp

HOURLY = Schedule(ScheduleKind.INTERVAL, "every 60m", minutes=60)
JOB = Job("ann", "0123456789ab", "hourly", "Look.", HOURLY, 1.0, next_run_at=100.0)


def ended(outcome: Outcome) -> EndedRun:
    return EndedRun(RunHeader("ann", Stamp("r", 50.0, "m"), "cron", "s", ()), (), outcome, 2.5)


def test_a_run_moves_a_job_on() -> None:
    job = JOB.started(101.0, 200.0)
    assert (job.runs, job.starts, job.due_at) == (1, 1, 200.0)
    assert (job.last_run_at, job.last_run_id) == (101.0, JOB.next_run_id)
    assert job.is_awaiting_result
    assert not JOB.is_awaiting_result


def test_every_run_has_an_id_of_its_own() -> None:
    later = JOB.started(101.0, 200.0)
    others = [evolve(JOB, principal="bob"), evolve(JOB, job_id="x"), evolve(JOB, created_at=2.0)]
    assert len({each.next_run_id for each in (JOB, later, *others)}) == 5
    assert JOB.next_run_id == evolve(JOB, name="other", revision=7).next_run_id


@pytest.mark.parametrize(("next_run_at", "max_runs"), [(0.0, 0), (200.0, 1)])
def test_a_last_run_ends_a_job(next_run_at: float, max_runs: int) -> None:
    job = evolve(JOB, max_runs=max_runs).started(101.0, next_run_at)
    assert (job.state, job.is_enabled, job.due_at) == (JobState.COMPLETED, False, 0.0)


def test_a_job_goes_on_before_its_last_run() -> None:
    assert evolve(JOB, max_runs=2).started(101.0, 200.0).state is JobState.SCHEDULED


@pytest.mark.parametrize(
    ("outcome", "result", "error"),
    [
        (Outcome(Status.COMPLETED), LastResult.OK, ""),
        (Outcome(Status.FAILED, failure=Failure("gone", "x")), LastResult.ERROR, "gone"),
        (Outcome(Status.INCOMPLETE, Reason.TIMEOUT), LastResult.ERROR, "timeout"),
    ],
)
def test_the_end_of_a_run(outcome: Outcome, result: LastResult, error: str) -> None:
    job = JOB.started(101.0, 200.0).ended(ended(outcome))
    assert (job.last_result, job.last_error, job.last_ended_at) == (result, error, 52.5)
    assert not job.is_awaiting_result


def test_pause_and_resume() -> None:
    paused = JOB.paused(5.0)
    assert (paused.due_at, paused.state, paused.paused_at) == (0.0, JobState.PAUSED, 5.0)
    assert paused.scheduled(100.0) == JOB
