"""What the server says about itself: health, models, capabilities, version, metrics."""

from __future__ import annotations

from typing import Any

import trio
from attrs import asdict
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from quart import Response

from hermes_trio import __version__
from hermes_trio.schema.openapi import document
from hermes_trio.stores.contract import CountsCommits, StoreError
from hermes_trio.web.errors import json_response
from hermes_trio.web.metrics import Metrics, Seen
from hermes_trio.web.options import Site
from hermes_trio.web.profiles import choose, model_names, no_model

PLATFORM = "hermes-agent"  # what clients of today's server look for


async def health() -> Response:
    """The process answers."""
    return json_response({"status": "ok", "platform": PLATFORM, "version": __version__})


async def ready(site: Site) -> Response:
    """New runs are welcome."""
    reason = site.health.is_ready()
    if not reason:
        return json_response({"status": "ok"})
    return json_response({"status": "unavailable", "reason": reason}, 503, {"Retry-After": "1"})


async def detailed(site: Site) -> Response:
    """The state of the parts, for people and dashboards."""
    store = await _store_check(site)
    reason = site.health.is_ready()
    state = "draining" if site.admission.is_draining else "running"
    checks = {"store": store, "gateway": {"status": "ok" if not reason else "degraded", "state": state}}
    status = "ok" if all(check["status"] == "ok" for check in checks.values()) else "degraded"
    return json_response(
        {
            "status": status,
            "readiness": {"status": status, "checks": checks},
            "platform": PLATFORM,
            "version": __version__,
            "gateway_state": state,
            "platforms": {},
            "active_agents": len(site.services.registry),
            "slots": {"in_use": site.admission.in_use, "limit": site.admission.limit},
            "tasks": trio.lowlevel.current_statistics().tasks_living,
            "gateway_busy": len(site.services.registry) > 0,
            "gateway_drainable": True,
            "exit_reason": None,
            **site.health.details(),
        }
    )


async def _store_check(site: Site) -> dict[str, str]:
    try:
        await site.services.store.check()
    except StoreError as error:
        return {"status": "degraded", "detail": str(error)}
    return {"status": "ok"}


async def models(site: Site) -> Response:
    """The models that can be asked for."""
    return json_response({"object": "list", "data": [_model(site, name) for name in model_names(site)]})


async def model(site: Site, model_id: str) -> Response:
    """One of them."""
    if model_id not in model_names(site):
        raise no_model(model_id)
    return json_response(_model(site, model_id))


def _model(site: Site, name: str) -> dict[str, Any]:
    created = int(site.services.wall_clock())
    return {
        "id": name,
        "object": "model",
        "created": created,
        "owned_by": "hermes",
        "permission": [],
        "root": name,
        "parent": None,
    }


async def version() -> Response:
    """The version, alone."""
    return json_response({"version": __version__})


async def openapi() -> Response:
    """The description of this API."""
    return json_response(document(__version__))


async def metrics(site: Site, counters: Metrics) -> Response:
    """Prometheus text. Rendering takes milliseconds, so a thread does it; it is wanted most where there is none left."""
    counters.observe_state(len(site.services.registry), site.admission.in_use, await _seen(site))
    try:
        text = await trio.to_thread.run_sync(generate_latest, counters.registry)
    except RuntimeError:
        text = generate_latest(counters.registry)
    return Response(text, 200, {"Content-Type": CONTENT_TYPE_LATEST})


async def _seen(site: Site) -> Seen:
    """What is counted elsewhere. Its own wait is the lag: how long a task that could go on has to wait for the others."""
    began = trio.current_time()
    await trio.lowlevel.checkpoint()
    services = site.services
    return Seen(
        streams=site.services.stats.open_streams,
        events=services.stats.events + sum(run.log.end for run in services.registry),
        commits=services.store.commits if isinstance(services.store, CountsCommits) else 0,
        lag=trio.current_time() - began,
    )


async def settings(site: Site) -> Response:
    """What the operator chose, secrets masked."""
    return json_response({"object": "list", "data": [asdict(shown) for shown in site.options.settings]})


FEATURES_ON = (
    "chat_completions", "chat_completions_streaming", "responses_api", "responses_streaming",
    "responses_resume", "responses_background", "conversations_api", "idempotency", "tool_progress_events",
    "reasoning_streaming", "run_submission", "run_list", "run_status", "run_events_sse", "run_stop",
    "run_approval_response", "approval_events", "session_resources", "session_chat", "session_chat_streaming",
    "session_fork",
)  # fmt: skip
FEATURES_OFF = (
    "skills_api", "admin_config_rw", "jobs_admin", "memory_write_api", "audio_api",
    "realtime_voice",
)  # fmt: skip
ENDPOINTS = {
    "health": ("GET", "/health"),
    "health_detailed": ("GET", "/health/detailed"),
    "models": ("GET", "/v1/models"),
    "chat_completions": ("POST", "/v1/chat/completions"),
    "responses": ("POST", "/v1/responses"),
    "response": ("GET", "/v1/responses/{response_id}"),
    "response_cancel": ("POST", "/v1/responses/{response_id}/cancel"),
    "conversations": ("POST", "/v1/conversations"),
    "runs": ("POST", "/v1/runs"),
    "run_list": ("GET", "/v1/runs"),
    "run_status": ("GET", "/v1/runs/{run_id}"),
    "run_events": ("GET", "/v1/runs/{run_id}/events"),
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
}


async def capabilities(site: Site) -> Response:
    """What this server can do, in the words of today's server."""
    features: dict[str, Any] = dict.fromkeys(FEATURES_ON, True) | dict.fromkeys(FEATURES_OFF, False)
    features["session_continuity_header"] = "X-Hermes-Session-Id"
    features["session_key_header"] = "X-Hermes-Session-Key"
    features["cors"] = bool(site.options.cors_origins)
    return json_response(
        {
            "object": "hermes.api_server.capabilities",
            "platform": PLATFORM,
            "model": choose(site, "").model,
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
