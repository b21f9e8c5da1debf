"""One OpenTelemetry span per run, named by the conventions for generative AI.

Nothing is recorded unless an SDK is set up.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import Self

from attrs import frozen
from opentelemetry import trace

from hermes_trio.core.outcome import Outcome, Status
from hermes_trio.core.records import RunHeader

_tracer = trace.get_tracer("hermes_trio")


@frozen
class RunSpan:
    """The span of a run."""

    span: trace.Span

    def ended(self, outcome: Outcome) -> None:
        """Set the attributes of the outcome."""
        self.span.set_attribute("hermes.status", str(outcome.status))
        self.span.set_attribute("hermes.reason", str(outcome.reason))
        self.span.set_attribute("gen_ai.usage.input_tokens", outcome.usage.input_tokens)
        self.span.set_attribute("gen_ai.usage.output_tokens", outcome.usage.output_tokens)
        if outcome.status is Status.FAILED:
            self.span.set_status(trace.StatusCode.ERROR, str(outcome.reason))


def _is_off() -> bool:
    """Return whether no SDK is set up."""
    provider = trace.get_tracer_provider()
    return isinstance(_tracer, trace.ProxyTracer) and isinstance(
        provider, trace.ProxyTracerProvider
    )


class _NoSpan(RunSpan):
    """Used by every run when no SDK is set up: its own context manager, which does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass

    def ended(self, outcome: Outcome) -> None:
        """Record nothing."""


_NO_SPAN = _NoSpan(trace.INVALID_SPAN)


def traced(header: RunHeader) -> AbstractContextManager[RunSpan]:
    """Open a span for the length of a block; it is the parent of spans that the agent creates."""
    # Without an SDK, the API would make a context of its own for each run.
    return _NO_SPAN if _is_off() else _traced(header)


@contextmanager
def _traced(header: RunHeader) -> Iterator[RunSpan]:
    attributes = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.request.model": header.stamp.model,
        "gen_ai.conversation.id": header.session_id,
        "gen_ai.response.id": header.run_id,
        "hermes.kind": header.kind,
    }
    with _tracer.start_as_current_span("invoke_agent", attributes=attributes) as span:
        yield RunSpan(span)
