"""OpenTelemetry spans of requests, runs, model calls and tool calls.

Named by the semantic conventions for HTTP and for generative AI. Only the API of OpenTelemetry is
needed. Without an SDK nothing is recorded, and a span costs a comparison; the trace context of a
client (``traceparent``) is passed on all the same.

A span is current in the task or thread that works on it, so that spans which an agent, a tool or a
library creates there become its children.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext

from attrs import frozen
from opentelemetry import context, propagate, trace
from opentelemetry.trace import Span, SpanKind, StatusCode
from opentelemetry.util.types import Attributes

from hermes_trio.core.messages import Usage
from hermes_trio.core.outcome import Outcome, Status
from hermes_trio.core.records import RunHeader

_tracer = trace.get_tracer("hermes_trio")

CONTEXT_HEADERS = ("traceparent", "tracestate", "baggage")
# What the methods of the HTTP standard are not, so that clients cannot invent names of spans.
_OTHER_METHOD = "HTTP"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_SERVER_ERROR = 500
_CANCELLED = "cancelled"

NO_SPAN = trace.INVALID_SPAN


def _is_off() -> bool:
    """Return whether no SDK is set up."""
    provider = trace.get_tracer_provider()
    return isinstance(_tracer, trace.ProxyTracer) and isinstance(
        provider, trace.ProxyTracerProvider
    )


def _current(
    name: str, kind: SpanKind = SpanKind.INTERNAL, attributes: Attributes = None
) -> AbstractContextManager[Span]:
    """Start a span, current for the length of a block.

    Exceptions are not recorded: how the work ended is set explicitly, and their messages may quote
    secrets.
    """
    return _tracer.start_as_current_span(
        name,
        kind=kind,
        attributes=attributes,
        record_exception=False,
        set_status_on_exception=False,
    )


def outgoing_headers() -> dict[str, str]:
    """Return the headers that tell another server of the current trace; none without one."""
    headers: dict[str, str] = {}
    propagate.inject(headers)
    return headers


def trace_id(span: Span) -> str:
    """Return the id of a span's trace as logs show it, "" if there is none."""
    found = span.get_span_context()
    return trace.format_trace_id(found.trace_id) if found.is_valid else ""


# -- requests --


def request_span(
    method: str, path: str, headers: Mapping[str, str]
) -> AbstractContextManager[Span]:
    """Open the span of a request, a child of the client's span if there is one."""
    has_parent = CONTEXT_HEADERS[0] in headers
    if _is_off() and not has_parent:
        return nullcontext(NO_SPAN)
    return _request_span(method, path, headers)


@contextmanager
def _request_span(method: str, path: str, headers: Mapping[str, str]) -> Iterator[Span]:
    given = {name: headers[name] for name in CONTEXT_HEADERS if name in headers}
    token = context.attach(propagate.extract(given))
    try:
        attributes = {"http.request.method": method, "url.path": path}
        with _current(_shown_method(method), SpanKind.SERVER, attributes) as span:
            yield span
    finally:
        context.detach(token)


def _shown_method(method: str) -> str:
    return method if method in _METHODS else _OTHER_METHOD


def end_request(span: Span, method: str, route: str, status: int | None, principal: str) -> None:
    """Set what is known at the end of a request. ``status`` is None if it got no response."""
    if not span.is_recording():
        return
    if route:
        span.update_name(f"{_shown_method(method)} {route}")
        span.set_attribute("http.route", route)
    if status is not None:
        span.set_attribute("http.response.status_code", status)
    if principal:
        span.set_attribute("enduser.id", principal)
    if status is None or status >= _SERVER_ERROR:
        span.set_status(StatusCode.ERROR)


# -- runs --


class ToolSpans:
    """The spans of the tool calls of one run. Thread-safe."""

    def __init__(self) -> None:
        self._context = context.get_current()
        self._lock = threading.Lock()
        self._open: dict[str, Span] = {}
        self._is_closed = False

    def started(self, call_id: str, name: str) -> None:
        """Start the span of a call. A second start of the same call changes nothing."""
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": name,
            "gen_ai.tool.call.id": call_id,
            "gen_ai.tool.type": "function",
        }
        # Threads that an agent starts by itself have no current span.
        has_parent = trace.get_current_span().get_span_context().is_valid
        with self._lock:
            if call_id in self._open or self._is_closed:
                return
            self._open[call_id] = _tracer.start_span(
                f"execute_tool {name}",
                None if has_parent else self._context,
                attributes=attributes,
            )

    def completed(self, call_id: str, is_error: bool) -> None:
        """End the span of a call."""
        with self._lock:
            span = self._open.pop(call_id, None)
        if span is not None:
            _end_tool(span, "tool_error" if is_error else "")

    def current(self, call_id: str) -> AbstractContextManager[object]:
        """Make the span of a call the current one for the length of a block."""
        with self._lock:
            span = self._open.get(call_id)
        if span is None:
            return nullcontext()
        return trace.use_span(span, record_exception=False, set_status_on_exception=False)

    def close(self) -> None:
        """End the spans of calls that were cut off."""
        with self._lock:
            self._is_closed = True
            spans, self._open = list(self._open.values()), {}
        for span in spans:
            _end_tool(span, _CANCELLED)


def _end_tool(span: Span, error_type: str) -> None:
    if error_type:
        span.set_attribute("error.type", error_type)
        span.set_status(StatusCode.ERROR)
    span.end()


@frozen
class RunSpan:
    """The span of a run, and those of its tool calls. ``tools`` is None if nothing is recorded."""

    span: Span
    tools: ToolSpans | None

    def ended(self, outcome: Outcome) -> None:
        """Set the attributes of the outcome."""
        if self.tools is None:
            return
        span, usage = self.span, outcome.usage
        span.set_attribute("hermes.status", str(outcome.status))
        span.set_attribute("hermes.reason", str(outcome.reason))
        span.set_attribute("gen_ai.usage.input_tokens", usage.input_tokens)
        span.set_attribute("gen_ai.usage.output_tokens", usage.output_tokens)
        if outcome.status is Status.FAILED:
            span.set_attribute("error.type", outcome.failure.kind or str(outcome.reason))
            span.set_status(StatusCode.ERROR, str(outcome.reason))


_NO_RUN_SPAN = nullcontext(RunSpan(NO_SPAN, None))


def run_span(header: RunHeader) -> AbstractContextManager[RunSpan]:
    """Open the span of a run; it is the parent of what the agent does."""
    # Without an SDK, the API would make a context of its own for each run.
    return _NO_RUN_SPAN if _is_off() else _run_span(header)


@contextmanager
def _run_span(header: RunHeader) -> Iterator[RunSpan]:
    name = header.stamp.model
    attributes = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": "hermes_trio",
        "gen_ai.agent.name": name,
        "gen_ai.request.model": name,
        "gen_ai.conversation.id": header.session_id,
        "gen_ai.response.id": header.run_id,
        "hermes.kind": header.kind,
    }
    with _current(f"invoke_agent {name}", attributes=attributes) as span:
        tools = ToolSpans()
        try:
            yield RunSpan(span, tools)
        finally:
            tools.close()


# -- model calls --


@frozen
class ModelCallSpan:
    """The span of a model call."""

    span: Span

    def answered(self, finish: str, usage: Usage) -> None:
        """Set the attributes of the answer."""
        if not self.span.is_recording():
            return
        if finish:
            self.span.set_attribute("gen_ai.response.finish_reasons", (finish,))
        self.span.set_attribute("gen_ai.usage.input_tokens", usage.input_tokens)
        self.span.set_attribute("gen_ai.usage.output_tokens", usage.output_tokens)

    def failed(self, kind: str) -> None:
        """Mark the call as failed."""
        self.span.set_attribute("error.type", kind)
        self.span.set_status(StatusCode.ERROR)


_NO_MODEL_CALL = nullcontext(ModelCallSpan(NO_SPAN))


def model_call_span(
    model: str, host: str, port: int | None
) -> AbstractContextManager[ModelCallSpan]:
    """Open the span of a call to a model server."""
    return _NO_MODEL_CALL if _is_off() else _model_call_span(model, host, port)


@contextmanager
def _model_call_span(model: str, host: str, port: int | None) -> Iterator[ModelCallSpan]:
    attributes: dict[str, str | int] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",  # of the API that the server speaks
        "gen_ai.request.model": model,
        "server.address": host,
    }
    if port is not None:
        attributes["server.port"] = port
    with _current(f"chat {model}", SpanKind.CLIENT, attributes) as span:
        yield ModelCallSpan(span)
