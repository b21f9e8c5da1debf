"""Addresses of gateways, and what their health routes say."""

from __future__ import annotations

from typing import Any

import pytest

from hermes_trio.core.gateway import (
    GatewayState,
    GatewayStatus,
    HealthAnswer,
    NoHealth,
    needs_plain_health,
    normalize_gateway_url,
    read_gateway,
    report_gateway,
)

URL = "http://other:8642"
OK = HealthAnswer(200, {"status": "ok", "platform": "hermes-agent", "version": "0.19.0"})
DETAILED = HealthAnswer(
    200,
    {
        "status": "ok",
        "version": "0.19.0",
        "gateway_state": "running",
        "platforms": {"telegram": {"state": "connected"}, "api_server": "connected"},
        "active_agents": 2,
        "exit_reason": None,
        "updated_at": "2026-01-01T00:00:00",
        "pid": 4711,
    },
)


@pytest.mark.parametrize(
    "text",
    [
        "other:8642",
        "http://other:8642",
        " http://other:8642/ ",
        "http://other:8642/health",
        "http://other:8642/health/",
        "http://other:8642/health/detailed",
        "other:8642/v1",
        "http://other:8642/v1/",
        "http://other:8642/v1/health",
        "http://other:8642//",
    ],
)
def test_the_ways_to_write_an_address(text: str) -> None:
    assert normalize_gateway_url(text) == URL


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("localhost", "http://localhost"),
        ("https://a.example/p/coder/v1", "https://a.example/p/coder"),
        ("[::1]:8642/health", "http://[::1]:8642"),
        ("https://a.example/healthy", "https://a.example/healthy"),
    ],
)
def test_the_rest_of_an_address_is_kept(text: str, url: str) -> None:
    assert normalize_gateway_url(text) == url


@pytest.mark.parametrize(
    "text",
    [
        "",
        "http://",
        "ftp://a",
        "http://me:secret@a",
        "a?key=secret",
        "a#b",
        "a:0",
        "a:x",
        "a b",
        "/health",
    ],
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match="not an address") as caught:
        normalize_gateway_url(text)
    assert "secret" not in str(caught.value)


def test_a_detailed_answer() -> None:
    assert not needs_plain_health(DETAILED)
    assert read_gateway(URL, DETAILED, None) == GatewayStatus(
        GatewayState.UP,
        "",
        URL,
        version="0.19.0",
        activity="running",
        platforms={"telegram": "connected", "api_server": "connected"},
        active_agents=2,
        updated_at="2026-01-01T00:00:00",
    )


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"status": "degraded"}, "its status is degraded"),
        ({"status": None}, "its status is None"),
        ({"status": "degraded", "readiness": {"checks": "?"}}, "its status is degraded"),
        (
            {
                "status": "degraded",
                "readiness": {
                    "checks": {
                        "store": {"status": "degraded", "detail": "the disk is full"},
                        "gateway": {"status": "degraded", "state": "draining"},
                        "disk": {"status": "degraded"},
                        "model": {"status": "ok", "detail": "fine"},
                        "other": 1,
                    }
                },
            },
            "store: the disk is full; gateway: draining; disk: degraded",
        ),
    ],
)
def test_what_is_wrong(body: dict[str, Any], reason: str) -> None:
    status = read_gateway(URL, HealthAnswer(200, body), None)
    assert (status.state, status.reason) == (GatewayState.DEGRADED, reason)
    plain = read_gateway(URL, HealthAnswer(401, None), HealthAnswer(200, body))
    assert (plain.state, plain.reason) == (GatewayState.DEGRADED, reason)


NO_REPORT = (
    HealthAnswer(200, None),
    HealthAnswer(200, []),
    HealthAnswer(200, {}),
    HealthAnswer(404, {"status": "ok"}),
)


@pytest.mark.parametrize("details", [*NO_REPORT, NoHealth("slow", is_reachable=True)])
def test_when_the_plain_route_is_asked(details: HealthAnswer | NoHealth) -> None:
    assert needs_plain_health(details)


def test_a_gateway_that_cannot_be_reached_is_not_asked_again() -> None:
    assert not needs_plain_health(NoHealth("refused"))
    status = read_gateway(URL, NoHealth("refused"), None)
    assert status == GatewayStatus(GatewayState.DOWN, "refused", URL)


@pytest.mark.parametrize(
    ("details", "state", "reason"),
    [
        (HealthAnswer(401, {}), "up", "no details: /health/detailed needs a key, or another one"),
        (HealthAnswer(404, {}), "up", "no details: /health/detailed answers with status 404"),
        (HealthAnswer(200, {}), "up", "no details: /health/detailed answers with status 200"),
        (HealthAnswer(500, {}), "degraded", "no details: /health/detailed answers with status 500"),
        (NoHealth("slow", is_reachable=True), "degraded", "/health/detailed: slow"),
    ],
)
def test_a_gateway_without_details(
    details: HealthAnswer | NoHealth, state: str, reason: str
) -> None:
    status = read_gateway(URL, details, OK)
    assert (str(status.state), status.reason, status.version) == (state, reason, "0.19.0")


@pytest.mark.parametrize(
    ("health", "reason"),
    [
        (NoHealth("slow", is_reachable=True), "slow"),
        (HealthAnswer(502, None), "/health answers with status 502"),
        (HealthAnswer(200, "hello"), "/health answers with something else than health"),
    ],
)
def test_a_gateway_that_is_down(health: HealthAnswer | NoHealth, reason: str) -> None:
    status = read_gateway(URL, HealthAnswer(404, None), health)
    assert (status.state, status.reason) == (GatewayState.DOWN, reason)


def test_what_another_server_writes_is_not_trusted() -> None:
    body = {
        "status": "x" * 10_000 + "\x1b[31m",
        "version": ["no text"],
        "gateway_state": "a\nb\x1b[0m api_key=sk-verysecret1234567890",
        "platforms": {f"p{n}": {"status": "on"} for n in range(1000)},
        "active_agents": True,
        "exit_reason": "",
        "updated_at": 7.5,
        "pid": 1,
    }
    status = read_gateway(URL, HealthAnswer(200, body), None)
    assert len(status.reason) <= 200
    assert status.activity is not None
    assert status.activity.isprintable()
    assert "verysecret" not in status.activity
    assert len(status.platforms) == 50
    assert (status.version, status.active_agents, status.exit_reason) == (None, None, None)
    assert (status.updated_at, status.pid) == (7.5, None)


def test_the_report() -> None:
    report = report_gateway(read_gateway(URL, DETAILED, None))
    assert report["state"] == "up"
    assert report["gateway_running"] is True
    assert report["gateway_pid"] is None
    assert report["gateway_platforms"] == {"telegram": "connected", "api_server": "connected"}
    assert report_gateway(GatewayStatus(GatewayState.DOWN))["gateway_running"] is False
