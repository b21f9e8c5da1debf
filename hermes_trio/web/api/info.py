"""Information about the server: health, models, capabilities, settings, version, metrics."""

from __future__ import annotations

from typing import Any

import trio
from attrs import asdict
from prometheus_client import CONTENT_TYPE_LATEST
from quart import Blueprint, Response

from hermes_trio import __version__
from hermes_trio.schema.openapi import document
from hermes_trio.stores.base import CommitCounter, StoreError
from hermes_trio.web.auth import model_names, model_not_found
from hermes_trio.web.errors import json_response
from hermes_trio.web.metrics import Metrics, Snapshot
from hermes_trio.web.request import app_state, in_thread
from hermes_trio.web.state import AppState
from hermes_trio.web.workers import WorkerReport, explain, merge_metrics

PLATFORM = "hermes-agent"  # what clients of the Hermes API server look for

# for everyone to read
FALLBACK_IN_USE = "the store could not be opened: records are kept in memory until the server stops"

blueprint = Blueprint("info", __name__)


@blueprint.get("/health")
@blueprint.get("/v1/health", endpoint="health_v1")
@blueprint.get("/health/live", endpoint="live")
async def health() -> Response:
    """Report that the process responds."""
    return json_response({"status": "ok", "platform": PLATFORM, "version": __version__})


@blueprint.get("/health/ready")
async def ready() -> Response:
    """Report whether the server takes new runs, with all of its workers."""
    reason = await why_not_ready()
    if not reason:
        # It serves, as it was told to, so a load balancer must not take it out.
        lost = {"status": "degraded", "reason": FALLBACK_IN_USE}
        return json_response(lost if app_state().health.store_fallback else {"status": "ok"})
    return json_response({"status": "unavailable", "reason": reason}, 503, {"Retry-After": "1"})


async def why_not_ready() -> str:
    """Return why the server, with all of its workers, takes no new runs; "" if it does."""
    health = app_state().health
    reason = health.is_ready()
    if not reason and health.workers is not None:
        reason = explain(await health.workers.collect())
    return reason


@blueprint.get("/health/detailed")
async def detailed() -> Response:
    """Report the state of each component."""
    state = app_state()
    store = await check_store()
    reason = state.health.is_ready()
    gateway_state = activity()
    checks = {
        "store": store,
        "gateway": {"status": "ok" if not reason else "degraded", "state": gateway_state},
    }
    status = "ok" if all(check["status"] == "ok" for check in checks.values()) else "degraded"
    return json_response(
        {
            "status": status,
            "readiness": {"status": status, "checks": checks},
            "platform": PLATFORM,
            "version": __version__,
            "gateway_state": gateway_state,
            "platforms": {},
            "active_agents": len(state.services.registry),
            "slots": {"in_use": state.admission.in_use, "limit": state.admission.limit},
            "tasks": trio.lowlevel.current_statistics().tasks_living,
            "gateway_busy": len(state.services.registry) > 0,
            "gateway_drainable": True,
            "drain_remaining_seconds": drain_remaining(),
            "exit_reason": None,
            **state.health.details(),
        }
    )


def activity() -> str:
    """Return what the server does, in the terms of the Hermes gateway."""
    return "draining" if app_state().admission.is_draining else "running"


def drain_remaining() -> float | None:
    """Return for how many seconds live runs may still end by themselves; None without a drain."""
    deadline = app_state().admission.drain_deadline
    return None if deadline is None else max(0.0, deadline - trio.current_time())


async def check_store() -> dict[str, str]:
    """Report whether the store can be read, and nothing else is known against it."""
    state = app_state()
    try:
        await state.services.store.check()
    except StoreError as error:
        problem = str(error)
    else:
        problem = state.health.store_fallback or state.health.store_problem()
    return {"status": "degraded", "detail": problem} if problem else {"status": "ok"}


@blueprint.get("/v1/models")
async def list_models() -> Response:
    """List the models that the caller may name."""
    return json_response(
        {"object": "list", "data": [_model_object(name) for name in model_names()]}
    )


@blueprint.get("/v1/models/<path:model_id>")
async def get_model(model_id: str) -> Response:
    """Return one model."""
    if model_id not in model_names():
        raise model_not_found(model_id)
    return json_response(_model_object(model_id))


def _model_object(name: str) -> dict[str, Any]:
    created = int(app_state().services.wall_clock())
    return {
        "id": name,
        "object": "model",
        "created": created,
        "owned_by": "hermes",
        "permission": [],
        "root": name,
        "parent": None,
    }


@blueprint.get("/version")
async def version() -> Response:
    """Return the version."""
    return json_response({"version": __version__})


@blueprint.get("/openapi.json")
async def openapi() -> Response:
    """Return the OpenAPI document."""
    return json_response(document(__version__, app_state().options.root_path))


@blueprint.get("/metrics")
async def metrics() -> Response:
    """Return the metrics in Prometheus' text format, those of all workers together."""
    text = await collect_metrics(app_state())
    return Response(text, 200, {"Content-Type": CONTENT_TYPE_LATEST})


async def collect_metrics(state: AppState) -> bytes:
    """Return the metrics of all workers in Prometheus' text format."""
    workers = state.health.workers
    if workers is None:
        return await _render_metrics(state)
    reports = await workers.collect()
    own = await report_worker(state, workers.number)
    return await in_thread(merge_metrics, [own, *reports])


async def report_worker(state: AppState, number: int) -> WorkerReport:
    """Return what the other workers of a server need to know of this one."""
    text = await _render_metrics(state)
    return WorkerReport(number, state.health.is_ready(), text.decode())


async def _render_metrics(state: AppState) -> bytes:
    state.metrics.observe_state(await _snapshot(state))
    # The metrics are needed most when no thread can be started.
    return await in_thread(Metrics.render, state.metrics)


async def _snapshot(state: AppState) -> Snapshot:
    """Read what other components count. The time that a checkpoint takes is the scheduler's lag."""
    began = trio.current_time()
    await trio.lowlevel.checkpoint()
    services = state.services
    return Snapshot(
        active_runs=len(services.registry),
        slots_in_use=state.admission.in_use,
        slots=state.admission.limit,
        streams=state.services.stats.open_streams,
        tool_calls=dict(services.stats.tool_calls),
        events=services.stats.events + sum(run.log.end for run in services.registry),
        commits=services.store.commits if isinstance(services.store, CommitCounter) else 0,
        unsaved_ends=len(services.flusher.ends),
        is_ready=not state.health.is_ready(),
        is_store_working=not (state.health.store_fallback or state.health.store_problem()),
        lag=trio.current_time() - began,
    )


@blueprint.get("/v1/settings")
async def list_settings() -> Response:
    """List the settings of the server, secrets masked."""
    shown = [asdict(setting) for setting in app_state().options.settings]
    return json_response({"object": "list", "data": shown})


FEATURES_ON = (
    "chat_completions", "chat_completions_streaming", "responses_api", "responses_streaming",
    "responses_resume", "responses_background", "conversations_api", "idempotency", "tool_progress_events",
    "reasoning_streaming", "run_submission", "run_list", "run_status", "run_events_sse", "run_stop",
    "run_tickets", "run_approval_response", "approval_events", "session_resources", "session_chat", "session_chat_streaming",
    "session_fork", "skills_api", "jobs_admin",
)  # fmt: skip
FEATURES_OFF = (
    "admin_config_rw", "memory_write_api", "audio_api",
    "realtime_voice",
)  # fmt: skip
ENDPOINTS = {
    "health": ("GET", "/health"),
    "health_detailed": ("GET", "/health/detailed"),
    "models": ("GET", "/v1/models"),
    "skills": ("GET", "/v1/skills"),
    "toolsets": ("GET", "/v1/toolsets"),
    "model_options": ("GET", "/api/model/options"),
    "chat_completions": ("POST", "/v1/chat/completions"),
    "responses": ("POST", "/v1/responses"),
    "response": ("GET", "/v1/responses/{response_id}"),
    "response_cancel": ("POST", "/v1/responses/{response_id}/cancel"),
    "conversations": ("POST", "/v1/conversations"),
    "runs": ("POST", "/v1/runs"),
    "run_list": ("GET", "/v1/runs"),
    "run_status": ("GET", "/v1/runs/{run_id}"),
    "run_events": ("GET", "/v1/runs/{run_id}/events"),
    "run_ticket": ("POST", "/v1/runs/{run_id}/ticket"),
    "run_stop": ("POST", "/v1/runs/{run_id}/stop"),
    "run_approval": ("POST", "/v1/runs/{run_id}/approval"),
    "response_approval": ("POST", "/v1/responses/{response_id}/approval"),
    "approvals": ("GET", "/v1/approvals"),
    "sessions": ("GET", "/api/sessions"),
    "session_create": ("POST", "/api/sessions"),
    "session": ("GET", "/api/sessions/{session_id}"),
    "session_update": ("PATCH", "/api/sessions/{session_id}"),
    "session_delete": ("DELETE", "/api/sessions/{session_id}"),
    "session_messages": ("GET", "/api/sessions/{session_id}/messages"),
    "session_fork": ("POST", "/api/sessions/{session_id}/fork"),
    "session_chat": ("POST", "/api/sessions/{session_id}/chat"),
    "session_chat_stream": ("POST", "/api/sessions/{session_id}/chat/stream"),
    "jobs": ("GET", "/api/jobs"),
    "job_create": ("POST", "/api/jobs"),
    "job": ("GET", "/api/jobs/{job_id}"),
    "job_update": ("PATCH", "/api/jobs/{job_id}"),
    "job_delete": ("DELETE", "/api/jobs/{job_id}"),
    "job_pause": ("POST", "/api/jobs/{job_id}/pause"),
    "job_resume": ("POST", "/api/jobs/{job_id}/resume"),
    "job_run": ("POST", "/api/jobs/{job_id}/run"),
    "cron_fire": ("POST", "/api/cron/fire"),
}


@blueprint.get("/v1/capabilities")
async def capabilities() -> Response:
    """Return what this server can do, in the terms of the Hermes API server."""
    features: dict[str, Any] = dict.fromkeys(FEATURES_ON, True) | dict.fromkeys(FEATURES_OFF, False)
    features["session_continuity_header"] = "X-Hermes-Session-Id"
    features["session_key_header"] = "X-Hermes-Session-Key"
    features["cors"] = bool(app_state().options.cors_origins)
    return json_response(
        {
            "object": "hermes.api_server.capabilities",
            "platform": PLATFORM,
            "model": next(iter(model_names()), ""),
            "auth": {"type": "bearer", "required": True},
            "runtime": {
                "mode": "server_agent",
                "tool_execution": "server",
                "split_runtime": False,
                "description": "Agents and their tools run on the API-server host.",
            },
            "features": features,
            "endpoints": {name: {"method": m, "path": p} for name, (m, p) in ENDPOINTS.items()},
        }
    )
