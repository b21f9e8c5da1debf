"""Spans of requests, runs, model calls and tools, and who is whose parent."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import trio
from attrs import evolve
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from hermes_trio import tracing
from hermes_trio.agent.emitter import AsyncEmitter, Emitter
from hermes_trio.agent.interface import TurnRequest
from hermes_trio.bootstrap import create_app, open_server, prepared_of
from hermes_trio.core.events import Finished, Result, Text
from hermes_trio.core.messages import Usage
from hermes_trio.tools.base import tool
from tests.support.asgi import Client
from tests.support.fakes import CHAT, Pause, ask, ask_stream, bearer, make_harness
from tests.support.run_harness import EventReplayAgent, RunHarness, rest_of
from tests.support.scripted_upstream import Call, calls, refusal, says, serve_scripts

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CALLER = "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{CALLER}-01"
KEY = "a-key-that-is-long-enough-0123456789"


class Spans:
    """What was recorded, by name."""

    def __init__(self, exporter: InMemorySpanExporter) -> None:
        self._exporter = exporter

    @property
    def names(self) -> set[str]:
        """The names of all spans."""
        return {span.name for span in self._exporter.get_finished_spans()}

    def one(self, name: str) -> ReadableSpan:
        """The only span of a name."""
        [found] = [span for span in self._exporter.get_finished_spans() if span.name == name]
        return found

    def attributes(self, name: str) -> Mapping[str, Any]:
        """The attributes of the only span of a name."""
        return self.one(name).attributes or {}

    def parent(self, name: str) -> str:
        """The name of the parent of a span, its id if the parent is elsewhere, "" without one."""
        parent = self.one(name).parent
        if parent is None:
            return ""
        names = {own_id(span): span.name for span in self._exporter.get_finished_spans()}
        return names.get(parent.span_id, trace.format_span_id(parent.span_id))


def own_id(span: ReadableSpan) -> int:
    """The id of a span."""
    assert span.context is not None
    found: int = span.context.span_id
    return found


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Spans:
    """An SDK with an exporter in memory."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(tracing, "_tracer", provider.get_tracer("test"))
    return Spans(exporter)


@tool
async def look_up(place: str) -> str:
    """Look up the weather.

    Args:
        place: where.
    """
    with tracing._tracer.start_as_current_span("a query in the tool"):
        return f"sunny in {place}"


@tool
async def break_down() -> str:
    """Fail."""
    raise ValueError("broken")


# -- the whole way --


async def play_upstream(tmp_path: Path, *scripts: Any, headers: Mapping[str, str]) -> Any:
    """Run a turn of the upstream agent in a whole server; return what the model server received."""
    async with serve_scripts(*scripts) as upstream:
        app = create_app(
            agent="upstream",
            base_url=upstream.base_url,
            upstream_model="m",
            tools=("tests.test_tracing:look_up", "tests.test_tracing:break_down"),
            store="memory:",
            data_dir=tmp_path,
            api_key=KEY,
            sandbox="off",
        )
        async with open_server(prepared_of(app), app):
            client = Client(app, {**bearer(KEY), **headers})
            answer = await client.send(CHAT, ask(model="hermes-agent"))
            assert answer.status == 200
        return upstream.requests


async def test_request_run_model_calls_and_tools_are_one_trace(
    spans: Spans, tmp_path: Path
) -> None:
    requests = await play_upstream(
        tmp_path,
        calls(Call("look_up", {"place": "Brno"}, "call_a"), Call("break_down", {}, "call_b")),
        lambda request: says(request.headers["traceparent"]),
        headers={"traceparent": TRACEPARENT},
    )
    run, request = "invoke_agent hermes-agent", f"POST {CHAT}"
    assert spans.parent(request) == CALLER
    assert spans.parent(run) == request
    assert spans.parent("execute_tool look_up") == spans.parent("execute_tool break_down") == run
    assert spans.parent("a query in the tool") == "execute_tool look_up"
    assert spans.one(request).kind is SpanKind.SERVER
    assert {
        "http.request.method": "POST",
        "http.route": CHAT,
        "http.response.status_code": 200,
        "enduser.id": "default",
    }.items() <= spans.attributes(request).items()
    assert {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "look_up",
        "gen_ai.tool.call.id": "call_a",
    }.items() <= spans.attributes("execute_tool look_up").items()
    assert spans.one("execute_tool break_down").status.status_code is StatusCode.ERROR
    assert spans.attributes(run)["gen_ai.usage.output_tokens"] == 14
    # the model server is told of the span of its call
    chats = [span for span in spans._exporter.get_finished_spans() if span.name == "chat m"]
    assert [span.kind for span in chats] == [SpanKind.CLIENT] * 2
    assert {span.parent and span.parent.span_id for span in chats} == {own_id(spans.one(run))}
    sent = [request.headers["traceparent"].split("-")[1:3] for request in requests]
    assert sent == [[TRACE, trace.format_span_id(own_id(span))] for span in chats]
    first = chats[0].attributes or {}
    assert first["gen_ai.response.finish_reasons"] == ("tool_calls",)
    assert first["gen_ai.usage.input_tokens"] == 5
    assert first["server.address"] == "127.0.0.1"


async def test_a_failed_model_call(spans: Spans, tmp_path: Path) -> None:
    async with serve_scripts([refusal(404, "no such model")]) as upstream:
        app = create_app(
            agent="upstream", base_url=upstream.base_url, upstream_model="m", store="memory:",
            data_dir=tmp_path, api_key=KEY, sandbox="off",
        )  # fmt: skip
        async with open_server(prepared_of(app), app):
            await Client(app, bearer(KEY)).send(CHAT, ask())
    assert spans.attributes("chat m")["error.type"] == "not_found"
    assert spans.one("chat m").status.status_code is StatusCode.ERROR
    assert spans.one("invoke_agent hermes-agent").status.status_code is StatusCode.ERROR


async def test_without_an_sdk_the_context_of_the_client_is_passed_on(tmp_path: Path) -> None:
    [request] = await play_upstream(tmp_path, says("hi"), headers={"traceparent": TRACEPARENT})
    assert request.headers["traceparent"] == TRACEPARENT
    [request] = await play_upstream(tmp_path, says("hi"), headers={})
    assert "traceparent" not in request.headers


async def test_without_an_sdk_nothing_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def unexpected(*_arguments: object, **_options: object) -> Any:
        raise AssertionError("a span was started")

    monkeypatch.setattr(trace.ProxyTracer, "start_span", unexpected)
    monkeypatch.setattr(trace.ProxyTracer, "start_as_current_span", unexpected)
    assert isinstance(tracing.request_span("GET", "/", {}), nullcontext)
    assert tracing.run_span(RunHarness(EventReplayAgent([])).order.header) is tracing._NO_RUN_SPAN
    assert tracing.model_call_span("m", "h", 1) is tracing._NO_MODEL_CALL


# -- requests --


async def test_a_request_without_a_parent_begins_a_trace(spans: Spans) -> None:
    await make_harness().client.get("/health", {"traceparent": "garbage"})
    assert spans.parent("GET /health") == ""


async def test_names_of_spans_cannot_be_invented_by_clients(spans: Spans) -> None:
    client = make_harness().client
    await client.get("/v1/models/x1", method="BREW")
    await client.get("/v1/models/x2")
    assert spans.names == {"HTTP", "GET /v1/models/<path:model_id>"}


async def test_a_request_that_the_client_leaves(spans: Spans) -> None:
    pause = Pause()
    harness = make_harness([Text("x"), pause])
    async with harness.client.post(CHAT, ask_stream()) as exchange:
        await pause.wait_reached()
        exchange.disconnect()
        await exchange.end()
    assert spans.one(f"POST {CHAT}").status.status_code is StatusCode.UNSET
    assert spans.attributes("invoke_agent hermes-agent")["hermes.reason"] == "client_disconnected"


# -- runs --


async def play(harness: RunHarness) -> None:
    async with harness.open() as run:
        await rest_of(run)


RUN = "invoke_agent hermes-agent"


async def test_a_run_is_one_span(spans: Spans) -> None:
    await play(RunHarness(EventReplayAgent([Text("a"), Finished(Result(usage=Usage(3, 4)))])))
    [name] = spans.names
    assert name.startswith("invoke_agent ")
    assert {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.response.id": "run-1",
        "gen_ai.usage.output_tokens": 4,
        "hermes.status": "completed",
    }.items() <= spans.attributes(name).items()
    assert spans.one(name).status.status_code is StatusCode.UNSET


async def test_a_failed_run_is_an_error(spans: Spans) -> None:
    await play(RunHarness(EventReplayAgent([Finished()])))
    [name] = spans.names
    assert spans.one(name).status.status_code is StatusCode.ERROR


class InThreads:
    """Uses tools in its own thread and in one that it starts."""

    def run(self, turn: TurnRequest, emitter: Emitter) -> str:
        with emitter.tool("outer"), tracing._tracer.start_as_current_span("inside"):
            pass

        def work() -> None:
            emitter.tool_started("c1", "elsewhere")
            with emitter.tool_context("c1"), tracing._tracer.start_as_current_span("there"):
                pass
            emitter.tool_completed("c1", "done")

        other = threading.Thread(target=work)
        other.start()
        other.join()
        with tracing._tracer.start_as_current_span("between"):
            emitter.tool_started("c2", "cut off")
        return "done"


async def test_the_context_reaches_the_threads_of_an_agent(spans: Spans) -> None:
    harness = RunHarness(InThreads())
    harness.services = evolve(harness.services, clock=time.monotonic)
    await play(harness)
    [run] = [name for name in spans.names if name.startswith("invoke_agent")]
    assert spans.parent("execute_tool outer") == run
    assert spans.parent("inside") == "execute_tool outer"
    assert spans.parent("execute_tool elsewhere") == run
    assert spans.parent("there") == "execute_tool elsewhere"
    assert spans.parent("between") == run
    assert spans.parent("execute_tool cut off") == "between"
    assert spans.attributes("execute_tool cut off")["error.type"] == "cancelled"


class InATask:
    """Uses a tool in a Trio task."""

    async def run(self, turn: TurnRequest, emitter: AsyncEmitter) -> str:
        async with emitter.tool("outer"):
            await trio.to_thread.run_sync(self._work)
        return "done"

    def _work(self) -> None:
        with tracing._tracer.start_as_current_span("inside"):
            pass


async def test_the_context_reaches_the_tasks_of_an_agent(spans: Spans) -> None:
    await play(RunHarness(InATask()))
    assert spans.parent("inside") == "execute_tool outer"
    assert spans.parent("execute_tool outer").startswith("invoke_agent")


def test_a_call_that_begins_after_the_end_has_no_span(spans: Spans) -> None:
    tools = tracing.ToolSpans()
    tools.started("a", "first")
    tools.started("a", "again")
    tools.close()
    tools.started("b", "late")
    tools.completed("b", is_error=False)
    with tools.current("b"):
        assert not trace.get_current_span().get_span_context().is_valid
    assert spans.names == {"execute_tool first"}


@pytest.fixture(autouse=True)
def no_span_left() -> Iterator[None]:
    """No test may leave a current span behind."""
    yield
    assert not trace.get_current_span().get_span_context().is_valid
