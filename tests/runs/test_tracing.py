"""One span for each run, with how it ended, and above whatever the agent does."""

from __future__ import annotations

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from hermes_trio.agent.emitter import Emitter
from hermes_trio.agent.interface import TurnRequest
from hermes_trio.core.events import Finished, Result, Text
from hermes_trio.core.messages import Usage
from hermes_trio.runs import tracing
from tests.support.run_harness import EventReplayAgent, RunHarness, rest_of


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(tracing, "_tracer", provider.get_tracer("test"))
    return exporter


async def play(harness: RunHarness) -> None:
    async with harness.open() as run:
        await rest_of(run)


async def test_a_run_is_one_span(spans: InMemorySpanExporter) -> None:
    await play(RunHarness(EventReplayAgent([Text("a"), Finished(Result(usage=Usage(3, 4)))])))
    [span] = spans.get_finished_spans()
    assert span.name == "invoke_agent"
    assert span.attributes is not None
    assert span.attributes["gen_ai.response.id"] == "run-1"
    assert span.attributes["gen_ai.usage.output_tokens"] == 4
    assert span.attributes["hermes.status"] == "completed"
    assert span.status.status_code is trace.StatusCode.UNSET


async def test_a_failed_run_is_an_error(spans: InMemorySpanExporter) -> None:
    await play(RunHarness(EventReplayAgent([Finished()])))
    [span] = spans.get_finished_spans()
    assert span.status.status_code is trace.StatusCode.ERROR


async def test_the_agent_works_inside_the_span(spans: InMemorySpanExporter) -> None:
    seen: list[int] = []

    class Looker:
        def run(self, turn: TurnRequest, emitter: Emitter) -> str:
            seen.append(trace.get_current_span().get_span_context().span_id)
            return "looked"

    await play(RunHarness(Looker()))
    [span] = spans.get_finished_spans()
    assert seen == [span.context.span_id]
