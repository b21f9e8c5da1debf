"""Tools of real MCP servers, over pipes and HTTP.

Needs the extra ``mcp``: ``nox -s mcp`` runs these.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from hermes_trio.tools.base import Tool, ToolError
from hermes_trio.tools.mcp import open_servers
from tests.support.processes import children
from tests.tools.use_recorder import UseRecorder

pytest.importorskip("mcp", reason="the extra mcp is not installed: nox -s mcp runs these tests")

SERVER = str(Path(__file__).with_name("mcp_server.py"))
PIPES = {"command": sys.executable, "args": [SERVER]}


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    processes = children()
    yield
    assert not children() - processes


@pytest.fixture
def recorder(tmp_path: Path) -> UseRecorder:
    return UseRecorder(tmp_path)


@asynccontextmanager
async def opened(
    recorder: UseRecorder, **servers: dict[str, Any]
) -> AsyncIterator[dict[str, Tool]]:
    """The tools of servers, by name."""
    async with open_servers(servers, recorder.workspace) as tools:
        yield {tool.name: tool for tool in tools}


@contextmanager
def serving_http(port: int = 0) -> Iterator[int]:
    """A server of its own process."""
    command = [sys.executable, SERVER, "http", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


async def failure(tool: Tool, recorder: UseRecorder, **arguments: Any) -> str:
    with pytest.raises(ToolError) as caught:
        await tool.run(arguments, recorder.use())
    return str(caught.value)


async def test_over_pipes(recorder: UseRecorder) -> None:
    async with opened(recorder, box=PIPES) as tools:
        assert {"box__add", "box__fail", "box__picture"} <= tools.keys()
        assert tools["box__add"].description == "Add two numbers."
        assert tools["box__add"].parameters["properties"]["a"]["type"] == "integer"
        assert await tools["box__add"].run({"a": 2, "b": 3}, recorder.use()) == "5"
        assert "it did not work" in await failure(tools["box__fail"], recorder)
        assert await tools["box__picture"].run({}, recorder.use()) == "[image/png]"
        assert await tools["box__folder"].run({}, recorder.use()) == str(
            recorder.workspace.resolve()
        )
        assert "a" in await failure(tools["box__add"], recorder, b=3)


async def test_over_http(recorder: UseRecorder) -> None:
    with serving_http() as port:
        async with opened(
            recorder, web={"url": f"http://127.0.0.1:{port}/mcp", "headers": {"X-A": "b"}}
        ) as tools:
            assert await tools["web__add"].run({"a": 2, "b": 3}, recorder.use()) == "5"
            assert "it did not work" in await failure(tools["web__fail"], recorder)


@pytest.mark.parametrize("way", ["pipes", "http"])
async def test_the_trace_reaches_the_server(recorder: UseRecorder, way: str) -> None:
    span = TracerProvider().get_tracer("test").start_span("execute_tool")
    with ExitStack() as stack:
        server: dict[str, Any] = PIPES
        if way == "http":
            server = {"url": f"http://127.0.0.1:{stack.enter_context(serving_http())}/mcp"}
        async with opened(recorder, box=server) as tools:
            assert await tools["box__trace"].run({}, recorder.use()) == "none"
            with trace.use_span(span):
                found = await tools["box__trace"].run({}, recorder.use())
    context = span.get_span_context()
    assert found.split("-")[1:3] == [
        trace.format_trace_id(context.trace_id),
        trace.format_span_id(context.span_id),
    ]


async def test_servers_see_no_secret_but_their_own(
    recorder: UseRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_SERVER_KEY", "canary")
    monkeypatch.setenv("OPENAI_API_KEY", "canary")
    async with opened(recorder, box={**PIPES, "env": {"GITHUB_TOKEN": "own"}}) as tools:
        [tool] = (tool for name, tool in tools.items() if name.startswith("box__read_env_names_"))
        said = await tool.run({}, recorder.use())
    assert "GITHUB_TOKEN=own" in said
    assert "PATH=" in said
    assert "canary" not in said


async def test_a_call_can_be_cancelled(recorder: UseRecorder) -> None:
    async with opened(recorder, box=PIPES) as tools:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(tools["box__hang"].run, {}, recorder.use())
            await recorder.happened.wait()
            nursery.cancel_scope.cancel()
        assert recorder.heard == "hanging\n"
        assert await tools["box__add"].run({"a": 1, "b": 1}, recorder.use()) == "2"


async def test_a_call_has_a_time_limit(recorder: UseRecorder) -> None:
    async with opened(recorder, box={**PIPES, "seconds": 0.5}) as tools:
        assert await failure(tools["box__hang"], recorder) == "box: took more than 0.5 seconds"


async def test_a_server_that_died_is_started_again(recorder: UseRecorder) -> None:
    async with opened(recorder, box=PIPES) as tools:
        said = await failure(tools["box__die"], recorder)
        assert said.startswith("box: the connection was lost during the call")
        assert await tools["box__add"].run({"a": 1, "b": 1}, recorder.use()) == "2"


async def test_an_http_server_that_comes_back(recorder: UseRecorder) -> None:
    with serving_http() as port:
        async with opened(
            recorder, web={"url": f"http://127.0.0.1:{port}/mcp", "seconds": 20.0}
        ) as tools:
            add = tools["web__add"]
            assert await add.run({"a": 1, "b": 1}, recorder.use()) == "2"
            await failure(tools["web__die"], recorder)
            assert "cannot be reached" in await failure(add, recorder, a=1, b=1)
            with serving_http(port):
                assert await add.run({"a": 1, "b": 1}, recorder.use()) == "2"


async def test_broken_servers_do_not_block_the_start(recorder: UseRecorder) -> None:
    broken: dict[str, dict[str, Any]] = {
        "absent": {"command": "no-such-program"},
        "quitter": {"command": sys.executable, "args": ["-c", "pass"]},
        "babbler": {"command": sys.executable, "args": ["-c", "print('nonsense')"]},
        "nobody": {"url": "http://127.0.0.1:1/mcp"},
        "lost": {**PIPES, "cwd": "no-such-folder"},
    }
    async with opened(recorder, **broken, box=PIPES) as tools:
        assert {name.partition("__")[0] for name in tools} == {"box"}
