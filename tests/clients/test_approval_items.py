"""Approvals of the Agents SDK: the server is a hosted MCP server to it, and asks in items."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.server_process import LaunchOptions, ServerProcess, serving

pytestmark = pytest.mark.filterwarnings("ignore")  # the SDK warns of its own deprecations

MODEL = "hermes-agent"
ASK = "/ask echo 6*7"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    options = LaunchOptions(tmp_path_factory.mktemp("approvals"), ("--agent", "demo"))
    with serving(options) as process:
        yield process


@pytest.fixture(autouse=True)
def environment(server: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """Point every OpenAI client at the server."""
    monkeypatch.setenv("OPENAI_API_KEY", server.key)
    monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")


@pytest.mark.parametrize("is_chained", [False, True], ids=["history", "previous response"])
@pytest.mark.parametrize("approve", [True, False])
def test_openai_agents_with_a_callback(
    server: ServerProcess, approve: bool, is_chained: bool
) -> None:
    agents = pytest.importorskip(
        "agents", reason="openai-agents is installed by `nox -s clients` only"
    )
    agents.set_tracing_disabled(True)
    requests: list[Any] = []

    def decide(request: Any) -> dict[str, Any]:
        requests.append(request.data)
        return {"approve": approve, "reason": "as the test says"}

    agent = agents.Agent(name="demo", model=MODEL, tools=[hosted(agents, server, decide)])
    result = agents.Runner.run_sync(agent, ASK, auto_previous_response_id=is_chained)
    assert [(each.name, each.arguments) for each in requests] == [
        ("terminal", '{"command": "echo 6*7"}')
    ]
    outcome = "6*7" if approve else "not approved (client)"
    assert result.final_output.endswith(f"`/ask echo 6*7`: {outcome}")

    again = agents.Runner.run_sync(
        agent, [*result.to_input_list(), {"role": "user", "content": "hello again"}]
    )
    assert "You said: “hello again”" in again.final_output


def test_openai_agents_without_a_callback(server: ServerProcess) -> None:
    """The run is interrupted, and resumed when a person has decided."""
    agents = pytest.importorskip(
        "agents", reason="openai-agents is installed by `nox -s clients` only"
    )
    agents.set_tracing_disabled(True)
    agent = agents.Agent(name="demo", model=MODEL, tools=[hosted(agents, server, None)])
    result = agents.Runner.run_sync(agent, ASK)
    [interruption] = result.interruptions
    state = result.to_state()
    state.approve(interruption)
    result = agents.Runner.run_sync(agent, state)
    assert result.final_output.endswith("`/ask echo 6*7`: 6*7")


def hosted(agents: Any, server: ServerProcess, decide: Any) -> Any:
    """Return the tool that says that the model's server runs tools itself."""
    config = {
        "type": "mcp",
        "server_label": "hermes",
        "server_url": server.url,
        "require_approval": "always",
    }
    return agents.HostedMCPTool(tool_config=config, on_approval_request=decide)
