"""The real OpenAI client for Python on streams.

The plain loop of the tutorials, and the stream helper.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import openai
import pytest
from attrs import define, field
from openai import OpenAI

from tests.e2e.sdk import MODEL, asked
from tests.support.server_process import ServerProcess, eventually
from tests.support.stored_records import turns

pytestmark = pytest.mark.xdist_group("e2e-shared")


@define
class StreamedReply:
    """What came of a stream."""

    text: str = ""
    thoughts: str = ""
    finish: list[str] = field(factory=list)
    tools: list[tuple[str, str]] = field(factory=list)

    def take(self, chunk: Any) -> None:
        """Note one chunk, in the manner of a tutorial: nothing is checked before it is used."""
        choice = chunk.choices[0]
        self.text += choice.delta.content or ""
        self.thoughts += getattr(choice.delta, "reasoning_content", None) or ""
        if choice.finish_reason:
            self.finish.append(choice.finish_reason)
        if hasattr(chunk, "toolCallId"):
            self.tools.append((chunk.toolCallId, chunk.status))


Listen = Callable[..., StreamedReply]


def plain_loop(client: OpenAI, text: str, **options: Any) -> StreamedReply:
    heard = StreamedReply()
    for chunk in client.chat.completions.create(
        model=MODEL, messages=asked(text), stream=True, **options
    ):
        heard.take(chunk)
    return heard


def helper(client: OpenAI, text: str, **options: Any) -> StreamedReply:
    heard = StreamedReply()
    with client.chat.completions.stream(model=MODEL, messages=asked(text), **options) as stream:
        for event in stream:
            if event.type == "chunk":
                heard.take(event.chunk)
        message = stream.current_completion_snapshot.choices[0].message
    assert message.content == heard.text
    assert getattr(message, "reasoning_content", "") == heard.thoughts
    return heard


both = pytest.mark.parametrize("listen", [plain_loop, helper])


@pytest.fixture
def client(server: ServerProcess) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{server.url}/v1", api_key=server.key, timeout=20) as client:
        yield client


@both
def test_text(client: OpenAI, listen: Listen) -> None:
    heard = listen(client, "good morning, ¡señor! 👋")
    assert heard.text.startswith("You said: “good morning, ¡señor! 👋”.")
    assert heard.finish == ["stop"]


@both
def test_reasoning(client: OpenAI, listen: Listen) -> None:
    heard = listen(client, "/think step by step")
    assert heard.thoughts == "step by step"
    assert "I thought about it" in heard.text


@both
def test_tool_progress_breaks_nothing(client: OpenAI, listen: Listen) -> None:
    heard = listen(
        client, "/terminal echo one\n/write notes.txt two\n/read notes.txt\n/terminal exit 3"
    )
    assert heard.finish == ["stop"]
    assert [status for _, status in heard.tools] == ["running", "completed"] * 4
    ids = [call for call, _ in heard.tools]
    assert ids[0::2] == ids[1::2]
    assert len(set(ids)) == 4


@both
def test_a_failure_raises(client: OpenAI, listen: Listen) -> None:
    with pytest.raises(openai.APIError, match="the tool shed burned down") as caught:
        listen(client, "/terminal true\n/fail the tool shed burned down")
    body = cast("dict[str, Any]", caught.value.body)
    assert (caught.value.code, body["type"]) == ("agent_error", "RuntimeError")


@both
def test_truncation_raises_nothing(client: OpenAI, listen: Listen) -> None:
    heard = listen(client, "/long 50", max_tokens=7)
    assert heard.text.split() == [f"word{number}" for number in range(1, 8)]
    assert heard.finish == ["length"]


def test_the_helper_raises_on_a_truncated_answer(client: OpenAI) -> None:
    with (
        client.chat.completions.stream(
            model=MODEL, messages=asked("/long 50"), max_tokens=3
        ) as stream,
        pytest.raises(openai.LengthFinishReasonError) as caught,
    ):
        stream.get_final_completion()
    assert caught.value.completion.choices[0].message.content == "word1 word2 word3 "


def test_usage_comes_last_if_asked_for(client: OpenAI) -> None:
    stream = client.chat.completions.create(
        model=MODEL, messages=asked("/long 5"), stream=True, stream_options={"include_usage": True}
    )
    *chunks, last = list(stream)
    assert last.choices == []
    assert last.usage is not None
    assert last.usage.completion_tokens == 5
    assert all(chunk.usage is None and len(chunk.choices) == 1 for chunk in chunks)


def test_usage_with_the_helper(client: OpenAI) -> None:
    with client.chat.completions.stream(
        model=MODEL, messages=asked("/long 5"), stream_options={"include_usage": True}
    ) as stream:
        usage = stream.get_final_completion().usage
    assert usage is not None
    assert usage.total_tokens == usage.prompt_tokens + 5


def test_leaving_in_mid_stream_interrupts_the_agent(client: OpenAI, server: ServerProcess) -> None:
    session = {"X-Hermes-Session-Id": "left-plain"}
    with client.chat.completions.create(
        model=MODEL, messages=asked("/long 100000"), stream=True, extra_headers=session
    ) as stream:
        said = next(
            chunk.choices[0].delta.content for chunk in stream if chunk.choices[0].delta.content
        )
    _was_interrupted(server, "left-plain", said)


def test_leaving_the_helper_interrupts_the_agent(client: OpenAI, server: ServerProcess) -> None:
    session = {"X-Hermes-Session-Id": "left-helper"}
    with client.chat.completions.stream(
        model=MODEL, messages=asked("/long 100000"), extra_headers=session
    ) as stream:
        said = next(event.delta for event in stream if event.type == "content.delta")
    _was_interrupted(server, "left-helper", said)


def _was_interrupted(server: ServerProcess, session: str, said: str) -> None:
    eventually(lambda: bool(turns(server, session)), 1)
    (turn,) = turns(server, session)
    assert (turn.status, turn.reason) == ("incomplete", "client_disconnected")
    assert turn.said_by("assistant").startswith(said)
    eventually(lambda: server.is_idle, 1)
