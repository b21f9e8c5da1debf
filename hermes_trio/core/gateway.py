"""The health of a gateway, read from what its health routes answer: where they are, and what an answer means.

A gateway is a server that runs agents: this program or the API server of hermes-agent. What another one
answers is not trusted: it is cut to a size that can be shown, and masked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from attrs import frozen

from hermes_trio.core.redact import redact
from hermes_trio.core.shorten import shorten

DETAILS = "/health/detailed"  # needs a key on most gateways
HEALTH = "/health"
_MAX_CHARS = 200
_MAX_PLATFORMS = 50
_OK = frozenset({"ok", "healthy"})
_SUFFIXES = ("/health/detailed", "/health", "/v1")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_ADDRESS = re.compile(r"https?://[^\s/?#@]+(/[^\s?#@]*)?")
_NO_ADDRESS = (
    "the value is not an address such as http://127.0.0.1:8642, without user, key or query"
)


class GatewayState(StrEnum):
    """Whether a gateway works."""

    UP = "up"
    DEGRADED = "degraded"  # it answers, but something is wrong
    DOWN = "down"


@frozen
class GatewayStatus:
    """What is known about a gateway at one moment."""

    state: GatewayState
    reason: str = ""  # why it is not up, or why nothing more is known
    url: str | None = None  # None for this server itself
    version: str | None = None
    pid: int | None = None  # None for another gateway: its number means nothing here
    activity: str | None = None  # such as running or draining
    platforms: Mapping[str, str] = MappingProxyType({})  # their states by name
    exit_reason: str | None = None
    active_agents: int | None = None
    updated_at: float | str | None = None  # as the gateway wrote it


@frozen
class HealthAnswer:
    """The answer of one health route."""

    status: int
    body: Any  # JSON, None if it is not JSON


@frozen
class NoHealth:
    """A health route did not answer."""

    reason: str
    is_reachable: bool = False  # the gateway took the connection


def normalize_gateway_url(text: str) -> str:
    """Return the base URL of a gateway from what people write.

    The scheme may be missing, and the path may end in ``/``, ``/v1`` or a health route.

    Raises:
        ValueError: it is not an address. The message does not repeat it, because it may contain a key.
    """
    url = text.strip()
    url = url if _SCHEME.match(url) else f"http://{url}"
    try:
        is_address = _ADDRESS.fullmatch(url) is not None and urlsplit(url).port != 0
    except ValueError:
        is_address = False
    if not is_address:
        raise ValueError(_NO_ADDRESS)
    url = url.rstrip("/")
    while found := next((end for end in _SUFFIXES if url.endswith(end)), None):
        url = url.removesuffix(found).rstrip("/")
    return url


def needs_plain_health(answer: HealthAnswer | NoHealth) -> bool:
    """Return whether ``HEALTH`` has to be asked because ``DETAILS`` did not say enough."""
    return answer.is_reachable if isinstance(answer, NoHealth) else not _is_report(answer)


def read_gateway(
    url: str, details: HealthAnswer | NoHealth, health: HealthAnswer | NoHealth | None
) -> GatewayStatus:
    """Judge a gateway by the answers of ``DETAILS`` and, if that was asked, of ``HEALTH``."""
    last = details if health is None else health
    if isinstance(last, NoHealth):
        return GatewayStatus(GatewayState.DOWN, last.reason, url)
    return _read_details(url, last.body) if health is None else _read_health(url, details, last)


def _read_health(url: str, details: HealthAnswer | NoHealth, health: HealthAnswer) -> GatewayStatus:
    if not _is_report(health):
        what = f"status {health.status}" if health.status != 200 else "something else than health"
        return GatewayStatus(GatewayState.DOWN, f"{HEALTH} answers with {what}", url)
    version = _text(health.body, "version")
    if problem := _problem(health.body):
        return GatewayStatus(GatewayState.DEGRADED, problem, url, version)
    if isinstance(details, NoHealth):
        state, reason = GatewayState.DEGRADED, f"{DETAILS}: {details.reason}"
    elif details.status in {401, 403}:
        state, reason = GatewayState.UP, f"no details: {DETAILS} needs a key, or another one"
    else:
        state = GatewayState.DEGRADED if details.status >= 500 else GatewayState.UP
        reason = f"no details: {DETAILS} answers with status {details.status}"
    return GatewayStatus(state, reason, url, version)


def report_gateway(status: GatewayStatus) -> dict[str, Any]:
    """Return a status as it is shown as JSON."""
    return {
        "state": str(status.state),
        "reason": status.reason,
        "gateway_running": status.state is not GatewayState.DOWN,
        "gateway_state": status.activity,
        "gateway_pid": status.pid,
        "gateway_version": status.version,
        "gateway_platforms": dict(status.platforms),
        "gateway_exit_reason": status.exit_reason,
        "gateway_updated_at": status.updated_at,
        "gateway_health_url": status.url,
        "active_agents": status.active_agents,
    }


def _is_report(answer: HealthAnswer) -> bool:
    return answer.status == 200 and isinstance(answer.body, dict) and "status" in answer.body


def _read_details(url: str, body: Mapping[str, Any]) -> GatewayStatus:
    problem = _problem(body)
    updated_at = body.get("updated_at")
    return GatewayStatus(
        GatewayState.DEGRADED if problem else GatewayState.UP,
        problem,
        url,
        version=_text(body, "version"),
        activity=_text(body, "gateway_state"),
        platforms=_read_platforms(body.get("platforms")),
        exit_reason=_text(body, "exit_reason"),
        active_agents=_number(body.get("active_agents")),
        updated_at=_clean(updated_at) if isinstance(updated_at, str) else _number(updated_at),
    )


def _problem(body: Mapping[str, Any]) -> str:
    """Return what a report says is wrong, "" if nothing is."""
    if str(body.get("status")).lower() in _OK:
        return ""
    readiness = body.get("readiness")
    checks = readiness.get("checks") if isinstance(readiness, dict) else None
    failed = [
        f"{name}: {each.get('detail') or each.get('state') or each.get('status')}"
        for name, each in (checks.items() if isinstance(checks, dict) else ())
        if isinstance(each, dict) and str(each.get("status")).lower() not in _OK
    ]
    return _clean("; ".join(failed) or f"its status is {body.get('status')}")


def _read_platforms(value: Any) -> dict[str, str]:
    """Return the states of platforms, which gateways give as texts or in objects."""
    platforms = {}
    for name, each in list(value.items())[:_MAX_PLATFORMS] if isinstance(value, dict) else ():
        state = each.get("state", each.get("status")) if isinstance(each, dict) else each
        platforms[_clean(str(name))] = _clean(str(state))
    return platforms


def _text(body: Mapping[str, Any], name: str) -> str | None:
    value = body.get(name)
    return _clean(value) if isinstance(value, str) and value else None


def _number(value: Any) -> Any:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _clean(text: str) -> str:
    shown = "".join(each if each.isprintable() else " " for each in text[: 10 * _MAX_CHARS])
    return shorten(redact(shown), _MAX_CHARS)
