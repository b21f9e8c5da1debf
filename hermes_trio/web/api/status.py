"""What operators ask: how this server is, or another gateway that it watches, and who stores how much."""

from __future__ import annotations

from collections import Counter
from typing import Any

from attrs import asdict
from quart import Blueprint, Response

from hermes_trio import __version__
from hermes_trio.core.gateway import GatewayState, GatewayStatus, report_gateway
from hermes_trio.schema.replies import PrincipalList, PrincipalUsage
from hermes_trio.stores.base import SharedStore, StoreError
from hermes_trio.web.api.info import activity, check_store, why_not_ready
from hermes_trio.web.auth import model_names, require_admin
from hermes_trio.web.errors import json_response
from hermes_trio.web.request import app_state
from hermes_trio.web.state import AppState

blueprint = Blueprint("status", __name__)


@blueprint.get("/api/status")
async def status() -> Response:
    """Report how the gateway is, and what this process does."""
    state = app_state()
    store = await check_store()
    if state.health.probe_gateway is None:
        gateway = await _own_status(state, store)
    else:
        gateway = await state.health.probe_gateway()
    return json_response(
        {
            "object": "hermes.status",
            "version": __version__,
            **report_gateway(gateway),
            "server": {
                **_process(state),
                "agents": model_names(),
                "live_runs": len(state.services.registry),
                "slots": {"in_use": state.admission.in_use, "limit": state.admission.limit},
                "store": {"kind": state.health.store_kind, **store},
                "nodes": await _nodes(state),
            },
        }
    )


async def _own_status(state: AppState, store: dict[str, str]) -> GatewayStatus:
    reason = await why_not_ready() or store.get("detail", "")
    details = state.health.details()
    return GatewayStatus(
        GatewayState.DEGRADED if reason else GatewayState.UP,
        reason,
        version=__version__,
        pid=details["pid"],
        activity=activity(),
        active_agents=len(state.services.registry),
        updated_at=details["updated_at"],
    )


def _process(state: AppState) -> dict[str, Any]:
    uptime = state.services.clock() - state.health.started
    return {
        "pid": state.health.details()["pid"],
        "started_at": state.services.wall_clock() - uptime,
        "uptime_seconds": uptime,
    }


async def _nodes(state: AppState) -> list[dict[str, Any]]:
    """List the servers that share the store; empty if none can, or if it does not answer."""
    store = state.services.store
    if not isinstance(store, SharedStore):
        return []
    try:
        found = await store.list_nodes()
    except StoreError:
        return []  # the state of the store says why
    return [{**asdict(node), "is_this": node.name == state.services.owner} for node in found]


@blueprint.get("/api/principals")
async def list_principals() -> Response:
    """List the principals that store anything, whichever profiles they use, in alphabetical order."""
    require_admin()
    runs: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for usage in await app_state().services.store.list_usages():
        name = usage.principal.partition("/")[0]  # without the profile of a prefix
        runs[name] += usage.runs
        sizes[name] += usage.size
    shown = [PrincipalUsage(name, runs[name], sizes[name]) for name in sorted(sizes)]
    return json_response(asdict(PrincipalList(shown)))
