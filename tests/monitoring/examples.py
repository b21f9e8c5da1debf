"""The log lines and the trace that the documentation shows, taken from real servers.

``python -m tests.monitoring.examples`` writes them into the pages. Ids, times, ports and sizes are
replaced, because they differ from run to run.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx2
import trio

from tests.support.scripted_upstream import Call, calls, says, serve_scripts
from tests.support.server_process import ROOT, LaunchOptions, ServerProcess, eventually, serving

LOGS = ROOT / "docs/how_to/read_the_logs.md"
TRACES = ROOT / "docs/how_to/trace_runs.md"

CHAT = "/v1/chat/completions"
REQUEST_ID = "checkout-42"
RUN_ID = "chatcmpl-c9707336886e93ef8a04b6a05c8f7"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CLIENT_SPAN = "00f067aa0ba902b7"

_BLOCK = r"(<!-- generated: {name} -->\n```text\n).*?(^```$)"
_CONTEXT = ("request_id", "run_id", "principal")
_SPAN = re.compile(r"^\{\n.*?^\}", re.MULTILINE | re.DOTALL)
_CONSTANT: Mapping[str, Any] = {
    "timestamp": "2026-11-18T05:33:59.179059Z",
    "run_id": RUN_ID,
    "gen_ai.response.id": RUN_ID,
    "gen_ai.conversation.id": "api-8a4b3c1e5d6f7081",
    "server.port": 8000,
    "seconds": 0.739,
    "duration": 0.744442,
    "bytes": 3052,
}


def write() -> None:
    """Write all examples into the pages."""
    with tempfile.TemporaryDirectory() as folder:
        for page, name, text in examples(Path(folder)):
            found = page.read_text("utf-8")
            page.write_text(_replace(found, name, text), "utf-8")


def examples(folder: Path) -> Iterator[tuple[Path, str, str]]:
    """Run the servers; yield the page, the name and the text of each example."""
    lines = request_lines(folder / "logs")
    yield LOGS, "log lines of a request, json", "".join(f"{json.dumps(line)}\n" for line in lines)
    yield TRACES, "trace of a run", "".join(trio.run(_trace, folder / "traces"))


def shown(page: Path, name: str) -> str:
    """Return an example as a page has it."""
    found = re.search(_BLOCK.format(name=name), page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert found is not None, f"{page} has no block {name!r}"
    return found[0].removeprefix(found[1]).removesuffix(found[2])


def _replace(page: str, name: str, text: str) -> str:
    pattern = re.compile(_BLOCK.format(name=name), re.MULTILINE | re.DOTALL)
    assert pattern.search(page), f"no block {name!r}"
    return pattern.sub(lambda found: found[1] + text + found[2], page)


def send(server: ServerProcess, body: object, **headers: str) -> httpx2.Response:
    """Send a chat request."""
    authorization = {"Authorization": f"Bearer {server.key}", "Connection": "close"}
    with httpx2.Client(trust_env=False, timeout=30) as client:
        return client.post(server.url + CHAT, json=body, headers={**authorization, **headers})


def json_lines(server: ServerProcess) -> list[dict[str, Any]]:
    """Return the log of a server with JSON lines."""
    return [json.loads(line) for line in server.log.splitlines() if line.startswith('{"')]


# -- one request --


def request_lines(folder: Path) -> Sequence[Mapping[str, Any]]:
    """Return the log lines of a streamed request that runs a tool."""
    with serving(LaunchOptions(folder, settings={"log_format": "json"})) as server:
        body = {"stream": True, "messages": [{"role": "user", "content": "/terminal date"}]}
        assert send(server, body, **{"X-Request-Id": REQUEST_ID}).status_code == 200
        eventually(lambda: server.log.count('"message": "request"') == 1)
        lines = json_lines(server)
    return [_settled(_ordered(line)) for line in lines if line.get("request_id") == REQUEST_ID]


def _ordered(line: Mapping[str, Any]) -> dict[str, Any]:
    """Order the fields that come from context variables, which have no order of their own."""
    found = iter([name for name in _CONTEXT if name in line])
    names = [next(found) if name in _CONTEXT else name for name in line]
    return {name: line[name] for name in names}


def _settled(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _CONSTANT.get(name, value) for name, value in fields.items()}


# -- one trace --


async def _trace(folder: Path) -> list[str]:
    scripts = [
        calls(Call("terminal", {"command": "date -u"}, "call_1")),
        says("It is noon."),
    ]
    async with serve_scripts(*scripts) as upstream:
        return await trio.to_thread.run_sync(_run_traced, folder, upstream.base_url)


def _run_traced(folder: Path, base_url: str) -> list[str]:
    """Run a turn with a tool on a server that writes its spans to stderr; return the tree of spans."""
    settings = {
        "base_url": base_url,
        "upstream_model": "qwen3",
        "tools": "terminal",
        "sandbox": "off",
    }
    command = ("env", "OTEL_TRACES_EXPORTER=console", *LaunchOptions(folder).command)
    with serving(LaunchOptions(folder, settings=settings, command=command)) as server:
        body = {"messages": [{"role": "user", "content": "What time is it?"}]}
        assert send(server, body, traceparent=f"00-{TRACE}-{CLIENT_SPAN}-01").status_code == 200
        eventually(lambda: f'"name": "POST {CHAT}"' in server.log)
        spans = [json.loads(found) for found in _SPAN.findall(server.log)]
    assert {span["context"]["trace_id"] for span in spans} == {f"0x{TRACE}"}
    return [*_tree(spans, f"0x{CLIENT_SPAN}", "")]


def _tree(spans: Sequence[Mapping[str, Any]], parent: str, indent: str) -> Iterator[str]:
    below = [span for span in spans if span["parent_id"] == parent]
    for span in sorted(below, key=lambda each: str(each["start_time"])):
        yield f"{indent}{span['name']}\n"
        for name, value in sorted(_settled(span["attributes"]).items()):
            yield f"{indent}  · {name} = {json.dumps(value)}\n"
        yield from _tree(spans, span["context"]["span_id"], f"{indent}    ")


if __name__ == "__main__":
    write()
