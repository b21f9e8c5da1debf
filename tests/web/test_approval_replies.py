"""Approval requests as messages of a chat: the reply ends with the question, the next message answers it."""

from __future__ import annotations

from typing import Any

import pytest
from trio.testing import MockClock, wait_all_tasks_blocked

from hermes_trio.core.events import AnsweredBy, Choice, Text, ToolCompleted, ToolStarted
from hermes_trio.runs.tracker import RunLimits
from hermes_trio.web.state import ServedProfile, WebOptions
from tests.support.asgi import HttpResponse
from tests.support.chat_api import PROGRESS, chunks, reason, said
from tests.support.fakes import (
    CHAT,
    AppHarness,
    Ask,
    Pause,
    ScriptedAgentFactory,
    Step,
    ask,
    ask_stream,
)
from tests.support.responses_api import idle_harness

Json = dict[str, Any]
HEADER = "X-Hermes-Approvals"
SESSION = "X-Hermes-Session-Id"
CHAT_OF_ZOE = {HEADER: "replies", "X-OpenWebUI-User-Id": "zoe", "X-OpenWebUI-Chat-Id": "c1"}
SCRIPT: tuple[Step, ...] = (
    Text("Let me."),
    ToolStarted("c1", "terminal", {"command": "rm -r x"}),
    Ask("rm -r x", ("rm",), "c1"),
    ToolCompleted("c1", "gone"),
    Text("Done."),
)
QUESTION = (
    "**Approval needed.** because\n\n```\nrm -r x\n```\n\n"
    "Reply **yes** or **no** (session, always: yes, and do not ask again)."
)


def agents(*script: Step) -> ScriptedAgentFactory:
    """An agent that asks before it deletes."""
    return ScriptedAgentFactory(script or SCRIPT, None, is_async=True)


async def send(
    harness: AppHarness, text: str, headers: dict[str, str] | None = None, **more: Any
) -> HttpResponse:
    """One message, streamed."""
    answer = await harness.client.send(CHAT, ask_stream(text, **more), headers or CHAT_OF_ZOE)
    assert answer.status == 200, answer.body
    return answer


def decisions(harness: AppHarness) -> list[tuple[Choice, AnsweredBy]]:
    """What the agent was told."""
    return [(each.choice, each.by) for each in harness.agents.decisions]


def content(answer: HttpResponse) -> str:
    """The text of a reply in one piece."""
    assert answer.status == 200, answer.body
    return str(answer.json["choices"][0]["message"]["content"])


@pytest.mark.parametrize(
    ("word", "choice"),
    [
        ("yes", Choice.ONCE),
        (" Yes! ", Choice.ONCE),
        ("no", Choice.DENY),
        ("No.", Choice.DENY),
        ("session", Choice.SESSION),
        ("always", Choice.ALWAYS),
    ],
)
async def test_the_next_message_answers(word: str, choice: Choice) -> None:
    async with idle_harness(agents()) as harness:
        first = await send(harness, "Delete x.")
        assert said(first) == f"Let me.\n\n{QUESTION}"
        assert reason(first) == "stop"
        (run,) = (await harness.client.get("/v1/runs")).json["data"]
        assert run["status"] == "waiting_for_approval"
        second = await send(harness, word)
        assert said(second) == "Done."
        assert reason(second) == "stop"
        assert second.headers["x-hermes-session-id"] == first.headers["x-hermes-session-id"]
        statuses = [chunk["status"] for chunk in chunks(second) if "toolCallId" in chunk]
        assert statuses == ["completed"]
        assert decisions(harness) == [(choice, AnsweredBy.CLIENT)]
        assert len(harness.agents.turns) == 1
        assert await harness.transcript(first.headers["x-hermes-session-id"]) == [
            ("user", "Delete x."),
            ("assistant", "Let me."),
            ("tool", "gone"),
            ("assistant", "Done."),
        ]


async def test_later_turns_see_what_the_tool_did() -> None:
    async with idle_harness(agents()) as harness:
        question = said(await send(harness, "Delete x."))
        done = said(await send(harness, "yes"))
        messages = [
            {"role": "user", "content": "Delete x."},
            {"role": "assistant", "content": question},
            {"role": "user", "content": "yes"},
            {"role": "assistant", "content": done},
            {"role": "user", "content": "What did you do?"},
        ]
        await harness.client.send(CHAT, {"messages": messages, "stream": True}, CHAT_OF_ZOE)
        assert ("tool", "gone") in [
            (message.role, message.content) for message in harness.agents.turns[-1].history
        ]
        await send(harness, "no")


async def test_replies_in_one_piece() -> None:
    async with idle_harness(agents()) as harness:
        first = await harness.client.send(CHAT, ask("Delete x."), CHAT_OF_ZOE)
        assert content(first) == QUESTION  # only the text after the last tool, as always
        second = await harness.client.send(CHAT, ask("yes"), CHAT_OF_ZOE)
        assert content(second) == "Done."
        assert decisions(harness) == [(Choice.ONCE, AnsweredBy.CLIENT)]


async def test_a_named_session_is_answered_although_it_is_busy() -> None:
    headers = {HEADER: "replies", SESSION: "mine"}
    async with idle_harness(agents(), max_runs=1) as harness:
        await send(harness, "Delete x.", headers)
        busy = await harness.client.send(CHAT, ask("yes"), {SESSION: "mine", HEADER: "events"})
        assert (busy.status, busy.error["code"]) == (429, "rate_limit_exceeded")
        # The only slot is taken by the run that waits.
        assert said(await send(harness, "yes", headers)) == "Done."


async def test_any_other_message_withdraws_the_question() -> None:
    async with idle_harness(agents()) as harness:
        await send(harness, "Delete x.")
        again = await send(harness, "Rather not, tell me a joke")
        assert said(again).endswith(QUESTION)
        assert harness.agents.turns[-1].message == "Rather not, tell me a joke"
        assert decisions(harness) == []
        assert harness.ends == [("cancelled", "stop_requested")]
        await send(harness, "no")


@pytest.mark.parametrize(
    "headers",
    [
        {**CHAT_OF_ZOE, "X-OpenWebUI-User-Id": "kim"},
        {**CHAT_OF_ZOE, "X-OpenWebUI-Chat-Id": "c2"},
    ],
    ids=["user", "chat"],
)
async def test_nobody_else_answers(headers: dict[str, str]) -> None:
    async with idle_harness(agents()) as harness:
        await send(harness, "Delete x.")
        assert said(await send(harness, "yes", headers)).endswith(QUESTION)
        assert len(harness.agents.turns) == 2
        assert decisions(harness) == []
        await send(harness, "no")
        await send(harness, "no", headers)
        assert decisions(harness) == [(Choice.DENY, AnsweredBy.CLIENT)] * 2


async def test_users_of_one_named_session_answer_their_own_questions() -> None:
    zoe, kim = [
        {HEADER: "replies", SESSION: "shared", "X-OpenWebUI-User-Id": name}
        for name in ("zoe", "kim")
    ]
    async with idle_harness(agents()) as harness:
        await send(harness, "Delete x.", zoe)
        refused = await harness.client.send(CHAT, ask("yes"), kim)
        assert (refused.status, refused.error["code"]) == (409, "session_busy")
        assert decisions(harness) == []
        await send(harness, "yes", zoe)


async def test_each_model_of_a_chat_is_answered_by_itself() -> None:
    other = agents()
    options = WebOptions(profiles=(ServedProfile("other", "other"),))
    async with idle_harness(agents(), options=options, profile_agents={"other": other}) as harness:
        await send(harness, "Delete x.", model="hermes-agent")
        await send(harness, "Delete x.", model="other")
        assert said(await send(harness, "yes", model="other")) == "Done."
        assert (len(other.decisions), len(harness.agents.decisions)) == (1, 0)
        await send(harness, "no", model="hermes-agent")


async def test_one_question_after_another() -> None:
    script: list[Step] = [Ask("one"), Text("First. "), Ask("two"), Text("Second.")]
    async with idle_harness(agents(*script)) as harness:
        assert "one" in said(await send(harness, "Go"))
        second = said(await send(harness, "yes"))
        assert second.startswith("First. ")
        assert "two" in second
        assert said(await send(harness, "no")) == "Second."
        assert [choice for choice, _ in decisions(harness)] == [Choice.ONCE, Choice.DENY]


async def test_no_answer_in_time_ends_the_run(mock_clock: MockClock) -> None:
    at_work = Pause()
    script = agents(Ask("rm -r x"), at_work, Text("Done."))
    async with idle_harness(script, limits=RunLimits(approval=60.0)) as harness:
        await send(harness, "Delete x.")
        mock_clock.jump(59.9)
        await wait_all_tasks_blocked()
        assert not harness.is_idle
        mock_clock.jump(0.2)
        await harness.until_idle()
        assert decisions(harness) == [(Choice.DENY, AnsweredBy.TIMEOUT)]
        assert harness.ends == [("incomplete", "client_disconnected")]
        # Too late: it is a turn of its own.
        assert said(await send(harness, "yes")).endswith(QUESTION)
        at_work.go()
        await send(harness, "no")


async def test_a_client_that_leaves_earlier_ends_the_run() -> None:
    pause = Pause()
    async with idle_harness(agents(Text("x"), pause, *SCRIPT)) as harness:
        async with harness.client.post(CHAT, ask_stream(), CHAT_OF_ZOE) as exchange:
            await exchange.content("x")
        await harness.until_idle()
        assert harness.ends == [("incomplete", "client_disconnected")]


async def test_an_answer_through_the_api_counts_too() -> None:
    async with idle_harness(agents()) as harness:
        first = await send(
            harness, "Delete x.", {**CHAT_OF_ZOE, "X-Hermes-On-Disconnect": "detach"}
        )
        run_id = chunks(first)[0]["id"]
        told = await harness.client.send(f"/v1/runs/{run_id}/approval", {"choice": "deny"})
        assert told.status == 200
        await harness.until_idle()
        assert harness.ends == [("completed", "")]


async def test_a_choice_that_is_not_offered_leaves_the_question_open() -> None:
    async with idle_harness(agents(Ask("x", allow_permanent=False), Text("y"))) as harness:
        assert "(session: yes" in said(await send(harness, "Go"))
        refused = await harness.client.send(CHAT, ask("always"), CHAT_OF_ZOE)
        assert (refused.status, refused.error["code"]) == (400, "invalid_approval_choice")
        assert said(await send(harness, "yes")) == "y"


async def test_a_background_task_is_no_reply() -> None:
    async with idle_harness(agents()) as harness:
        await send(harness, "Delete x.")
        await harness.client.send(CHAT, ask("yes"), {**CHAT_OF_ZOE, "X-OpenWebUI-Task": "title"})
        assert (Choice.ONCE, AnsweredBy.CLIENT) not in decisions(harness)
        await send(harness, "no")


async def test_a_repeated_request_shows_the_question_again() -> None:
    headers = {**CHAT_OF_ZOE, "Idempotency-Key": "k"}
    async with idle_harness(agents()) as harness:
        first = await send(harness, "Delete x.", headers)
        again = await send(harness, "Delete x.", headers)
        assert again.body == first.body
        assert len(harness.agents.turns) == 1
        assert said(await send(harness, "yes")) == "Done."


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({HEADER: "items"}, "invalid_approvals"),
        ({HEADER: "replies"}, "session_required"),
        ({HEADER: "replies", "X-OpenWebUI-User-Id": "zoe"}, "session_required"),
        ({HEADER: "replies", SESSION: "api-0123456789abcdef"}, "session_required"),
    ],
)
async def test_requests_that_cannot_be_answered(headers: dict[str, str], code: str) -> None:
    async with idle_harness(agents()) as harness:
        answer = await harness.client.send(CHAT, ask(), headers)
        assert (answer.status, answer.error["param"], answer.error["code"]) == (400, HEADER, code)
        assert harness.agents.turns == []


async def test_the_setting_turns_it_on_where_it_can_work() -> None:
    async with idle_harness(agents(), options=WebOptions(approval_replies=True)) as harness:
        zoe = {name: value for name, value in CHAT_OF_ZOE.items() if name != HEADER}
        assert said(await send(harness, "Delete x.", zoe)).endswith(QUESTION)
        assert said(await send(harness, "yes", zoe)) == "Done."
        for headers in ({"X-Other": "x"}, {**zoe, HEADER: "events"}):
            async with harness.client.post(CHAT, ask_stream(), headers) as exchange:
                frame = await exchange.frame()
                while frame.event != "hermes.approval.request":
                    assert frame.event in {"", PROGRESS}
                    frame = await exchange.frame()
