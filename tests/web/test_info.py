"""What the server says about itself: every answer is held against its description."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import attrs
import msgspec
import pytest
from openai.types import Model

from hermes_trio import __version__
from hermes_trio.core.events import Result, Text, ToolCompleted, ToolStarted
from hermes_trio.core.messages import Usage
from hermes_trio.schema import replies
from hermes_trio.schema.replies import ShownSetting
from hermes_trio.stores.sqlite import open_sqlite
from hermes_trio.web.state import WebOptions
from tests.support.asgi import Client, HttpResponse
from tests.support.fakes import CHAT, BrokenStore, Pause, Step, ask, ask_stream, make_harness


def described(answer: HttpResponse, kind: type, status: int = 200) -> Any:
    """The answer, which has the fields of its class and no others."""
    assert answer.status == status
    assert answer.headers["content-type"] == "application/json"
    msgspec.convert(answer.json, kind)
    assert set(answer.json) <= set(attrs.fields_dict(kind))
    return answer.json


@pytest.mark.parametrize("path", ["/health", "/v1/health", "/health/live", "/health/"])
async def test_health(path: str) -> None:
    shown = described(await make_harness().client.get(path), replies.Health)
    assert shown == {"status": "ok", "platform": "hermes-agent", "version": __version__}


async def test_health_of_a_server_that_is_not_ready() -> None:
    client = make_harness(not_ready="draining").client
    assert (await client.get("/health")).status == 200
    answer = await client.get("/health/ready")
    shown = described(answer, replies.Readiness, 503)
    assert shown == {"status": "unavailable", "reason": "draining"}
    assert answer.headers["retry-after"] == "1"


async def test_readiness() -> None:
    assert described(await make_harness().client.get("/health/ready"), replies.Readiness) == {
        "status": "ok"
    }


async def test_detailed_health_at_rest() -> None:
    shown = described(
        await make_harness(max_runs=7).client.get("/health/detailed"), replies.HealthDetails
    )
    assert shown["status"] == shown["readiness"]["status"] == "ok"
    assert shown["readiness"]["checks"] == {
        "store": {"status": "ok"},
        "gateway": {"status": "ok", "state": "running"},
    }
    assert (shown["active_agents"], shown["gateway_busy"]) == (0, False)
    assert shown["slots"] == {"in_use": 0, "limit": 7}
    assert shown["platforms"] == {}
    assert shown["exit_reason"] is None


async def test_detailed_health_at_work() -> None:
    pause = Pause()
    harness = make_harness([pause, Text(".")])
    async with harness.client.post(CHAT, ask_stream()) as exchange:
        await pause.wait_reached()
        shown = described(await harness.client.get("/health/detailed"), replies.HealthDetails)
        pause.go()
        await exchange.end()
    assert (shown["active_agents"], shown["gateway_busy"]) == (1, True)
    assert shown["slots"] == {"in_use": 1, "limit": 2}


async def test_detailed_health_of_a_broken_store() -> None:
    harness = make_harness(store=BrokenStore("read"))
    shown = described(await harness.client.get("/health/detailed"), replies.HealthDetails)
    assert shown["status"] == "degraded"
    assert shown["readiness"]["checks"]["store"] == {
        "status": "degraded",
        "detail": "the disk is on fire",
    }


async def test_detailed_health_while_draining() -> None:
    harness = make_harness(not_ready="draining")
    harness.state.admission.is_draining = True
    shown = described(await harness.client.get("/health/detailed"), replies.HealthDetails)
    assert (shown["status"], shown["gateway_state"]) == ("degraded", "draining")


async def test_version() -> None:
    assert described(await make_harness().client.get("/version"), replies.Version) == {
        "version": __version__
    }


@pytest.mark.parametrize("name", ["hermes-agent", "org/model:v1", "kůň"])
async def test_models(name: str) -> None:
    client = make_harness(options=WebOptions(model_name=name)).client
    shown = described(await client.get("/v1/models"), replies.ModelList)
    (model,) = shown["data"]
    Model.model_validate(model, strict=True)
    assert (model["id"], model["root"], model["parent"]) == (name, name, None)
    assert (model["object"], model["owned_by"], model["permission"]) == ("model", "hermes", [])
    assert described(await client.get(f"/v1/models/{name}"), replies.Model) == model


@pytest.mark.parametrize("name", ["gpt-x", "a/b", "hermes-agent/", "hermes-agent%20"])
async def test_an_unknown_model(name: str) -> None:
    answer = await make_harness().client.get(f"/v1/models/{name}")
    described(answer, replies.ErrorEnvelope, 404)
    assert (answer.error["code"], answer.error["param"]) == ("model_not_found", "model")


async def test_capabilities() -> None:
    shown = described(await make_harness().client.get("/v1/capabilities"), replies.Capabilities)
    assert shown["object"] == "hermes.api_server.capabilities"
    assert shown["platform"] == "hermes-agent"
    assert shown["model"] == "hermes-agent"
    assert shown["auth"] == {"type": "bearer", "required": True}
    assert "API-server host" in shown["runtime"].pop("description")
    assert shown["runtime"] == {
        "mode": "server_agent",
        "tool_execution": "server",
        "split_runtime": False,
    }
    features = shown["features"]
    assert features["session_continuity_header"] == "X-Hermes-Session-Id"
    assert features["session_key_header"] == "X-Hermes-Session-Key"
    assert features["cors"] is False
    assert {name for name, value in features.items() if value is True} == {
        "chat_completions",
        "chat_completions_streaming",
        "conversations_api",
        "idempotency",
        "responses_api",
        "responses_background",
        "responses_resume",
        "responses_streaming",
        "tool_progress_events",
        "reasoning_streaming",
        "run_submission",
        "run_list",
        "run_status",
        "run_events_sse",
        "run_stop",
        "run_tickets",
        "run_approval_response",
        "approval_events",
        "session_resources",
        "session_chat",
        "session_chat_streaming",
        "session_fork",
        "skills_api",
        "jobs_admin",
    }


async def test_capabilities_tell_of_cors() -> None:
    client = make_harness(options=WebOptions(cors_origins=("https://page.test",))).client
    assert (await client.get("/v1/capabilities")).json["features"]["cors"] is True


async def test_every_endpoint_of_the_capabilities_answers() -> None:
    client = make_harness().client
    for endpoint in (await client.get("/v1/capabilities")).json["endpoints"].values():
        answer = await client.get(endpoint["path"], method=endpoint["method"])
        assert answer.status != 405
        assert answer.status != 404 or answer.error["code"] in {
            "response_not_found",
            "run_not_found",
            "session_not_found",
        }


# -- metrics --


async def figures(client: Client) -> dict[str, float]:
    """The counted values by their full names."""
    answer = await client.get("/metrics")
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain")
    lines = [line for line in answer.body.decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


async def test_counts_move() -> None:
    harness = make_harness([Text("x")])
    chat = 'hermes_trio_http_requests_total{method="POST",route="/v1/chat/completions",status="%s"}'
    ended = 'hermes_trio_runs_total{reason="",status="completed"}'
    before = await figures(harness.client)
    assert chat % 200 not in before
    for _ in range(2):
        await harness.client.send(CHAT, ask_stream())
    await harness.client.send(CHAT, ask())
    await harness.client.send(CHAT, [])
    after = await figures(harness.client)
    assert (after[chat % 200], after[chat % 400], after[ended]) == (3, 1, 3)
    assert after["hermes_trio_run_duration_seconds_count"] == 3
    assert (after["hermes_trio_runs_active"], after["hermes_trio_slots_in_use"]) == (0, 0)


async def test_live_runs_are_counted() -> None:
    pause = Pause()
    harness = make_harness([pause, Text(".")])
    async with harness.client.post(CHAT, ask_stream()) as exchange:
        await pause.wait_reached()
        shown = await figures(harness.client)
        pause.go()
        await exchange.end()
    assert (shown["hermes_trio_runs_active"], shown["hermes_trio_slots_in_use"]) == (1, 1)


async def test_a_run_that_was_cut_is_counted_by_its_reason() -> None:
    pause = Pause()
    harness = make_harness([Text("x"), pause])
    async with harness.client.post(CHAT, ask_stream()) as exchange:
        await pause.wait_reached()
        exchange.disconnect()
        await exchange.end()
    shown = await figures(harness.client)
    assert shown['hermes_trio_runs_total{reason="client_disconnected",status="incomplete"}'] == 1


async def test_labels_cannot_be_invented_by_clients() -> None:
    client = make_harness().client
    client_without_key = Client(client.app)
    for number in range(5):
        await client_without_key.get(f"/nowhere/{number}", method=f"M{number}")
        await client.get(f"/v1/models/{number}", method=f"N{number}")
        await client.get(f"/v1/models/{number}")
    labels = "".join(await figures(client))
    assert not re.search(r"nowhere|M\d|N\d|models/\d", labels)
    assert 'method="other"' in labels


async def test_streams_events_and_first_words_are_counted() -> None:
    pause = Pause()
    harness = make_harness([Text("one"), pause, Text("two")])
    async with harness.client.post(CHAT, ask_stream()) as exchange:
        await exchange.content("one")
        await pause.wait_reached()
        during = await figures(harness.client)
        pause.go()
        await exchange.end()
    after = await figures(harness.client)
    assert (during["hermes_trio_streams_open"], after["hermes_trio_streams_open"]) == (1, 0)
    assert (during["hermes_trio_run_events_total"], after["hermes_trio_run_events_total"]) == (1, 3)
    assert (
        during["hermes_trio_first_text_seconds_count"]
        == after["hermes_trio_first_text_seconds_count"]
        == 1
    )
    assert after["hermes_trio_loop_lag_seconds"] >= 0
    assert after["process_resident_memory_bytes"] > 1_000_000


async def test_tokens_are_counted_when_a_run_ends() -> None:
    harness = make_harness([Text("x")], Result(usage=Usage(3, 40)))
    await harness.client.send(CHAT, ask())
    assert (await figures(harness.client))["hermes_trio_output_tokens_total"] == 40


async def test_tool_calls_are_counted_by_how_they_ended() -> None:
    pause = Pause()
    steps: list[Step] = [
        ToolStarted("a", "t", {}), ToolCompleted("a", "done"),
        ToolStarted("b", "t", {}), ToolCompleted("b", "broken", is_error=True),
        ToolStarted("c", "t", {}), pause,
    ]  # fmt: skip
    harness = make_harness(steps)
    async with harness.client.post(CHAT, ask_stream()) as exchange:
        await pause.wait_reached()
        exchange.disconnect()
        await exchange.end()
    shown = await figures(harness.client)
    for status in ("completed", "failed", "cancelled"):
        assert shown[f'hermes_trio_tool_calls_total{{status="{status}"}}'] == 1


async def test_commits_of_a_store_that_counts_them(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path / "db") as store:
        harness = make_harness([Text("x")], store=store)
        before = (await figures(harness.client))["hermes_trio_store_commits_total"]
        await harness.client.send(CHAT, ask())
        assert (await figures(harness.client))["hermes_trio_store_commits_total"] > before


async def test_settings() -> None:
    options = WebOptions(settings=(ShownSetting("port", "8642", "Where to listen."),))
    shown = described(
        await make_harness(options=options).client.get("/v1/settings"), replies.SettingList
    )
    assert shown["data"] == [{"name": "port", "value": "8642", "help": "Where to listen."}]
