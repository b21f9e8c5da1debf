"""The examples of the guide about asyncio agents, as they stand there, behind the server and in front of a scripted model."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from attrs import frozen

from hermes_trio.agent.interface import AgentContext, AgentFactory
from tests.support import chat_api, fakes
from tests.support.asgi import real_timeout
from tests.support.doc_examples import ROOT, blocks_of
from tests.support.fakes import CHAT, AppHarness, ask_stream, open_harness
from tests.support.scripted_upstream import (
    Call,
    Say,
    Script,
    ScriptedUpstream,
    Stall,
    Think,
    calls,
    says,
    serve_scripts,
)

GUIDE = ROOT / "docs" / "how_to" / "serve_asyncio_agents.md"
AT_ONCE = 1.5  # the tool of the examples takes three seconds


@frozen
class Example:
    """A file of the guide, and the package that it needs."""

    file: str
    package: str


EXAMPLES = [Example("pydantic_weather.py", "pydantic_ai"), Example("agents_weather.py", "agents")]


@pytest.fixture(params=EXAMPLES, ids=lambda example: example.package)
def factory(request: pytest.FixtureRequest, tmp_path: Path) -> AgentFactory:
    """The factory of an example."""
    example: Example = request.param
    if importlib.util.find_spec(example.package) is None:
        pytest.skip(f"{example.package} is not installed: nox -s bridges has it")
    [block] = [block for block in blocks_of(GUIDE) if block.value == example.file]
    path = tmp_path / example.file
    path.write_text(block.text, encoding="utf-8")
    return loaded(path)


def loaded(path: Path) -> AgentFactory:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    made: AgentFactory = module.factory
    return made


class Behind(fakes.ScriptedAgentFactory):
    """In the place of a scripted agent: the example."""

    def __init__(self, factory: AgentFactory) -> None:
        super().__init__(())
        self._factory = factory

    def factory(self, context: AgentContext) -> Any:
        return self._factory(context)


@asynccontextmanager
async def serving(
    factory: AgentFactory, monkeypatch: pytest.MonkeyPatch, *scripts: Script
) -> AsyncIterator[tuple[AppHarness, ScriptedUpstream]]:
    """A server with the example in it, in front of a scripted model."""
    async with serve_scripts(*scripts) as upstream, open_harness(Behind(factory)) as harness:
        monkeypatch.setenv("OPENAI_BASE_URL", upstream.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
        yield harness, upstream
        await harness.until_idle()


OSLO = Call("weather", {"city": "Oslo"}, "call_a")


async def test_calls_and_results_arrive_with_their_ids(
    factory: AgentFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    rome = Call("weather", {"city": "Rome"}, "call_b")
    scripts = (calls(OSLO, rome), (Think("hm"), *says("It is ", "sunny.")))
    async with serving(factory, monkeypatch, *scripts) as (harness, upstream):
        answer = await harness.client.send(CHAT, ask_stream("weather?"))
        assert chat_api.said(answer) == "It is sunny."
        assert chat_api.said(answer, "reasoning_content") == "hm"
        assert chat_api.reason(answer) == "stop"
        told = [
            (event["toolCallId"], event["status"], event["tool"])
            for event in chat_api.progress(answer)
        ]
        assert sorted(told[:2]) == [
            ("call_a", "running", "weather"),
            ("call_b", "running", "weather"),
        ]
        assert sorted(told[2:]) == [
            ("call_a", "completed", "weather"),
            ("call_b", "completed", "weather"),
        ]
        results = {event["toolCallId"]: event.get("result") for event in chat_api.progress(answer)}
        assert results == {"call_a": "sunny in Oslo", "call_b": "sunny in Rome"}
        assert chat_api.finish(answer)["usage"]["total_tokens"] == 24
        assert [message["role"] for message in upstream.requests[1].json["messages"]][-2:] == [
            "tool",
            "tool",
        ]


async def test_a_second_turn_has_its_own_loop_and_the_history(
    factory: AgentFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(factory, monkeypatch, says("One."), says("Two.")) as (harness, upstream):
        session = {"X-Hermes-Session-Id": "s"}
        first = await harness.client.send(CHAT, ask_stream("first"), session)
        second = await harness.client.send(CHAT, ask_stream("second"), session)
        assert (chat_api.said(first), chat_api.said(second)) == ("One.", "Two.")
        texts = [str(message["content"]) for message in upstream.requests[1].json["messages"]]
        assert [text for text in texts if text in {"first", "One.", "second"}] == [
            "first",
            "One.",
            "second",
        ]


async def test_a_turn_that_is_cut_in_its_text_ends_at_once(
    factory: AgentFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        serving(factory, monkeypatch, (Say("It is "), Stall())) as (harness, upstream),
        harness.client.post(CHAT, ask_stream("weather?")) as exchange,
    ):
        await exchange.content("It is ")
        left = trio.current_time()
        exchange.disconnect()
        await harness.until_idle()
        await upstream.until_closed()
        assert trio.current_time() - left < AT_ONCE
    assert harness.ends == [("incomplete", "client_disconnected")]


async def test_a_turn_that_is_cut_in_a_tool_ends_at_once(
    factory: AgentFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        serving(factory, monkeypatch, calls(OSLO)) as (harness, upstream),
        harness.client.post(CHAT, ask_stream("weather?")) as exchange,
    ):
        with real_timeout():
            await exchange.frame_where(status="running")
        left = trio.current_time()
        exchange.disconnect()
        await harness.until_idle()
        assert trio.current_time() - left < AT_ONCE
        assert len(upstream.requests) == 1
    assert harness.ends == [("incomplete", "client_disconnected")]
