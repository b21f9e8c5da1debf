"""Chat Completions, streamed: what is said and how it ends."""

from __future__ import annotations

import re

import pytest

from hermes_trio.core.events import Reasoning, Result, Text, ToolCompleted, ToolStarted, Verdict
from hermes_trio.core.messages import Usage
from tests.support.asgi import HttpResponse
from tests.support.chat_api import chunks, deltas, failure, finish, progress, reason, said
from tests.support.fakes import (
    CHAT,
    BrokenStore,
    End,
    Pause,
    ScriptedAgentFactory,
    Step,
    ask_stream,
    make_harness,
)

USAGE = Usage(11, 7, 3, 2, 1)
SHOWN_USAGE = {
    "prompt_tokens": 11,
    "completion_tokens": 7,
    "total_tokens": 18,
    "prompt_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 2},
    "completion_tokens_details": {"reasoning_tokens": 1},
}
SECRET = "sk-proj-0123456789abcdef"


async def stream(script: list[Step], end: End = None, **body: object) -> HttpResponse:
    """The stream of a turn, from agents of both kinds: they must not differ."""
    answers = []
    for is_async in (True, False):
        harness = make_harness(ScriptedAgentFactory(script, end, is_async))
        answers.append(await harness.client.send(CHAT, ask_stream(**body)))
        assert harness.is_idle
    shapes = [(said(answer), progress(answer), finish(answer)["choices"]) for answer in answers]
    for shape in shapes:
        for event in shape[1]:
            event.pop("duration", None)
    assert shapes[0] == shapes[1]
    return answers[1]


async def test_headers_and_frames() -> None:
    answer = await stream([Text("Hello"), Text(" world")])
    assert answer.headers["content-type"] == "text/event-stream"
    assert answer.headers["cache-control"] == "no-cache, no-transform"
    assert answer.headers["x-accel-buffering"] == "no"
    assert re.fullmatch(r"chatcmpl-[0-9a-f]{29}", chunks(answer)[0]["id"])
    assert chunks(answer)[0]["created"] == 1_700_000_000
    assert deltas(answer)[0] == {"role": "assistant"}
    assert [added for added in deltas(answer) if "role" in added] == [{"role": "assistant"}]
    assert said(answer) == "Hello world"
    assert reason(answer) == "stop"
    assert set(finish(answer)) == {"id", "object", "created", "model", "choices", "usage"}
    assert (
        b'"object": "chat.completion.chunk"' in answer.body
    )  # Python's spacing, as clients match on it
    assert "x-hermes-completed" not in answer.headers


async def test_the_role_goes_out_before_the_agent_exists() -> None:
    factory_pause = Pause()
    harness = make_harness(ScriptedAgentFactory([Text("Hi")], factory_pause=factory_pause))
    async with harness.client.post(CHAT, ask_stream()) as exchange:
        assert (await exchange.frame()).json["choices"][0]["delta"] == {"role": "assistant"}
        await factory_pause.wait_reached()
        assert harness.agents.turns == []
        factory_pause.go()
        assert said(await exchange.end()) == "Hi"


async def test_text_goes_out_while_the_agent_works() -> None:
    pause = Pause()
    harness = make_harness([Text("One "), pause, Text("two")])
    async with harness.client.post(CHAT, ask_stream()) as exchange:
        await exchange.content("One ")
        await pause.wait_reached()
        assert b"two" not in exchange.raw
        pause.go()
        assert said(await exchange.end()) == "One two"


async def test_none_and_empty_deltas_mean_nothing() -> None:
    answer = await stream([Text("a"), None, Text(""), Reasoning(""), Text("b"), None, Text("c")])
    assert said(answer) == "abc"
    assert all(added != {"content": ""} for added in deltas(answer))


async def test_reasoning_stands_apart_from_content() -> None:
    answer = await stream(
        [Reasoning("hm "), Reasoning("hm"), Text("Yes"), Reasoning("!"), Text(".")]
    )
    assert said(answer, "reasoning_content") == "hm hm!"
    assert said(answer) == "Yes."
    assert all(len(added) == 1 for added in deltas(answer))


@pytest.mark.parametrize(
    "text", ["žluťoučký 🐎", "line\nbreak\r\n\u2028end", "\x00\x1b", "data: [DONE]\n\n", "\ud800"]
)
async def test_any_text_survives(text: str) -> None:
    answer = await stream([Text("("), Text(text), Text(")")])
    assert said(answer) == f"({text})"


@pytest.mark.parametrize(
    ("script", "end", "expected"),
    [
        ([], "All of it.", "All of it."),
        ([Text("All of")], "All of it.", "All of it."),
        ([Text("All of it.")], "All of it.", "All of it."),
        ([Text("All of it.")], Result("All of it.\n"), "All of it."),
        ([Text("Look. "), ToolStarted("c", "t"), ToolCompleted("c")], "Done.", "Look. Done."),
    ],
)
async def test_text_that_was_never_streamed_is_sent(
    script: list[Step], end: End, expected: str
) -> None:
    answer = await stream(script, end)
    assert said(answer) == expected
    assert reason(answer) == "stop"


async def test_usage_sits_in_the_finish_chunk() -> None:
    answer = await stream([Text("x")], Result(usage=USAGE))
    assert finish(answer)["usage"] == SHOWN_USAGE
    assert all("usage" not in chunk for chunk in chunks(answer)[:-1])


async def test_usage_in_a_chunk_of_its_own() -> None:
    script: list[Step] = [Reasoning("r"), Text("x"), ToolStarted("c", "t"), ToolCompleted("c")]
    answer = await stream(script, Result(usage=USAGE), stream_options={"include_usage": True})
    *others, last = chunks(answer)
    assert last["choices"] == []
    assert last["usage"] == SHOWN_USAGE
    assert all(chunk["usage"] is None and chunk["choices"] for chunk in others)


async def test_a_truncated_answer_is_no_error() -> None:
    answer = await stream(
        [Text("Once upon")], Result(verdict=Verdict.TRUNCATED, error="truncated", usage=USAGE)
    )
    assert reason(answer) == "length"
    assert b'data: {"error"' not in answer.body
    assert finish(answer)["hermes"] == {
        "completed": False,
        "partial": True,
        "failed": False,
        "reason": "max_output_tokens",
        "error": "truncated",
        "error_code": "output_truncated",
    }
    assert finish(answer)["usage"] == SHOWN_USAGE


@pytest.mark.parametrize(
    ("end", "kind"),
    [
        (RuntimeError(f"no credit for {SECRET}\nsecond line"), "RuntimeError"),
        (
            Result(verdict=Verdict.FAILED, error=f"no credit for {SECRET}\nsecond line"),
            "agent_error",
        ),
        (Result(f"no credit for {SECRET}\nsecond line", Verdict.FAILED), "agent_error"),
    ],
)
async def test_a_failure_is_a_nested_error_without_secrets(end: End, kind: str) -> None:
    answer = await stream([Text("Well, ")], end)
    message = "no credit for sk-***\nsecond line"
    assert reason(answer) == "error"
    assert failure(answer) == {
        "message": message,
        "type": kind,
        "code": "agent_error",
        "param": None,
    }
    hermes = finish(answer)["hermes"]
    assert (hermes["completed"], hermes["partial"], hermes["failed"]) == (False, False, True)
    assert hermes["error"] == message
    assert SECRET.encode() not in answer.body


async def test_a_factory_that_raises_is_a_failure() -> None:
    harness = make_harness(ScriptedAgentFactory([]))
    harness.agents.turns = None  # type: ignore[assignment]  # breaks the factory
    answer = await harness.client.send(CHAT, ask_stream())
    assert reason(answer) == "error"
    assert failure(answer)["type"] == "AttributeError"
    assert harness.is_idle


@pytest.mark.parametrize("end", [None, "", Result()])
async def test_an_empty_turn_is_a_failure(end: End) -> None:
    answer = await stream([], end)
    assert reason(answer) == "error"
    assert failure(answer)["message"]


async def test_an_agent_that_obeyed_an_interrupt_is_no_error() -> None:
    answer = await stream([Text("Half")], Result(verdict=Verdict.INTERRUPTED))
    assert reason(answer) == "stop"
    assert b'data: {"error"' not in answer.body
    assert finish(answer)["hermes"]["partial"] is True


async def test_a_turn_that_cannot_be_stored_says_so() -> None:
    harness = make_harness([Text("Answer")], store=BrokenStore("write"))
    answer = await harness.client.send(CHAT, ask_stream())
    assert said(answer) == "Answer"
    assert reason(answer) == "error"
    assert failure(answer)["type"] == "store_error"


@pytest.mark.parametrize("switch", [True, 1, "true", " Yes ", "on"])
async def test_spellings_of_stream(switch: object) -> None:
    harness = make_harness()
    answer = await harness.client.send(CHAT, {**ask_stream(), "stream": switch})
    assert said(answer) == "Hello world"


@pytest.mark.parametrize(
    ("model", "shown"), [("gpt-x", "gpt-x"), ("", "hermes-agent"), (None, "hermes-agent")]
)
async def test_the_model_is_echoed(model: str | None, shown: str) -> None:
    answer = await stream([Text("x")], None, model=model)
    assert {chunk["model"] for chunk in chunks(answer)} == {shown}
