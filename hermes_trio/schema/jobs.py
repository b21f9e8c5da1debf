"""Bodies and replies of the Jobs API."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import msgspec
from attrs import frozen

from hermes_trio.core.errors import bad_request
from hermes_trio.schema.parsing import convert, parse_object

MAX_NAME_CHARS = 200
MAX_PROMPT_CHARS = 5000
MAX_RUNS = 1_000_000
MAX_SKILLS = 50


@frozen
class JobBody:
    """A job to create. Unknown fields are ignored."""

    name: str | None = None
    schedule: str | None = None
    prompt: str | None = None
    deliver: str | None = None
    skills: list[str] | str | None = None
    skill: str | None = None
    repeat: int | None = None


class JobUpdateBody(msgspec.Struct, frozen=True):
    """Changes to a job. Fields that are left out stay as they are; others are ignored."""

    name: str | msgspec.UnsetType = msgspec.UNSET
    schedule: str | msgspec.UnsetType = msgspec.UNSET
    prompt: str | msgspec.UnsetType | None = msgspec.UNSET
    deliver: str | msgspec.UnsetType | None = msgspec.UNSET
    skills: list[str] | str | msgspec.UnsetType | None = msgspec.UNSET
    skill: str | msgspec.UnsetType | None = msgspec.UNSET
    repeat: int | msgspec.UnsetType | None = msgspec.UNSET
    enabled: bool | msgspec.UnsetType = msgspec.UNSET


@frozen
class FireBody:
    """The job that is to run now."""

    job_id: str = ""


@frozen
class NewJob:
    """A parsed request for a new job."""

    name: str
    schedule: str
    prompt: str
    skills: tuple[str, ...]
    max_runs: int  # 0 for no limit


@frozen
class JobUpdate:
    """A parsed request for a change. Whatever is None stays as it is."""

    name: str | None = None
    schedule: str | None = None
    prompt: str | None = None
    skills: tuple[str, ...] | None = None
    max_runs: int | None = None
    is_enabled: bool | None = None


def parse_job(raw: bytes) -> NewJob:
    """Parse the body of a new job.

    Raises:
        ApiError: 400, naming the invalid parameter.
    """
    body = convert(parse_object(raw), JobBody)
    job = NewJob(
        _name(body.name or ""),
        _schedule(body.schedule or ""),
        _prompt(body.prompt or ""),
        _skills(body.skills, body.skill),
        _max_runs(body.repeat),
    )
    _check_delivery(body.deliver)
    if not job.prompt and not job.skills:
        raise bad_request("Prompt is required, unless there are skills.", "prompt")
    return job


def parse_job_update(raw: bytes) -> JobUpdate:
    """Parse the changes to a job.

    Raises:
        ApiError: 400, naming the invalid parameter.
    """
    body = convert(parse_object(raw), JobUpdateBody)
    given = {
        name: value
        for name in body.__struct_fields__
        if (value := getattr(body, name)) is not msgspec.UNSET
    }
    if not given:
        known = ", ".join(body.__struct_fields__)
        raise bad_request(f"No valid fields to update. There are: {known}.")
    _check_delivery(given.get("deliver"))
    has_skills = "skills" in given or "skill" in given
    return JobUpdate(
        _name(given["name"]) if "name" in given else None,
        _schedule(given["schedule"]) if "schedule" in given else None,
        _prompt(given["prompt"] or "") if "prompt" in given else None,
        _skills(given.get("skills"), given.get("skill")) if has_skills else None,
        _max_runs(given["repeat"]) if "repeat" in given else None,
        given.get("enabled"),
    )


def parse_fire(raw: bytes) -> str:
    """Parse the body of a request to run a job; return the job's id.

    Raises:
        ApiError: 400, naming the invalid parameter.
    """
    job_id = convert(parse_object(raw), FireBody).job_id
    if not job_id:
        raise bad_request("The job_id is missing.", "job_id")
    return job_id


def _name(given: str) -> str:
    name = given.strip()
    if not name:
        raise bad_request("Name is required.", "name")
    if len(name) > MAX_NAME_CHARS:
        raise bad_request(f"Name must be at most {MAX_NAME_CHARS} characters long.", "name")
    return name


def _schedule(given: str) -> str:
    if not given.strip():
        raise bad_request("Schedule is required.", "schedule")
    return given


def _prompt(given: str) -> str:
    if len(given) > MAX_PROMPT_CHARS:
        raise bad_request(f"Prompt must be at most {MAX_PROMPT_CHARS} characters long.", "prompt")
    return given


def _skills(skills: Iterable[str] | str | None, skill: str | None) -> tuple[str, ...]:
    if skills is None:
        skills = [skill or ""]
    named = [skills] if isinstance(skills, str) else skills
    found = tuple(dict.fromkeys(filter(None, (each.strip() for each in named))))
    if len(found) > MAX_SKILLS or any(len(each) > MAX_NAME_CHARS for each in found):
        raise bad_request(f"Skills must be at most {MAX_SKILLS} names.", "skills")
    return found


def _max_runs(repeat: int | None) -> int:
    if repeat is not None and not 1 <= repeat <= MAX_RUNS:
        raise bad_request(f"Repeat must be a positive integer of at most {MAX_RUNS}.", "repeat")
    return repeat or 0


def _check_delivery(deliver: str | None) -> None:
    if deliver not in (None, "", "local"):
        message = f"This server cannot deliver to '{deliver}': results are stored runs ('local')."
        raise bad_request(message, "deliver", "unsupported_delivery")


# -- replies --


@frozen
class JobSchedule:
    """When a job is due. Which of the last three is there depends on the kind."""

    kind: Literal["once", "interval", "cron"]
    display: str
    run_at: str | None = None
    minutes: int | None = None
    expr: str | None = None


@frozen
class JobRepeat:
    """How often a job is to run (null: without end), and how often it has."""

    times: int | None
    completed: int


@frozen
class JobObject:
    """A job. Times are in ISO format."""

    id: str
    name: str
    prompt: str
    skills: list[str]
    skill: str | None
    model: None
    provider: None
    provider_snapshot: None
    model_snapshot: None
    base_url: None
    script: None
    no_agent: bool
    context_from: None
    schedule: JobSchedule
    schedule_display: str
    repeat: JobRepeat
    enabled: bool
    state: Literal["scheduled", "paused", "completed", "missed"]
    paused_at: str | None
    paused_reason: None
    created_at: str
    next_run_at: str | None
    last_run_at: str | None
    last_run_id: str | None
    last_status: Literal["ok", "error"] | None
    last_error: str | None
    last_delivery_error: None
    deliver: str
    origin: dict[str, Any]
    enabled_toolsets: None
    workdir: None
    latest_execution: dict[str, Any] | None = None  # in lists


@frozen
class JobReply:
    """A job."""

    job: JobObject


@frozen
class JobList:
    """The jobs of the caller, oldest first."""

    jobs: list[JobObject]


@frozen
class JobDeleted:
    """A job was deleted."""

    ok: bool


@frozen
class JobFired:
    """The request to run a job was accepted."""

    status: Literal["accepted"]
    job_id: str
