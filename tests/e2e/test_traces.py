"""Traces of a real server: the environment decides where they go, and a collector gets them."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.util import find_spec
from threading import Thread
from typing import Any

import httpx2
import pytest

from hermes_trio.server.telemetry import MISSING, SHUTDOWN_SECONDS, wanted_exporter
from tests.e2e.conftest import Launch
from tests.support.server_process import ServerProcess, eventually

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CALLER = "00f067aa0ba902b7"
TURN = {"messages": [{"role": "user", "content": "/terminal date"}], "stream": True}
CHAIN = ["POST /v1/chat/completions", "invoke_agent hermes-agent", "execute_tool terminal"]


@pytest.mark.parametrize(
    ("environ", "exporter"),
    [
        ({}, ""),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318"}, "otlp"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://localhost:4318/v1/traces"}, "otlp"),
        ({"OTEL_TRACES_EXPORTER": "console"}, "console"),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, ""),
        ({"OTEL_SDK_DISABLED": "TRUE", "OTEL_TRACES_EXPORTER": "console"}, ""),
    ],
)
def test_the_standard_variables_decide(environ: Mapping[str, str], exporter: str) -> None:
    assert wanted_exporter(environ) == exporter


def chat(server: ServerProcess) -> None:
    """Run a turn with a tool, as part of the trace of its client."""
    headers = {"Authorization": f"Bearer {server.key}", "traceparent": f"00-{TRACE}-{CALLER}-01"}
    with httpx2.Client(trust_env=False, timeout=30) as client:
        answer = client.post(f"{server.url}/v1/chat/completions", json=TURN, headers=headers)
    assert answer.status_code == 200


@pytest.mark.slow
def test_spans_on_the_console(launch: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    server = launch(log_format="json")
    chat(server)
    eventually(lambda: server.log.count('"name": "POST /v1/chat/completions"') == 1)
    spans = [
        json.loads(found)
        for found in re.findall(r"^\{\n.*?^\}", server.log, re.MULTILINE | re.DOTALL)
    ]
    parents = {span["name"]: (span["parent_id"] or "").removeprefix("0x") for span in spans}
    ids = {span["name"]: span["context"]["span_id"].removeprefix("0x") for span in spans}
    assert [parents[name] for name in CHAIN] == [CALLER, ids[CHAIN[0]], ids[CHAIN[1]]]
    lines = [json.loads(line) for line in server.log.splitlines() if line.startswith('{"')]
    assert {line["trace_id"] for line in lines if "request_id" in line} == {TRACE}


@pytest.mark.slow
def test_an_unknown_exporter(launch: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "zipkin")
    server = launch(expected="no such exporter")
    assert "use otlp or console" in server.log
    chat(server)


@pytest.mark.slow
def test_a_server_without_the_exporter_says_so(
    launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    if find_spec("opentelemetry.exporter") is not None:
        pytest.skip("the extra otel is installed")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    server = launch(expected="not installed")
    assert MISSING in server.log
    chat(server)


def need_exporter() -> None:
    """Skip a test without the exporter."""
    pytest.importorskip(
        "opentelemetry.exporter.otlp.proto.http",
        reason="the extra otel is not installed: nox -s otel runs this test",
    )


class Collector:
    """Receives spans over OTLP."""

    def __init__(self) -> None:
        self.url = ""
        self.bodies: list[bytes] = []

    @property
    def spans(self) -> list[Any]:
        """All spans so far."""
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (  # noqa: PLC0415
            ExportTraceServiceRequest,
        )

        requests = map(ExportTraceServiceRequest.FromString, self.bodies)
        return [
            span
            for request in requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]


@contextmanager
def collecting() -> Iterator[Collector]:
    """Run a collector for the length of a block."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            collector.bodies.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_arguments: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        collector.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield collector
        server.shutdown()
        thread.join()


@pytest.mark.slow
def test_a_collector_gets_the_spans(launch: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    need_exporter()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        server = launch()
        chat(server)
        server.stop()  # sends what is left
        named = {span.name: span for span in collector.spans}
    assert set(CHAIN) <= named.keys()
    assert {span.trace_id.hex() for span in collector.spans} >= {TRACE}
    assert named[CHAIN[0]].parent_span_id.hex() == CALLER
    assert named[CHAIN[2]].parent_span_id == named[CHAIN[1]].span_id


@pytest.mark.slow
def test_a_collector_that_is_gone_delays_the_exit_by_seconds_only(
    launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_exporter()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    server = launch(expected="Transient error|Failed to export")
    chat(server)
    begun = server.signal()
    server.stop()
    assert time.monotonic() - begun < SHUTDOWN_SECONDS + 3
