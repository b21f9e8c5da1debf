"""What a profile opens, and what it refuses to open."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

from hermes_trio.agent.interface import AgentConfig, AgentContext, AgentProvider
from hermes_trio.agents.upstream.client import chat_url
from hermes_trio.agents.upstream.loop import UpstreamAgent
from hermes_trio.agents.upstream.provider import provider
from hermes_trio.core.errors import ConfigurationError
from hermes_trio.tools.base import ToolError, ToolUse, tool
from hermes_trio.tools.registry import SHIPPED
from tests.support.agent_harness import turn

BASE = "http://127.0.0.1:1/v1"


@tool
async def mine() -> str:
    """One for the tests."""
    return "mine"


async def test_agents_of_a_profile_share_its_model(tmp_path: Path) -> None:
    assert isinstance(provider, AgentProvider)
    config = AgentConfig(base_url=BASE, tools=(f"{__name__}:mine",))
    async with provider.open(config, tmp_path) as factory:
        agents: list[Any] = [factory(AgentContext(turn("Hi"), tmp_path)) for _ in range(2)]
    assert all(isinstance(agent, UpstreamAgent) for agent in agents)
    assert agents[0].model is agents[1].model
    assert list(agents[0].tools) == ["mine"]
    assert agents[0].workspace == tmp_path
    assert inspect.iscoroutinefunction(agents[0].run)


async def test_all_shipped_tools_unless_something_else_is_said(tmp_path: Path) -> None:
    async with provider.open(AgentConfig(base_url=BASE), tmp_path) as factory:
        agent: Any = factory(AgentContext(turn("Hi"), tmp_path))
    assert set(agent.tools) == set(SHIPPED)


async def test_rules_about_approvals_hold(tmp_path: Path) -> None:
    config = AgentConfig(
        base_url=BASE, tools=(f"{__name__}:mine",), options={"approvals": {"mine": "always"}}
    )
    async with provider.open(config, tmp_path) as factory:
        agent: Any = factory(AgentContext(turn("Hi"), tmp_path))
    with pytest.raises(ToolError, match="did not approve"):
        await agent.tools["mine"].run({}, ToolUse("c1", tmp_path))


SECRET = "pässwörd-0123456789"


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"base_url": ""}, "base_url is missing"),
        ({"base_url": "ftp://x"}, "base_url must start with http:// or https://"),
        ({"base_url": "localhost:8000/v1"}, "base_url must start"),
        ({"base_url": "http://"}, "base_url must start"),
        ({"base_url": "http://x:y/"}, "base_url: Invalid port"),
        ({"api_key": SECRET}, "api_key has characters"),
        ({"api_key": "a\nb-0123456789"}, "api_key has characters"),
        ({"options": {"headers": "x"}}, "headers must be a table"),
        ({"options": {"headers": {"X-A": SECRET}}}, "headers: the value of 'X-A'"),
        ({"options": {"headers": {"X-A": 5}}}, "headers: the value of 'X-A'"),
        ({"tools": ("nobody",)}, "no tool 'nobody'"),
        ({"options": {"approvals": {"terminal": "sometimes"}}}, "approvals: expected"),
        ({"mcp": {"files": {}}}, "files"),
    ],
)
async def test_invalid_configuration_is_reported_in_one_line(
    config: Any, told: str, tmp_path: Path
) -> None:
    filled = AgentConfig(**{"base_url": BASE, "tools": ("none",), **config})
    with pytest.raises(ConfigurationError, match=told) as caught:
        async with provider.open(filled, tmp_path):
            pass
    assert "\n" not in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("base", "url"),
    [
        ("http://h/v1", "http://h/v1/chat/completions"),
        ("http://h/v1/", "http://h/v1/chat/completions"),
        ("http://h", "http://h/chat/completions"),
        ("http://h/v1/chat/completions", "http://h/v1/chat/completions"),
        ("https://h:1/a?api-version=2", "https://h:1/a/chat/completions?api-version=2"),
    ],
)
def test_the_address(base: str, url: str) -> None:
    assert str(chat_url(base)) == url
