"""What a client learns about the tools, the skills and the models of an agent."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import trio
from attrs import evolve
from structlog.testing import capture_logs

from hermes_trio import (
    AgentContext,
    Inventory,
    Settings,
    Skill,
    Toolset,
    create_app,
    tool,
    with_inventory,
)
from hermes_trio.agent.interface import AgentFactory
from hermes_trio.agents import synthetic
from hermes_trio.settings import Profile
from hermes_trio.web.app import attach_state
from hermes_trio.web.state import ServedProfile, WebOptions
from tests.support.asgi import Client
from tests.support.fakes import make_harness

KEY = "key-kq7w-vzx2-mhp9"
BEARER = {"Authorization": f"Bearer {KEY}"}
MCP_SERVER = str(Path(__file__).parent.parent / "tools" / "mcp_server.py")


def client_of(factory: AgentFactory) -> Client:
    harness = make_harness()
    services = harness.state.services
    runtime = evolve(services.runtime, factory=factory)
    attach_state(harness.app, evolve(harness.state, services=evolve(services, runtime=runtime)))
    return harness.client


@with_inventory(
    lambda: Inventory(
        (Toolset("birds", ("whistle", "fly"), is_enabled=False, is_configured=False),),
        (Skill("nesting", "Build a nest", "crafts"), Skill("singing")),
    )
)
def bird(context: AgentContext) -> Any:
    raise NotImplementedError


async def test_toolsets_of_an_own_factory() -> None:
    answer = await client_of(bird).get("/v1/toolsets")
    birds = {
        "name": "birds",
        "label": "birds",
        "description": "",
        "enabled": False,
        "configured": False,
        "tools": ["fly", "whistle"],
    }
    assert answer.status == 200
    assert answer.json == {"data": [birds], "object": "list", "platform": "api_server"}


async def test_skills_of_an_own_factory() -> None:
    answer = await client_of(bird).get("/v1/skills")
    assert answer.status == 200
    assert answer.json == {
        "data": [
            {"name": "nesting", "description": "Build a nest", "category": "crafts"},
            {"name": "singing", "description": "", "category": None},
        ],
        "object": "list",
    }


@pytest.mark.parametrize("path", ["/v1/toolsets", "/v1/skills"])
async def test_a_factory_that_says_nothing_has_nothing(path: str) -> None:
    answer = await make_harness().client.get(path)
    assert (answer.status, answer.json["data"]) == (200, [])


@pytest.mark.parametrize("path", ["/v1/toolsets", "/v1/skills"])
async def test_a_list_that_fails_is_an_error_of_the_server(path: str) -> None:
    def fail() -> Inventory:
        raise OSError("canary")

    @with_inventory(fail)
    def broken(context: AgentContext) -> Any:
        raise NotImplementedError

    with capture_logs() as logged:
        answer = await client_of(broken).get(path)
    assert answer.status == 500
    assert (answer.error["type"], answer.error["code"]) == ("server_error", "inventory_failed")
    assert "canary" not in answer.error["message"]
    assert [line["log_level"] for line in logged if "cannot list" in line["event"]] == ["error"]


@pytest.mark.parametrize("path", ["/v1/toolsets", "/v1/skills"])
async def test_without_a_thread_the_lists_can_be_had_later(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    harness = make_harness()
    monkeypatch.setattr(trio.to_thread, "run_sync", refuse)
    answer = await harness.client.get(path)
    assert (answer.status, answer.error["code"]) == (503, "server_overloaded")
    assert answer.headers["retry-after"] == "1"


@pytest.mark.parametrize("path", ["/v1/toolsets", "/v1/skills", "/api/model/options"])
async def test_the_lists_need_a_key(path: str) -> None:
    answer = await make_harness().client.get(path, {"Authorization": "Bearer wrong"})
    assert answer.status == 401


async def test_models_to_choose_from() -> None:
    options = WebOptions(model_name="big", profiles=(ServedProfile("b", "small"),))
    answer = await make_harness(options=options).client.get("/api/model/options")
    assert answer.status == 200
    assert answer.json == {
        "providers": [
            {
                "slug": "hermes-trio",
                "name": "hermes_trio",
                "is_current": True,
                "is_user_defined": True,
                "models": ["big", "small"],
                "total_models": 2,
                "source": "user-config",
                "authenticated": True,
            }
        ],
        "model": "big",
        "provider": "hermes-trio",
    }


@tool
def whistle() -> str:
    """Whistle."""
    return "whee"


async def toolsets_of(settings: Settings, prefix: str = "") -> dict[str, tuple[bool, list[str]]]:
    async with create_app(settings).test_app() as running:
        answer = await running.test_client().get(f"{prefix}/v1/toolsets", headers=BEARER)
        listed = (await answer.get_json())["data"]
    return {each["name"]: (each["enabled"], each["tools"]) for each in listed}


def settings_for(folder: Path, **more: Any) -> Settings:
    return Settings(
        api_key=KEY,
        data_dir=folder,
        store="memory:",
        agent="upstream",
        base_url="http://127.0.0.1:1/v1",
        **more,
    )


async def test_toolsets_of_the_upstream_agent(tmp_path: Path) -> None:
    tools = ("read_file", "terminal", "tests.web.test_inventory:whistle")
    assert await toolsets_of(settings_for(tmp_path, tools=tools)) == {
        "file": (True, ["read_file"]),
        "terminal": (True, ["terminal"]),
        "web": (False, ["web_fetch"]),
        "custom": (True, ["whistle"]),
    }


async def test_each_profile_has_its_own(tmp_path: Path) -> None:
    profile = Profile(name="loud", agent="synthetic")
    settings = settings_for(tmp_path, tools=("none",), profiles={"loud": profile})
    assert await toolsets_of(settings, "/p/loud") == {"synthetic": (True, [synthetic.TOOL_NAME])}


async def test_tools_of_mcp_servers(tmp_path: Path) -> None:
    pytest.importorskip("mcp", reason="the extra mcp is not installed: nox -s mcp runs this test")
    servers = {
        "box": {"command": sys.executable, "args": [MCP_SERVER]},
        "absent": {"command": "no-such-program"},
    }
    found = await toolsets_of(settings_for(tmp_path, tools=("none",), mcp=servers))
    assert found["mcp-absent"] == (True, [])
    enabled, tools = found["mcp-box"]
    assert enabled
    assert "box__add" in tools
