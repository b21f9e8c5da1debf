"""Chat Completions, in one piece."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from openai.types.chat import ChatCompletion

from hermes_trio.core.events import Reasoning, Result, Text, ToolCompleted, ToolStarted, Verdict
from hermes_trio.core.messages import Message, Usage
from hermes_trio.schema import replies
from hermes_trio.web.state import WebOptions
from tests.support.asgi import HttpResponse
from tests.support.fakes import (
    CHAT,
    AppHarness,
    BrokenStore,
    End,
    ScriptedAgentFactory,
    Step,
    ask,
    make_harness,
)

SECRET = "sk-proj-0123456789abcdef"
TOOL: tuple[Step, ...] = (ToolStarted("c", "terminal"), ToolCompleted("c", "hi"))


async def answer_to(script: list[Step], end: End = None, **body: object) -> HttpResponse:
    """The answer to a turn; whatever it is, it has its form."""
    harness = make_harness(script, end)
    answer = await harness.client.send(CHAT, ask(**body))
    assert harness.is_idle
    assert answer.headers["content-type"] == "application/json"
    msgspec.convert(
        answer.json, replies.ChatCompletion if answer.status == 200 else replies.ErrorEnvelope
    )
    return answer


def message(answer: HttpResponse) -> Any:
    return answer.json["choices"][0]["message"]


def reason(answer: HttpResponse) -> Any:
    return answer.json["choices"][0]["finish_reason"]


async def test_a_plain_answer() -> None:
    answer = await answer_to(
        [Text("Hello"), Text(" world")], Result(usage=Usage(11, 7)), model="gpt-x"
    )
    ChatCompletion.model_validate(answer.json)
    assert answer.status == 200
    assert re.fullmatch(r"chatcmpl-[0-9a-f]{29}", answer.json["id"])
    assert answer.json["object"] == "chat.completion"
    assert answer.json["created"] == 1_700_000_000
    assert answer.json["model"] == "gpt-x"
    assert len(answer.json["choices"]) == 1
    assert message(answer) == {"role": "assistant", "content": "Hello world"}
    assert reason(answer) == "stop"
    assert answer.json["usage"]["prompt_tokens"] == 11
    assert answer.json["usage"]["completion_tokens"] == 7
    assert answer.json["usage"]["total_tokens"] == 18
    assert "hermes" not in answer.json
    assert not [
        name for name in answer.headers if name.startswith("x-hermes-") and "session" not in name
    ]


@pytest.mark.parametrize(
    ("script", "end", "content"),
    [
        ([Text("Look. "), *TOOL, Text("\n\nIt said hi.")], None, "\n\nIt said hi."),
        ([Text("Look. "), *TOOL], "It said hi.", "It said hi."),
        ([Text("a"), Reasoning("hm"), Text("b")], None, "b"),
        ([*TOOL], "Done.", "Done."),
        ([], "Whole.", "Whole."),
        ([Text("Who")], "Whole.", "Whole."),
        ([Text("a"), None, Text("b")], None, "ab"),
    ],
)
async def test_the_answer_is_the_text_after_the_last_round(
    script: list[Step], end: End, content: str
) -> None:
    assert message(await answer_to(script, end))["content"] == content


async def test_reasoning_is_a_field_of_its_own() -> None:
    answer = await answer_to([Reasoning("hm "), Reasoning("hm"), Text("Yes")])
    assert message(answer) == {"role": "assistant", "content": "Yes", "reasoning_content": "hm hm"}


async def test_truncated_with_text() -> None:
    answer = await answer_to(
        [Text("Once")], Result(verdict=Verdict.TRUNCATED, error="output truncated")
    )
    assert answer.status == 200
    assert reason(answer) == "length"
    assert answer.json["hermes"]["error_code"] == "output_truncated"
    assert answer.json["hermes"]["partial"] is True
    assert answer.headers["x-hermes-completed"] == "false"
    assert answer.headers["x-hermes-partial"] == "true"
    assert answer.headers["x-hermes-error"] == "output truncated"


async def test_failed_after_some_text() -> None:
    answer = await answer_to([Text("Well")], Result(verdict=Verdict.FAILED, error="upstream 401"))
    assert answer.status == 200
    assert (message(answer)["content"], reason(answer)) == ("Well", "error")
    assert answer.json["hermes"]["failed"] is True
    assert answer.headers["x-hermes-partial"] == "false"


async def test_an_agent_that_raises_is_a_424() -> None:
    answer = await answer_to([Text("Well")], RuntimeError(f"no credit for {SECRET}"))
    assert answer.status == 424
    assert answer.error == {
        "message": "no credit for sk-***",
        "type": "server_error",
        "param": None,
        "code": "agent_error",
    }
    assert answer.headers["x-should-retry"] == "false"
    assert answer.headers["x-hermes-session-id"].startswith("api-")
    assert answer.headers["x-hermes-completed"] == "false"


@pytest.mark.parametrize(
    ("verdict", "flag"),
    [(Verdict.FAILED, "failed"), (Verdict.TRUNCATED, "partial"), (Verdict.INCOMPLETE, "partial")],
)
async def test_an_end_without_text_is_a_424(verdict: Verdict, flag: str) -> None:
    answer = await answer_to([*TOOL], Result(verdict=verdict, error="output truncated"))
    assert answer.status == 424
    assert (answer.error["type"], answer.error["code"]) == ("server_error", "agent_incomplete")
    assert "truncated" in answer.error["message"]
    flags = {"completed": False, "partial": False, "failed": False, flag: True}
    assert flags.items() <= answer.error["hermes"].items()
    assert answer.headers["x-hermes-completed"] == "false"
    assert answer.headers["x-hermes-error"] == "output truncated"
    assert answer.headers["x-hermes-session-id"].startswith("api-")
    assert answer.headers["x-should-retry"] == "false"


@pytest.mark.parametrize(
    ("end", "status"),
    [(RuntimeError("no credit"), 500), (Result(verdict=Verdict.FAILED, error="no credit"), 502)],
)
async def test_a_setting_restores_the_server_errors(end: Exception | Result, status: int) -> None:
    harness = make_harness([], end, options=WebOptions(agent_failure_status=500))
    answer = await harness.client.send(CHAT, ask())
    assert answer.status == status
    assert answer.headers["x-should-retry"] == "false"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("first\r\nX-Evil: 1\n\nsecond", "first X-Evil: 1 second"),
        ("žluťoučký \u2028 kůň", "?lu?ou?k?   k??"),
        (f"token={SECRET}", "token=***"),
        ("x" * 5_000, "x" * 200),
        ("\x00\x1b", None),
    ],
)
async def test_any_error_text_makes_a_good_header(text: str, shown: str | None) -> None:
    answer = await answer_to([Text("Well")], Result(verdict=Verdict.FAILED, error=text))
    assert answer.headers.get("x-hermes-error", "") == (shown or "")
    assert "x-evil" not in answer.headers


async def test_a_turn_that_cannot_be_stored_says_so() -> None:
    harness = make_harness([Text("Answer")], store=BrokenStore("write"))
    answer = await harness.client.send(CHAT, ask())
    assert (message(answer)["content"], reason(answer)) == ("Answer", "error")
    assert answer.json["hermes"]["error"] == "The answer could not be stored."
    assert harness.ends == [("failed", "server_error")]  # as it was told


async def test_a_mistake_of_ours_is_a_500_that_is_not_retried() -> None:
    harness = make_harness(store=object())  # type: ignore[arg-type]  # a store without methods
    answer = await harness.client.send(CHAT, ask(), {"X-Hermes-Session-Id": "s"})
    assert answer.status == 500
    assert answer.error["code"] == "internal_error"
    assert "object" not in answer.error["message"]  # the details are for the log
    assert answer.headers["x-should-retry"] == "false"
    assert harness.is_idle


# -- what the agent is told --


def asked(harness: AppHarness) -> Any:
    (turn,) = harness.agents.turns
    return turn


async def test_messages_become_history_message_and_instructions() -> None:
    harness = make_harness()
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "One"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c", "function": {"name": "t"}}],
        },
        {"role": "tool", "tool_call_id": "c", "content": "2"},
        {"role": "developer", "content": [{"type": "text", "text": "Be kind."}]},
        {"role": "user", "content": [{"type": "text", "text": "Three"}, "four"]},
    ]
    await harness.client.send(
        CHAT, {"messages": messages, "temperature": 0.5, "max_completion_tokens": 9, "x": 1}
    )
    turn = asked(harness)
    assert turn.instructions == "Be brief.\nBe kind."
    assert turn.message == "Three\nfour"
    assert [said.role for said in turn.history] == ["user", "assistant", "tool"]
    assert turn.history[0] == Message("user", "One")
    assert turn.history[2].tool_call_id == "c"
    assert turn.options == {"temperature": 0.5, "max_tokens": 9}
    assert (turn.principal, turn.model, turn.session_key) == ("ann", "hermes-agent", "")


async def test_an_image_reaches_the_agent_unchanged() -> None:
    harness = make_harness()
    image = {
        "type": "image_url",
        "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"},
    }
    await harness.client.send(CHAT, ask([{"type": "text", "text": "What?"}, image]))
    assert asked(harness).message == ({"type": "text", "text": "What?"}, image)
    assert asked(harness).text == "What?"


async def test_every_turn_has_an_agent_of_its_own() -> None:
    harness = make_harness(ScriptedAgentFactory([Text("x")], is_async=True))
    ids = [(await harness.client.send(CHAT, ask())).json["id"] for _ in range(3)]
    assert [turn.run_id for turn in harness.agents.turns] == ids
    assert len(set(ids)) == 3
