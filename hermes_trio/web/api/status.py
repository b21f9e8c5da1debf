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
from hermes_trio.web.api.info import (
    activity,
    check_store,
    drain_remaining,
    report_worker,
    why_not_ready,
)
from hermes_trio.web.auth import model_names, require_admin
from hermes_trio.web.errors import json_response
from hermes_trio.web.metrics import ACTIVE
from hermes_trio.web.request import app_state
from hermes_trio.web.state import AppState
from hermes_trio.web.workers import WorkerReport

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
                "drain_remaining_seconds": drain_remaining(),
                "workers": await _workers(state),
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


async def _workers(state: AppState) -> list[dict[str, Any]]:
    """List the processes that serve together, this one included; empty if there is only one."""
    workers = state.health.workers
    if workers is None:
        return []
    reports = [await report_worker(state, workers.number), *await workers.collect()]
    return [
        {
            "number": report.number,
            "is_this": report.number == workers.number,
            "not_ready": report.not_ready,
            "live_runs": _read_metric(report, ACTIVE.name),
            "memory_bytes": _read_metric(report, "process_resident_memory_bytes"),
        }
        for report in sorted(reports, key=lambda report: report.number)
    ]


def _read_metric(report: WorkerReport, name: str) -> int | None:
    """Return a metric without labels; None if the worker did not answer."""
    lines = (line.split(" ") for line in (report.metrics or "").splitlines())
    return next((int(float(words[1])) for words in lines if words[0] == name), None)


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
