"""Starting the run of a job: as an API does it, without a request."""

from __future__ import annotations

from datetime import datetime, tzinfo
from functools import partial

from hermes_trio.core.access import Principal
from hermes_trio.core.errors import ApiError
from hermes_trio.core.jobs import KIND, Job
from hermes_trio.core.messages import Message
from hermes_trio.core.records import Stamp
from hermes_trio.keys import Anonymous
from hermes_trio.runs.disconnects import DETACH
from hermes_trio.runs.run import Run
from hermes_trio.runs.spec import Persistence
from hermes_trio.schema.parsing import SessionHeaders
from hermes_trio.web.auth import ChosenAgent
from hermes_trio.web.start_run import Caller, NewRun, RunKind, TurnInput, make_spec
from hermes_trio.web.state import AppState

JOBS = RunKind(KIND, "run_", 32)


async def start_job(state: AppState, zone: tzinfo, job: Job, started: Job) -> Run:
    """Start the run of a job. See ``Start`` of the scheduler."""
    now = state.services.wall_clock()
    profile = job.principal.partition("/")[2]
    owner = _find_owner(state, job, profile, now)
    agent = ChosenAgent(profile, _model(state, owner, profile))
    new = NewRun(
        JOBS,
        "",
        SessionHeaders("", ""),
        partial(_load_input, job, agent, datetime.fromtimestamp(now, zone)),
        persistence=Persistence.FULL,
        on_disconnect=DETACH,
        is_background=True,
        job=started,
    )
    slot = await state.admission.admit_run(owner.name, owner.access.quota)
    try:
        given = await new.load_input(started.last_run_id)
        stamp = Stamp(started.last_run_id, now, agent.model)
        spec = make_spec(new, given, Caller(job.principal, owner, agent), slot, stamp)
        run, client = await state.supervisor.start(spec)
    finally:
        slot.release_unused()
    client.disconnect()
    return run


def _find_owner(state: AppState, job: Job, profile: str, now: float) -> Principal:
    """Return the principal that a job runs for, with the rules of its key.

    Raises:
        ApiError: 403 if the key is gone or has expired, or does not allow the agent.
    """
    owner = state.keys.keyring.find(job.key_name)
    if isinstance(owner, Anonymous) or owner.access.expires_at <= now:
        raise _refused(f"The API key '{job.key_name}' does not exist any more, or has expired.")
    if not owner.access.allows_profile(profile):
        raise _refused(f"The API key '{job.key_name}' does not allow this agent.")
    return owner


def _model(state: AppState, owner: Principal, profile: str) -> str:
    """Return the model that a run names.

    Raises:
        ApiError: 403 if the principal may not use the profile, or there is none.
    """
    if not profile:
        return state.options.model_name
    for served in state.options.profiles:
        if served.name == profile and served.admits(owner.name):
            return served.model_name
    raise _refused(f"'{owner.name}' may not use a profile '{profile}'.")


def _refused(message: str) -> ApiError:
    return ApiError(403, message, code="insufficient_scope")


async def _load_input(job: Job, agent: ChosenAgent, at: datetime, _run_id: str) -> TurnInput:
    """Return the prompt as the first message of a new session."""
    message = job.prompt or "Do what your instructions say."
    return TurnInput(
        session_id=f"cron_{job.job_id}_{at:%Y%m%d_%H%M%S}_{job.starts}",
        message=message,
        history=(),
        instructions=_instructions(job),
        model=agent.model,
        messages=(Message("user", message),),
        echo={"job_id": job.job_id},
    )


def _instructions(job: Job) -> str:
    if not job.skills:
        return ""
    names = ", ".join(job.skills)
    return f"Use these skills, and load each of them before you begin: {names}"
