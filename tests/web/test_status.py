"""``GET /api/status``: this server, or another gateway that is asked over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import msgspec
import pytest
import trio
from trio.testing import MockClock

from hermes_trio import __version__
from hermes_trio.bootstrap import open_server
from hermes_trio.core.records import Node
from hermes_trio.preparation import prepare
from hermes_trio.schema import replies
from hermes_trio.settings import Settings
from hermes_trio.stores.base import StoreError
from hermes_trio.web.state import ServedProfile, WebOptions
from tests.support.asgi import Client, HttpResponse
from tests.support.fakes import (
    CHAT,
    KEY,
    OTHER_KEY,
    BrokenStore,
    Pause,
    ask_stream,
    bearer,
    make_harness,
)
from tests.support.scripted_gateway import DETAILED, OK, serve_gateway
from tests.support.scripted_upstream import Close, Raw, Reply, Reset, Stall, Step
from tests.support.shared_store import SharedMemoryStore

DETAILS, HEALTH = "/health/detailed", "/health"


def read_report(answer: HttpResponse) -> dict[str, Any]:
    """The report, which is as described."""
    assert answer.status == 200, answer.body
    msgspec.convert(answer.json, replies.GatewayReport)
    assert set(answer.json) == set(attrs.fields_dict(replies.GatewayReport))
    assert set(answer.json["server"]) == set(attrs.fields_dict(replies.RuntimeReport))
    return dict(answer.json)


# -- this server --


async def test_it_needs_a_key() -> None:
    harness = make_harness()
    assert (await Client(harness.app).get("/api/status")).status == 401


async def test_a_server_at_rest() -> None:
    report = read_report(await make_harness(max_runs=7).client.get("/api/status"))
    assert (report["state"], report["reason"]) == ("up", "")
    assert report["version"] == report["gateway_version"] == __version__
    assert (report["gateway_running"], report["gateway_state"]) == (True, "running")
    assert report["gateway_pid"] == report["server"]["pid"] == 1
    assert report["gateway_health_url"] is None
    assert report["server"]["slots"] == {"in_use": 0, "limit": 7}
    assert report["server"]["nodes"] == []


async def test_a_server_at_work() -> None:
    now = iter(range(100, 10_000, 10))
    pause = Pause()
    harness = make_harness([pause], clock=lambda: float(next(now)))
    async with harness.client.post(CHAT, ask_stream()) as exchange:
        await pause.wait_reached()
        report = read_report(await harness.client.get("/api/status"))
        pause.go()
        await exchange.end()
    assert report["active_agents"] == report["server"]["live_runs"] == 1
    assert report["server"]["slots"]["in_use"] == 1
    assert report["server"]["uptime_seconds"] >= 100


async def test_a_caller_sees_its_own_agents() -> None:
    options = WebOptions(profiles=(ServedProfile("secret", "hidden-model", ("bob",)),))
    client = make_harness(options=options).client
    ann = read_report(await client.get("/api/status"))
    bob = read_report(await client.get("/api/status", bearer(OTHER_KEY)))
    assert ann["server"]["agents"] == ["hermes-agent"]
    assert bob["server"]["agents"] == ["hermes-agent", "hidden-model"]


async def test_a_server_that_drains() -> None:
    harness = make_harness(not_ready="draining")
    harness.state.admission.is_draining = True
    report = read_report(await harness.client.get("/api/status"))
    assert (report["state"], report["reason"]) == ("degraded", "draining")
    assert report["gateway_state"] == "draining"


@pytest.mark.parametrize(("passed", "remaining"), [(0, 20), (15, 5), (30, 0)])
async def test_how_long_a_drain_still_takes(
    mock_clock: MockClock, passed: float, remaining: float
) -> None:
    harness = make_harness()
    report = read_report(await harness.client.get("/api/status"))
    assert report["server"]["drain_remaining_seconds"] is None
    harness.state.admission.drain_deadline = trio.current_time() + 20
    mock_clock.jump(passed)
    report = read_report(await harness.client.get("/api/status"))
    assert report["server"]["drain_remaining_seconds"] == remaining
    details = (await harness.client.get("/health/detailed")).json
    assert details["drain_remaining_seconds"] == remaining


async def test_a_broken_store() -> None:
    report = read_report(await make_harness(store=BrokenStore("read")).client.get("/api/status"))
    assert (report["state"], report["reason"]) == ("degraded", "the disk is on fire")
    assert report["server"]["store"]["status"] == "degraded"


class NodesStore(SharedMemoryStore):
    """A store that other servers use, too; ``nodes`` is None while it cannot be read."""

    nodes: tuple[Node, ...] | None = (
        Node("server", "here:8642", 0.5, is_alive=True, live_runs=1),
        Node("other", "there:8642", 40.0, is_alive=False, live_runs=0),
    )

    async def list_nodes(self) -> tuple[Node, ...]:
        if self.nodes is None:
            raise StoreError("the network is down")
        return self.nodes


async def test_the_nodes_that_share_a_store() -> None:
    store = NodesStore()
    client = make_harness(store=store).client
    listed = read_report(await client.get("/api/status"))["server"]["nodes"]
    assert [(node["name"], node["is_this"], node["is_alive"]) for node in listed] == [
        ("server", True, True),
        ("other", False, False),
    ]
    store.nodes = None
    assert read_report(await client.get("/api/status"))["server"]["nodes"] == []


# -- another gateway --


def settings_of(folder: Path, url: str, **more: Any) -> Settings:
    return Settings(
        data_dir=folder, store="memory:", api_key=KEY, agent="demo", gateway_health_url=url, **more
    )


async def ask_about(folder: Path, url: str, **more: Any) -> dict[str, Any]:
    """Ask a server that was told of another gateway."""
    async with open_server(prepare(settings_of(folder, url, **more))) as running:
        running.readiness.not_ready = ""
        return read_report(await Client(running.app, bearer(KEY)).get("/api/status"))


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/health", "/health/detailed/"])
@pytest.mark.parametrize("scheme", ["", "http://"])
async def test_the_address_may_be_written_in_several_ways(
    suffix: str, scheme: str, tmp_path: Path
) -> None:
    async with serve_gateway({DETAILS: [Reply(200, DETAILED)]}) as gateway:
        url = gateway.base_url.removeprefix("http://")
        report = await ask_about(tmp_path, f"{scheme}{url}{suffix}")
    assert [asked.path for asked in gateway.requests] == [DETAILS]
    assert report["gateway_health_url"] == gateway.base_url
    assert (report["state"], report["reason"]) == ("up", "")
    assert (report["gateway_state"], report["active_agents"]) == ("running", 2)
    assert report["gateway_platforms"] == {"telegram": "connected"}
    assert (report["gateway_version"], report["version"]) == ("0.19.0", __version__)
    assert report["gateway_pid"] is None
    assert report["server"]["pid"] > 1


async def test_our_own_key_is_never_sent(tmp_path: Path) -> None:
    async with serve_gateway({DETAILS: [Reply(401)], HEALTH: [Reply(200, OK)]}) as gateway:
        report = await ask_about(tmp_path, gateway.base_url)
    assert [asked.path for asked in gateway.requests] == [DETAILS, HEALTH]
    assert (report["state"], report["gateway_pid"]) == ("up", None)
    assert "needs a key" in report["reason"]
    for asked in gateway.requests:
        assert "authorization" not in asked.headers
        assert KEY not in str(asked.headers)


async def test_the_key_of_the_gateway_is_sent_where_it_is_needed(tmp_path: Path) -> None:
    key = "the-key-of-the-gateway"
    async with serve_gateway({DETAILS: [Reply(404)], HEALTH: [Reply(200, OK)]}) as gateway:
        await ask_about(tmp_path, gateway.base_url, gateway_health_key=key)
    detailed, plain = gateway.requests
    assert detailed.headers["authorization"] == f"Bearer {key}"
    assert "authorization" not in plain.headers


async def test_a_redirect_is_not_followed(tmp_path: Path) -> None:
    async with serve_gateway({}) as elsewhere:
        away = Reply(307, b"", {"Location": f"{elsewhere.base_url}{DETAILS}"})
        async with serve_gateway({DETAILS: [away], HEALTH: [Reply(200, OK)]}) as gateway:
            report = await ask_about(tmp_path, gateway.base_url, gateway_health_key="k" * 16)
    assert (report["state"], elsewhere.requests) == ("up", [])


HUGE = Reply(200, b'{"status": "ok", "x": "' + b"x" * 2_000_000 + b'"}')
DEEP = Reply(200, b"[" * 200_000)


@pytest.mark.parametrize(
    ("details", "health", "state", "reason"),
    [
        ([Stall()], [Reply(200, OK)], "degraded", "/health/detailed: no answer within 0.2 s"),
        ([Stall()], [Stall()], "down", "no answer within 0.2 s"),
        ([Reset()], [Reset()], "down", ""),
        ([Raw(b"x"), Close()], [Reply(200, OK)], "degraded", "/health/detailed: "),
        ([Reply(503, b"busy")], [Reply(200, OK)], "degraded", "status 503"),
        ([Reply(404)], [Reply(502)], "down", "/health answers with status 502"),
        ([Reply(200, b"<html>")], [Reply(200, b"<html>")], "down", "something else"),
        ([HUGE], [HUGE], "down", "something else"),
        ([DEEP], [DEEP], "down", "something else"),
        ([Reply(200, {**DETAILED, "status": "degraded"})], [], "degraded", "its status"),
    ],
)
async def test_a_gateway_that_does_not_work(
    details: list[Step], health: list[Step], state: str, reason: str, tmp_path: Path
) -> None:
    async with serve_gateway({DETAILS: details, HEALTH: health}) as gateway:
        report = await ask_about(tmp_path, gateway.base_url, gateway_health_seconds=0.2)
    assert report["state"] == state
    assert reason in report["reason"]
    assert report["reason"]
    assert report["gateway_pid"] is None
    assert report["gateway_running"] is (state != "down")
    assert report["server"]["live_runs"] == 0  # this server itself works


async def test_a_gateway_that_does_not_run(tmp_path: Path) -> None:
    async with serve_gateway({}) as gateway:
        pass
    report = await ask_about(tmp_path, gateway.base_url)
    assert report["state"] == "down"
    assert "cannot be reached" in report["reason"]
