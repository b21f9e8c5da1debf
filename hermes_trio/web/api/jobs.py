"""The Jobs API: agent turns on a schedule.

A job belongs to the principal that created it, below ``/p/NAME`` to that profile. Its runs are
ordinary stored runs, each in a session of its own.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from typing import Any

from attrs import evolve
from quart import Blueprint, Response

from hermes_trio.core.errors import ApiError, bad_request
from hermes_trio.core.jobs import ID_DIGITS, Job, JobState, NoJob, Schedule, ScheduleKind
from hermes_trio.jobs.scheduler import change_job, with_result
from hermes_trio.jobs.schedules import InvalidSchedule, first_run, parse_schedule, show_time
from hermes_trio.schema.jobs import JobUpdate, parse_fire, parse_job, parse_job_update
from hermes_trio.web.api.inventory import agent_inventory
from hermes_trio.web.errors import json_response
from hermes_trio.web.request import app_state, bool_param, current_request, parse_body, principal

MAX_JOBS = 1_000  # of a principal, those included that have run as often as they were to
REPEAT_SECONDS = 60.0  # a request to fire a job again is a repetition for that long

_JOB_ID = re.compile(r"[a-f0-9]{12}")

blueprint = Blueprint("jobs", __name__)


# -- one job --


@blueprint.post("/api/jobs")
async def create_job() -> Response:
    """Create a job."""
    given = await parse_body(parse_job)
    await _check_skills(given.skills)
    now = _now()
    schedule = _parse_schedule(given.schedule, now)
    is_once = schedule.kind is ScheduleKind.ONCE
    job = Job(
        principal(),
        secrets.token_hex(ID_DIGITS // 2),
        given.name,
        given.prompt,
        schedule,
        now,
        first_run(schedule, now, app_state().scheduler.zone),
        current_request().principal.key_name,
        given.skills,
        origin={"platform": "api_server", "chat_id": "api"},
        max_runs=given.max_runs or (1 if is_once else 0),
    )
    if not await app_state().services.store.add_job(job, MAX_JOBS):
        message = f"There are {MAX_JOBS} jobs, as many as there may be. Delete some."
        raise ApiError(409, message, code="too_many_jobs")
    app_state().scheduler.wake()
    return _reply(job)


@blueprint.get("/api/jobs/<job_id>")
async def get_job(job_id: str) -> Response:
    """Return a job."""
    return _reply(await with_result(app_state().services.store, await _find(job_id)))


@blueprint.patch("/api/jobs/<job_id>")
async def update_job(job_id: str) -> Response:
    """Change some fields of a job."""
    _check_id(job_id)
    update = await parse_body(parse_job_update)
    await _check_skills(update.skills or ())
    now = _now()
    schedule = None if update.schedule is None else _parse_schedule(update.schedule, now)
    key_name = current_request().principal.key_name
    return await _change(job_id, lambda job: _updated(job, update, schedule, now, key_name))


def _updated(
    job: Job, update: JobUpdate, schedule: Schedule | None, now: float, key_name: str
) -> Job:
    changes: dict[str, Any] = {
        "name": update.name,
        "prompt": update.prompt,
        "skills": update.skills,
        "max_runs": update.max_runs,
        "schedule": schedule,
        "key_name": key_name,
    }
    job = evolve(job, **{name: value for name, value in changes.items() if value is not None})
    if not job.prompt and not job.skills:
        raise bad_request("Prompt is required, unless there are skills.", "prompt")
    if schedule is not None and job.state is not JobState.PAUSED:
        job = _scheduled(job, now)
    if update.is_enabled is False:
        job = job.paused(now)
    elif update.is_enabled and not job.is_enabled:
        job = _scheduled(job, now)
    if job.is_enabled and job.max_runs and job.runs >= job.max_runs:
        job = job.finished(JobState.COMPLETED)
    return job


@blueprint.delete("/api/jobs/<job_id>")
async def delete_job(job_id: str) -> Response:
    """Delete a job, but not its runs."""
    _check_id(job_id)
    if not await app_state().services.store.delete_job(principal(), job_id):
        raise _not_found(job_id)
    return json_response({"ok": True})


@blueprint.post("/api/jobs/<job_id>/pause")
async def pause_job(job_id: str) -> Response:
    """Keep a job from running until it is resumed."""
    _check_id(job_id)
    now = _now()
    return await _change(job_id, lambda job: job.paused(now))


@blueprint.post("/api/jobs/<job_id>/resume")
async def resume_job(job_id: str) -> Response:
    """Let a job run again at its next time."""
    _check_id(job_id)
    now = _now()
    return await _change(job_id, lambda job: _scheduled(job, now))


@blueprint.post("/api/jobs/<job_id>/run")
async def run_job(job_id: str) -> Response:
    """Let a job run now. One that was paused is resumed."""
    app_state().admission.require_open()
    job = await _find(job_id)
    if await app_state().scheduler.is_running(job):
        raise ApiError(409, "The job is running.", param="job_id", code="job_running")
    return await _run_now(job_id)


@blueprint.post("/api/cron/fire")
async def fire_job() -> Response:
    """Let a job run now, for schedulers elsewhere, which may repeat the request."""
    app_state().admission.require_open()
    job = await _find(await parse_body(parse_fire))
    is_repetition = _now() - job.last_run_at < REPEAT_SECONDS
    if job.is_enabled and not is_repetition and not await app_state().scheduler.is_running(job):
        await _run_now(job.job_id)
    return json_response({"status": "accepted", "job_id": job.job_id}, 202)


async def _run_now(job_id: str) -> Response:
    now = _now()
    return await _change(job_id, lambda job: job.scheduled(now))


async def _change(job_id: str, change: Callable[[Job], Job]) -> Response:
    """Change a job and return it."""
    state = app_state()
    job = await change_job(state.services.store, principal(), job_id, change)
    if isinstance(job, NoJob):
        raise _not_found(job_id)
    state.scheduler.wake()
    return _reply(await with_result(state.services.store, job))


# -- the list --


@blueprint.get("/api/jobs")
async def list_jobs() -> Response:
    """List the jobs of the caller: those that are to run, or all."""
    store = app_state().services.store
    jobs = [
        await with_result(store, job)
        for job in await store.list_jobs(principal())
        if job.is_enabled or bool_param("include_disabled")
    ]
    shown = [{**_job_object(job), "latest_execution": _latest_execution(job)} for job in jobs]
    return json_response({"jobs": shown})


# -- what clients see --


def _reply(job: Job) -> Response:
    return json_response({"job": _job_object(job)})


def _job_object(job: Job) -> dict[str, Any]:
    zone = app_state().scheduler.zone
    schedule: dict[str, Any] = {"kind": str(job.schedule.kind), "display": job.schedule.display}
    match job.schedule.kind:
        case ScheduleKind.ONCE:
            schedule["run_at"] = show_time(job.schedule.run_at, zone)
        case ScheduleKind.INTERVAL:
            schedule["minutes"] = job.schedule.minutes
        case ScheduleKind.CRON:
            schedule["expr"] = job.schedule.expr
    return {
        "id": job.job_id,
        "name": job.name,
        "prompt": job.prompt,
        "skills": list(job.skills),
        "skill": job.skills[0] if job.skills else None,
        "model": None,
        "provider": None,
        "provider_snapshot": None,
        "model_snapshot": None,
        "base_url": None,
        "script": None,
        "no_agent": False,
        "context_from": None,
        "schedule": schedule,
        "schedule_display": job.schedule.display,
        "repeat": {"times": job.max_runs or None, "completed": job.runs},
        "enabled": job.is_enabled,
        "state": str(job.state),
        "paused_at": show_time(job.paused_at, zone),
        "paused_reason": None,
        "created_at": show_time(job.created_at, zone),
        "next_run_at": show_time(job.due_at, zone),
        "last_run_at": show_time(job.last_run_at, zone),
        "last_run_id": job.last_run_id or None,
        "last_status": str(job.last_result) or None,
        "last_error": job.last_error or None,
        "last_delivery_error": None,
        "deliver": job.deliver,
        "origin": dict(job.origin),
        "enabled_toolsets": None,
        "workdir": None,
    }


def _latest_execution(job: Job) -> dict[str, Any] | None:
    if not job.last_run_id:
        return None
    zone = app_state().scheduler.zone
    ended = {"ok": "completed", "error": "failed"}
    return {
        "id": job.last_run_id,
        "job_id": job.job_id,
        "status": ended.get(job.last_result, "running"),
        "claimed_at": show_time(job.last_run_at, zone),
        "started_at": show_time(job.last_run_at, zone),
        "finished_at": show_time(job.last_ended_at, zone),
        "error": job.last_error or None,
    }


# -- what clients send --


def _now() -> float:
    return app_state().services.wall_clock()


def _parse_schedule(text: str, now: float) -> Schedule:
    try:
        return parse_schedule(text, now, app_state().scheduler.zone)
    except InvalidSchedule as error:
        raise bad_request(f"Invalid schedule: {error}", "schedule", "invalid_schedule") from None


def _scheduled(job: Job, now: float) -> Job:
    """Return a job that runs at its next time. One that is over counts its runs anew."""
    next_run_at = first_run(job.schedule, now, app_state().scheduler.zone)
    if not next_run_at:
        message = f"Invalid schedule: the time of this job ({job.schedule.display}) has passed."
        raise bad_request(message, "schedule", "invalid_schedule")
    is_over = job.state in (JobState.COMPLETED, JobState.MISSED)
    return (evolve(job, runs=0) if is_over else job).scheduled(next_run_at)


async def _check_skills(names: tuple[str, ...]) -> None:
    known = {skill.name for skill in (await agent_inventory("skills")).skills} if names else set()
    for name in names:
        if name not in known:
            raise bad_request(f"The agent has no skill '{name}'.", "skills", "unknown_skill")


async def _find(job_id: str) -> Job:
    _check_id(job_id)
    found = await app_state().services.store.find_job(principal(), job_id)
    if isinstance(found, NoJob):
        raise _not_found(job_id)
    return found


def _check_id(job_id: str) -> None:
    if not _JOB_ID.fullmatch(job_id):
        message = f"Invalid job ID: expected {ID_DIGITS} hexadecimal digits."
        raise bad_request(message, "job_id", "invalid_job_id")


def _not_found(job_id: str) -> ApiError:
    return ApiError(404, f"There is no job '{job_id}'.", param="job_id", code="job_not_found")
