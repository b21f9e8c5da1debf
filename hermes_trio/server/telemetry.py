"""Set up the SDK of OpenTelemetry, as its standard environment variables say.

The SDK and the exporter come with the extra ``otel``. Programs that embed the server, or start it
with ``opentelemetry-instrument``, set it up themselves; then nothing is done here.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import structlog
from opentelemetry import trace

from hermes_trio import __version__

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import SpanProcessor, TracerProvider

log = structlog.get_logger(__name__)

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
EXPORTER = "OTEL_TRACES_EXPORTER"
DISABLED = "OTEL_SDK_DISABLED"
SERVICE_NAME = "OTEL_SERVICE_NAME"
MISSING = "OpenTelemetry is configured but not installed: pip install '.[otel]' in a clone of the repository"
SHUTDOWN_SECONDS = 3.0


def wanted_exporter(environ: Mapping[str, str]) -> str:
    """Return which exporter the environment asks for: ``otlp``, ``console``, or "" for none."""
    if environ.get(DISABLED, "").lower() == "true":
        return ""
    named = environ.get(EXPORTER, "")
    if named:
        return "" if named == "none" else named
    return "otlp" if any(environ.get(name) for name in ENDPOINTS) else ""


@contextmanager
def exported_traces() -> Iterator[None]:
    """Export spans for the length of a block, if the environment asks for it.

    At its end what is left is sent, which blocks for at most ``SHUTDOWN_SECONDS``.
    """
    provider = _make_provider(wanted_exporter(os.environ))
    if provider is None:
        yield
        return
    trace.set_tracer_provider(provider)
    try:
        yield
    finally:
        # It sends what is left. The exporter has no deadline for all of its attempts together.
        stopping = threading.Thread(target=provider.shutdown, daemon=True)
        stopping.start()
        stopping.join(SHUTDOWN_SECONDS)


def _make_provider(exporter: str) -> TracerProvider | None:
    if not exporter or not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return None
    try:
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - an optional dependency
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415

        processor = _make_processor(exporter)
    except ImportError:
        log.warning(MISSING)
        return None
    if processor is None:
        log.warning("there is no such exporter of traces: use otlp or console", exporter=exporter)
        return None
    named = {} if os.environ.get(SERVICE_NAME) else {"service.name": "hermes_trio"}
    provider = TracerProvider(
        resource=Resource.create({**named, "service.version": __version__}), shutdown_on_exit=False
    )
    provider.add_span_processor(processor)
    return provider


def _make_processor(exporter: str) -> SpanProcessor | None:
    """Return what takes the spans to an exporter, None if it is not known.

    Raises:
        ImportError: the extra is not installed.
    """
    from opentelemetry.sdk.trace.export import (  # noqa: PLC0415 - an optional dependency
        BatchSpanProcessor,
        ConsoleSpanExporter,
        SimpleSpanProcessor,
    )

    if exporter == "console":
        return SimpleSpanProcessor(ConsoleSpanExporter(out=sys.stderr))
    if exporter != "otlp":
        return None
    # Checkers of a user's agent follow imports to here, and need not have the extra.
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415
        OTLPSpanExporter,
    )

    return BatchSpanProcessor(OTLPSpanExporter())
