"""Agent frameworks in front of a real server that runs the tools itself.

One request a turn, and the answer arrives.

``nox -s clients`` installs the frameworks at the versions that are named there; the normal suite
skips these tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from attrs import frozen

from tests.support.server_process import LaunchOptions, ServerProcess, serving

pytestmark = pytest.mark.filterwarnings("ignore")  # the frameworks warn of their own deprecations

MODEL = "hermes-agent"
TOOL = "/terminal echo 6*7"  # the demo agent runs it
NEXT = "hello again"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    options = LaunchOptions(tmp_path_factory.mktemp("clients"), ("--agent", "demo"))
    with serving(options) as process:
        yield process


@pytest.fixture(autouse=True)
def environment(server: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """Point every OpenAI client at the server."""
    monkeypatch.setenv("OPENAI_API_KEY", server.key)
    monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")


@frozen
class Turns:
    """What two turns led to."""

    first: str
    second: str
    runs: int  # how often the agent worked


def count_runs(server: ServerProcess) -> int:
    listed = server.get("/v1/runs?limit=100").json()
    return len(listed["data"])


def test_openai_agents(server: ServerProcess) -> None:
    agents = pytest.importorskip(
        "agents", reason="openai-agents is installed by `nox -s clients` only"
    )
    agents.set_tracing_disabled(True)
    before = count_runs(server)
    agent = agents.Agent(name="demo", model=MODEL)
    first = agents.Runner.run_sync(agent, TOOL)
    again = agents.Runner.run_sync(
        agent, [*first.to_input_list(), {"role": "user", "content": NEXT}]
    )
    check(Turns(first.final_output, again.final_output, count_runs(server) - before))


def test_pydantic_ai(server: ServerProcess) -> None:
    ai = pytest.importorskip(
        "pydantic_ai", reason="pydantic-ai is installed by `nox -s clients` only"
    )
    from pydantic_ai.models.openai import OpenAIResponsesModel  # noqa: PLC0415

    before = count_runs(server)
    agent = ai.Agent(OpenAIResponsesModel(MODEL))
    first = agent.run_sync(TOOL)
    again = agent.run_sync(NEXT, message_history=first.all_messages())
    check(Turns(first.output, again.output, count_runs(server) - before))


def test_langchain(server: ServerProcess) -> None:
    models = pytest.importorskip(
        "langchain_openai", reason="LangChain is installed by `nox -s clients` only"
    )
    from langchain.agents import create_agent  # noqa: PLC0415

    before = count_runs(server)
    agent: Any = create_agent(models.ChatOpenAI(model=MODEL, use_responses_api=True), tools=[])
    first = agent.invoke({"messages": [("user", TOOL)]})["messages"]
    again = agent.invoke({"messages": [*first, ("user", NEXT)]})["messages"]
    check(Turns(first[-1].text, again[-1].text, count_runs(server) - before))


def check(turns: Turns) -> None:
    assert turns.first.endswith("`/terminal echo 6*7`: 6*7")
    assert f"You said: “{NEXT}”" in turns.second
    assert turns.runs == 2, "no turn was run twice"
