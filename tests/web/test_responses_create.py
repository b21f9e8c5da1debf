"""``POST /v1/responses``: what a client gets, streamed and in one piece."""

from __future__ import annotations

from typing import Any

import pytest

from hermes_trio.core.dialects.responses import ECHO
from hermes_trio.core.events import Result, Text, Verdict
from hermes_trio.core.messages import Message, Usage
from tests.support.fakes import Pause, ScriptedAgentFactory
from tests.support.responses_api import (
    RESPONSES,
    RICH,
    as_text,
    events,
    final,
    get,
    idle_harness,
    reason_of,
    say,
    stream,
    text_of,
    whole,
)

KINDS = [
    "reasoning", "message", "function_call", "function_call_output", "function_call_output", "message",
]  # fmt: skip
ASKED: dict[str, Any] = {
    "model": "my-model",
    "instructions": "Be brief.",
    "metadata": {"a": "b"},
    "temperature": 0.5,
    "top_p": 0.25,
    "max_output_tokens": 99,
    "max_tool_calls": 3,
    "parallel_tool_calls": False,
    "presence_penalty": 0.5,
    "frequency_penalty": -0.5,
    "prompt_cache_key": "k",
    "safety_identifier": "me",
    "service_tier": "flex",
    "tool_choice": "none",
    "top_logprobs": 2,
    "truncation": "auto",
    "user": "ann",
}


async def test_a_stream_has_the_whole_grammar() -> None:
    async with idle_harness(RICH, Result("", usage=Usage(5, 7, 1, 2, 3))) as harness:
        answer = await harness.client.send(RESPONSES, stream())
        told = final(answer)
        assert text_of(told) == "Looking. All done: é."
        assert sorted(item["type"] for item in told["output"]) == sorted([*KINDS, "function_call"])
        assert told["usage"]["total_tokens"] == 12
        types = {event["type"] for event in events(answer)}
        assert {
            "response.created", "response.in_progress", "response.output_text.delta", "response.completed",
            "response.function_call_arguments.delta", "response.reasoning_summary_text.delta",
        } <= types  # fmt: skip
        assert as_text(told) == await get(harness, told["id"])


async def test_a_whole_answer_is_what_the_stream_adds_up_to() -> None:
    async with idle_harness(RICH) as harness:
        told = whole(await harness.client.send(RESPONSES, say()))
        assert (told["status"], text_of(told)) == ("completed", "Looking. All done: é.")
        assert told == await get(harness, told["id"])
        other = as_text(final(await harness.client.send(RESPONSES, stream())))
        assert [_bare(item) for item in told["output"]] == [_bare(item) for item in other["output"]]


def _bare(item: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in item.items() if key != "id"}


@pytest.mark.parametrize("body", [say, stream])
async def test_the_headers(body: Any) -> None:
    async with idle_harness() as harness:
        answer = await harness.client.send(RESPONSES, body(), {"X-Hermes-Session-Key": "chan:1"})
        headers = answer.headers
        assert headers["x-hermes-session-key"] == "chan:1"
        assert headers["x-hermes-session-id"] == harness.agents.turns[0].session_id
        assert harness.agents.turns[0].session_key == "chan:1"
        assert "idempotency-replayed" not in headers
        if body is stream:
            assert headers["content-type"] == "text/event-stream"
            assert headers["cache-control"] == "no-cache, no-transform"
            assert headers["x-accel-buffering"] == "no"


@pytest.mark.parametrize("body", [say, stream])
async def test_what_was_asked_is_repeated(body: Any) -> None:
    tool = {"type": "function", "name": "f", "parameters": {}}
    more = {
        "tools": [tool],
        "reasoning": {"effort": "low"},
        "text": {"format": {"type": "json_object"}},
    }
    async with idle_harness() as harness:
        answer = await harness.client.send(RESPONSES, body(**ASKED, **more))
        told = final(answer) if body is stream else whole(answer)
        assert {name: told[name] for name in ASKED} == ASKED
        assert set(told) >= set(ECHO)
        assert told["tools"] == [{**tool, "description": None, "strict": None}]
        assert told["reasoning"] == {"effort": "low", "summary": None}
        assert told["text"] == {"format": {"type": "json_object"}}
        assert (told["store"], told["background"], told["previous_response_id"]) == (
            True,
            False,
            None,
        )


async def test_what_reaches_the_agent() -> None:
    async with idle_harness() as harness:
        await harness.client.send(RESPONSES, say("Go", **ASKED))
        [turn] = harness.agents.turns
        assert (turn.message, turn.history, turn.principal) == ("Go", (), "ann")
        assert (turn.instructions, turn.model) == ("Be brief.", "my-model")
        assert (turn.options["max_tokens"], turn.options["temperature"]) == (99, 0.5)
        assert "max_output_tokens" not in turn.options


async def test_many_items_are_a_past_and_a_question() -> None:
    items = [
        "First",
        {"role": "assistant", "content": [{"type": "output_text", "text": "Second"}]},
        {"role": "developer", "content": "Obey."},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Third"}]},
    ]
    async with idle_harness() as harness:
        await harness.client.send(RESPONSES, say(items))
        [turn] = harness.agents.turns
        assert (turn.message, turn.instructions) == ("Third", "Obey.")
        assert turn.history == (Message("user", "First"), Message("assistant", "Second"))


async def test_the_results_of_the_clients_own_tools_are_enough() -> None:
    items = [
        {"role": "user", "content": "Weather?"},
        {"type": "function_call", "call_id": "x", "name": "weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "x", "output": "sunny"},
    ]
    async with idle_harness() as harness:
        whole(await harness.client.send(RESPONSES, say(items)))
        [turn] = harness.agents.turns
        assert turn.message == ""
        assert [message.role for message in turn.history] == ["user", "assistant", "tool"]


@pytest.mark.parametrize(
    ("body", "param", "text"),
    [
        (say([{"type": "item_reference"}]), "input[0].id", "required"),
        (say(previous_response_id="a", conversation="b"), "conversation", "Cannot use both"),
        (say(background=True, store=False), "background", "store"),
        (say(metadata={str(n): "" for n in range(17)}), "metadata", "16"),
        (say(metadata={"k" * 65: ""}), "metadata.kkk", "64"),
        (say(metadata={"k": "v" * 513}), "metadata.k", "512"),
        (say(metadata={"k": 1}), "metadata.k", "string"),
        ({}, "input", "Missing"),
        (say([]), "input", "No user message"),
    ],
)
async def test_what_is_refused(body: Any, param: str, text: str) -> None:
    async with idle_harness() as harness:
        answer = await harness.client.send(RESPONSES, body)
        assert (answer.status, harness.agents.turns) == (400, [])
        assert text in answer.error["message"]
        assert answer.error["param"].startswith(param)


async def test_metadata_up_to_its_limits() -> None:
    metadata = {f"{n:064}": "v" * 512 for n in range(16)}
    async with idle_harness() as harness:
        assert (
            whole(await harness.client.send(RESPONSES, say(metadata=metadata)))["metadata"]
            == metadata
        )


@pytest.mark.parametrize("body", [say, stream])
async def test_what_is_not_to_be_stored_is_nowhere(body: Any) -> None:
    async with idle_harness() as harness:
        answer = await harness.client.send(RESPONSES, body(store=False))
        told = final(answer) if body is stream else whole(answer)
        assert (told["status"], told["store"]) == ("completed", False)
        one = f"{RESPONSES}/{told['id']}"
        for path in (one, f"{one}?stream=true", f"{one}/input_items"):
            assert (await harness.client.get(path)).status == 404
        assert await harness.store.load_history("ann", told["id"]) == ()
        assert await harness.transcript(answer.headers["x-hermes-session-id"]) == []
        again = await harness.client.send(RESPONSES, say(previous_response_id=told["id"]))
        assert (again.status, again.error["code"]) == (404, "previous_response_not_found")


@pytest.mark.parametrize("is_async", [True, False], ids=["task", "thread"])
async def test_leaving_what_is_not_stored_ends_it(is_async: bool) -> None:
    pause = Pause()
    async with idle_harness(ScriptedAgentFactory([Text("Hi"), pause], None, is_async)) as harness:
        async with harness.client.post(RESPONSES, stream(store=False)):
            await pause.wait_reached()
        assert harness.ends == [("incomplete", "client_disconnected")]


BAD_ENDS = [
    (ValueError("no such model"), "no such model"),
    (Result("", Verdict.FAILED, "upstream said 401"), "upstream said 401"),
    (Result("I could not", Verdict.FAILED), "I could not"),
    (None, "The agent gave no answer."),
    ("", "The agent gave no answer."),
]


@pytest.mark.parametrize(("end", "message"), BAD_ENDS)
@pytest.mark.parametrize("is_async", [True, False], ids=["task", "thread"])
async def test_a_failure_is_never_completed(end: Any, message: str, is_async: bool) -> None:
    async with idle_harness(ScriptedAgentFactory([], end, is_async)) as harness:
        streamed = final(await harness.client.send(RESPONSES, stream()))
        batch = whole(await harness.client.send(RESPONSES, say()))
        begun = whole(await harness.client.send(RESPONSES, say(background=True)))
        await harness.until_idle()
        for told in (
            streamed,
            batch,
            *[await get(harness, r["id"]) for r in (streamed, batch, begun)],
        ):
            assert reason_of(told) == ("failed", "agent_error")
            assert told["error"] == {
                "code": "server_error",
                "type": "server_error",
                "message": message,
            }
            assert told["completed_at"] is None


async def test_a_truncated_answer_is_incomplete() -> None:
    async with idle_harness([Text("Half")], Result("", Verdict.TRUNCATED)) as harness:
        told = final(await harness.client.send(RESPONSES, stream()))
        assert told["status"] == "incomplete"
        assert told["incomplete_details"] == {"reason": "max_output_tokens"}
        assert told == as_text(told) == await get(harness, told["id"])
