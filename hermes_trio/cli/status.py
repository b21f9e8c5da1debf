"""``hermes-trio status``: how the server is, or another gateway."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import trio
from attrs import frozen

from hermes_trio.cli.target import NoKey, find_key, find_target
from hermes_trio.client.api_client import RequestRefused, ServerUnreachable, open_client
from hermes_trio.core.errors import ConfigurationError
from hermes_trio.core.gateway import (
    GatewayState,
    GatewayStatus,
    normalize_gateway_url,
    report_gateway,
)
from hermes_trio.gateway_probe import Gateway, probe
from hermes_trio.settings import Settings

Report = Mapping[str, Any]  # as ``GET /api/status`` answers


@frozen
class StatusFlags:
    """The arguments of ``hermes-trio status``."""

    url: str = ""
    key_file: str | None = None
    as_json: bool = False


def main(settings: Settings, flags: StatusFlags) -> int:
    """Print the status. Return 0 if the gateway is up, 1 if it is degraded or down.

    Raises:
        ConfigurationError: the address is invalid, or this machine's server does not accept the request.
    """
    report = trio.run(_fetch, settings, flags)
    if flags.as_json:
        click.echo(json.dumps(report, indent=2))
    else:
        for line in format_report(report):
            click.echo(line)
    return 0 if report["state"] == GatewayState.UP else 1


async def _fetch(settings: Settings, flags: StatusFlags) -> Report:
    """Ask the gateway that is named, else the one of the settings, else this machine's server."""
    key_file = Path(flags.key_file) if flags.key_file else None
    named = flags.url or settings.gateway_health_url
    if not named:
        return await _ask_own_server(settings, key_file)
    try:
        url = normalize_gateway_url(named)
    except ValueError as error:
        raise ConfigurationError(f"url: {error}") from None
    key: str | NoKey = settings.gateway_health_key
    if flags.url or key_file is not None:
        key = find_key(settings, url, key_file)
    sent = "" if isinstance(key, NoKey) else key
    return report_gateway(await probe(Gateway(url, settings.gateway_health_seconds, sent)))


async def _ask_own_server(settings: Settings, key_file: Path | None) -> Report:
    target = find_target(settings, key_file=key_file)
    # The server may ask another gateway twice before it answers.
    seconds = 2 * settings.gateway_health_seconds + 1
    try:
        with trio.fail_after(seconds):
            async with open_client(target) as client:
                return await client.call("GET", "/api/status")
    except trio.TooSlowError:
        reason = f"no answer within {seconds:g} s"
    except ServerUnreachable as error:
        reason = str(error)
    except RequestRefused as refusal:
        raise ConfigurationError(f"{target.url}: {refusal}") from None
    return report_gateway(GatewayStatus(GatewayState.DOWN, reason, target.url))


def format_report(report: Report) -> Iterator[str]:
    """Yield one line for each fact that is known."""
    rows = {"state": report["state"], "reason": report["reason"]}
    rows["address"] = report.get("gateway_health_url")
    rows["version"] = report.get("gateway_version")
    rows["activity"] = report.get("gateway_state")
    rows["pid"] = report.get("gateway_pid")
    rows["live runs"] = report.get("active_agents")
    platforms = report.get("gateway_platforms") or {}
    rows["platforms"] = ", ".join(f"{name}: {state}" for name, state in platforms.items())
    rows["exit reason"] = report.get("gateway_exit_reason")
    server = report.get("server")
    if server is not None:
        store = server["store"]
        slots = server["slots"]
        rows["uptime"] = _format_seconds(server["uptime_seconds"])
        rows["agents"] = ", ".join(server["agents"])
        rows["slots"] = f"{slots['in_use']} of {slots['limit'] or 'any number'}"
        rows["store"] = f"{store['kind']}, {store['status']}"
        rows["nodes"] = ", ".join(_format_node(node) for node in server["nodes"])
    for name, value in rows.items():
        if value not in (None, ""):
            yield f"{name:12}{value}"


def _format_node(node: Mapping[str, Any]) -> str:
    marks = ["this one"] * node["is_this"] + ["dead"] * (not node["is_alive"])
    return f"{node['name']} ({', '.join(marks)})" if marks else str(node["name"])


def _format_seconds(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = ((days, "d"), (hours, "h"), (minutes, "min"), (rest, "s"))
    return " ".join(f"{number} {unit}" for number, unit in parts if number) or "0 s"
