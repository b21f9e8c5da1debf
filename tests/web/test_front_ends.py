"""Front ends with many users behind one key: whose session a turn belongs to, and what it may remember."""

from __future__ import annotations

import re
from typing import Any

import pytest

from hermes_trio.core.events import AnsweredBy, Choice, Text, ToolCompleted, ToolStarted
from hermes_trio.core.records import NoRun
from hermes_trio.web.state import ServedProfile, WebOptions
from tests.support.asgi import HttpResponse
from tests.support.chat_api import said
from tests.support.fakes import (
    CHAT,
    OTHER_KEY,
    AppHarness,
    Ask,
    ScriptedAgentFactory,
    Step,
    ask,
    ask_stream,
    bearer,
    make_harness,
)
from tests.support.responses_api import RESPONSES, idle_harness, say

Json = dict[str, Any]
SESSION = "x-hermes-session-id"


def open_webui(user: str = "u1", chat: str = "c1") -> dict[str, str]:
    """The headers of Open WebUI with ENABLE_FORWARD_USER_INFO_HEADERS."""
    return {
        "X-OpenWebUI-User-Name": user,
        "X-OpenWebUI-User-Id": user,
        "X-OpenWebUI-User-Email": f"{user}@example.test",
        "X-OpenWebUI-User-Role": "user",
        **({"X-OpenWebUI-Chat-Id": chat} if chat else {}),
    }


def user(text: str) -> Json:
    """A message of the user's."""
    return {"role": "user", "content": text}


def assistant(text: str) -> Json:
    """An answer, as a front end sends it back."""
    return {"role": "assistant", "content": text}


def history(harness: AppHarness) -> list[tuple[str, Any]]:
    """What the last agent was told of the past."""
    return [(message.role, message.content) for message in harness.agents.turns[-1].history]


async def session_of(harness: AppHarness, headers: dict[str, str], **more: Any) -> str:
    """The session of a turn that begins with the same word as all others."""
    answer = await harness.client.send(CHAT, ask("hi", **more), headers)
    assert answer.status == 200, answer.body
    return answer.headers[SESSION]


# Sessions


async def test_two_users_who_say_hi_have_two_sessions() -> None:
    harness = make_harness()
    sessions = {
        await session_of(harness, open_webui("u1", "c1")),
        await session_of(harness, open_webui("u2", "c2")),
        # Without an id of the chat, the beginning of it still tells.
        await session_of(harness, open_webui("u1", "")),
        await session_of(harness, open_webui("u2", "")),
        await session_of(harness, {}, user="u1"),
        await session_of(harness, {}, user="u2"),
        await session_of(harness, {}, prompt_cache_key="k"),
        await session_of(harness, {}),
    }
    assert len(sessions) == 8


async def test_one_chat_over_two_turns_is_one_session_with_its_tool_results() -> None:
    looked: list[Step] = [
        Text("Let me look."),
        ToolStarted("call_1", "terminal", {"command": "ls"}),
        ToolCompleted("call_1", "secret.txt"),
        Text(" There is a file."),
    ]
    harness = make_harness(looked)
    first = await harness.client.send(CHAT, ask_stream("What is there?"), open_webui())
    shown = said(first)
    assert shown == "Let me look. There is a file."
    messages = [user("What is there?"), assistant(f"{shown}\n"), user("Read it.")]
    second = await harness.client.send(CHAT, {"messages": messages}, open_webui())
    assert second.headers[SESSION] == first.headers[SESSION]
    assert re.fullmatch("openwebui-[0-9a-f]{32}", second.headers[SESSION])
    assert history(harness) == [
        ("user", "What is there?"),
        ("assistant", "Let me look."),
        ("tool", "secret.txt"),
        ("assistant", " There is a file."),
    ]
    (call,) = harness.agents.turns[-1].history[1].tool_calls
    assert (call.call_id, call.name, call.arguments) == ("call_1", "terminal", '{"command": "ls"}')
    listed = (await harness.client.get("/api/sessions")).json["data"]
    assert [session["id"] for session in listed] == [first.headers[SESSION]]


async def test_what_the_user_edited_is_what_was_said() -> None:
    harness = make_harness([ToolStarted("c", "t", {}), ToolCompleted("c", "r"), Text("Done.")])
    await harness.client.send(CHAT, ask("One"), open_webui())
    messages = [user("One"), assistant("Not done."), user("Two")]
    await harness.client.send(CHAT, {"messages": messages}, open_webui())
    assert history(harness) == [("user", "One"), ("assistant", "Not done.")]


async def test_several_models_may_answer_in_one_chat_at_once() -> None:
    harness = make_harness(ScriptedAgentFactory([Ask("x"), Text("y")], None, is_async=True))
    async with (
        harness.client.post(CHAT, ask_stream(), open_webui()) as first,
        harness.client.post(CHAT, ask_stream(), open_webui()) as second,
    ):
        heads = [await each.started() for each in (first, second)]
        assert [head.status for head in heads] == [200, 200]
        assert heads[0].headers[SESSION] == heads[1].headers[SESSION]


async def test_ids_reach_neither_other_principals_nor_named_sessions() -> None:
    harness = make_harness([Text("Answer")])
    named = await harness.client.send(CHAT, ask("A secret"), {"X-Hermes-Session-Id": "c1"})
    assert named.headers[SESSION] == "c1"
    messages = [user("A secret"), assistant("Answer"), user("And?")]
    for headers in (open_webui(chat="c1"), {**open_webui(chat="c1"), **bearer(OTHER_KEY)}):
        answer = await harness.client.send(CHAT, {"messages": messages}, headers)
        assert answer.headers[SESSION] != "c1"
    assert await harness.transcript("c1") == [("user", "A secret"), ("assistant", "Answer")]
    one, other = [(turn.principal, turn.session_id) for turn in harness.agents.turns[1:]]
    assert (one[0], other[0]) == ("ann", "bob")
    assert await harness.transcript(one[1], "bob") == await harness.transcript(one[1], "ann")


async def test_a_named_session_wins_over_the_ids_of_the_front_end() -> None:
    harness = make_harness([Text("Answer")])
    headers = {**open_webui(), "X-Hermes-Session-Id": "mine"}
    await harness.client.send(CHAT, ask("One"), headers)
    await harness.client.send(CHAT, ask("Two"), headers)
    assert history(harness) == [("user", "One"), ("assistant", "Answer")]


@pytest.mark.parametrize(
    "chat", ["x" * 5000, "a/../b", "C:\\chat", "žluť".encode().decode("latin-1")]
)
async def test_ids_of_any_form_are_taken(chat: str) -> None:
    harness = make_harness()
    one = await session_of(harness, open_webui(chat=chat))
    assert re.fullmatch("openwebui-[0-9a-f]{32}", one)
    assert await session_of(harness, open_webui(chat=chat)) == one


async def test_metadata_and_other_headers_name_a_chat_too() -> None:
    harness = make_harness()
    sessions = [
        await session_of(harness, {"X-LibreChat-Conversation-Id": "c", "X-LibreChat-User-Id": "u"}),
        await session_of(harness, {}, metadata={"chat_id": "c"}),
        await session_of(harness, {"X-Conversation-Id": "d"}),
    ]
    assert [name.partition("-")[0] for name in sessions] == ["librechat", "client", "client"]
    assert len(set(sessions)) == 3


async def test_responses_follow_the_chat_too() -> None:
    async with idle_harness() as harness:

        async def session(headers: dict[str, str], **more: Any) -> str:
            answer = await harness.client.send(RESPONSES, say("hi", **more), headers)
            assert answer.status == 200, answer.body
            return answer.headers[SESSION]

        first = await session(open_webui())
        assert await session(open_webui()) == first
        assert await session(open_webui("u2")) != first
        # What the client continues says more.
        assert (await session(open_webui(), conversation="talk")).startswith("conv-")
        cached = await session({}, prompt_cache_key="thread-1")
        assert await session({}, prompt_cache_key="thread-1") == cached
        assert await session({}, prompt_cache_key="thread-2") != cached
        assert await session({}) != await session({})
        assert await session({}, user="u") != await session({}, user="u")


async def test_a_chained_response_stays_in_its_session() -> None:
    async with idle_harness() as harness:
        first = await harness.client.send(RESPONSES, say("hi"), open_webui())
        more = say("more", previous_response_id=first.json["id"])
        second = await harness.client.send(RESPONSES, more, open_webui())
        assert second.headers[SESSION] == first.headers[SESSION]
        assert history(harness) == [("user", "hi"), ("assistant", "Hello world")]


# Approvals

RM: tuple[Any, ...] = (
    ToolStarted("c1", "terminal", {"command": "rm -rf x"}),
    Ask("rm -rf x", ("rm",), "c1"),
    ToolCompleted("c1", "gone"),
    Text("Done."),
)


async def decide(
    harness: AppHarness, headers: dict[str, str], choice: str = "deny", body: Json | None = None
) -> tuple[Choice, AnsweredBy]:
    """One turn that wants to delete: the decision, which is this choice if the agent asks."""
    async with harness.client.post(CHAT, body or ask_stream("hi"), headers) as exchange:
        run_id = (await exchange.frame()).json["id"]
        while not exchange.over.is_set():
            frame = await exchange.frame()
            if frame.is_done:
                break
            if frame.event == "hermes.approval.request":
                answer: HttpResponse = await harness.client.send(
                    f"/v1/runs/{run_id}/approval", {"choice": choice}
                )
                assert answer.status == 200
        await exchange.end()
    decision = harness.agents.decisions[-1]
    return decision.choice, decision.by


ASKED = (Choice.DENY, AnsweredBy.CLIENT)
REMEMBERED = (Choice.ONCE, AnsweredBy.REMEMBERED)


def asking() -> ScriptedAgentFactory:
    """An agent that asks before it deletes."""
    return ScriptedAgentFactory(RM, None, is_async=True)


@pytest.mark.parametrize("choice", ["session", "always"])
@pytest.mark.parametrize(
    ("one", "other"),
    [
        (open_webui("u1", "c1"), open_webui("u2", "c2")),
        (open_webui("u1", "channel:7"), open_webui("u2", "channel:7")),
        (open_webui("u1", ""), open_webui("u2", "")),
        (
            {**open_webui("u1"), "X-Hermes-Session-Id": "shared"},
            {**open_webui("u2"), "X-Hermes-Session-Id": "shared"},
        ),
    ],
    ids=["chats", "channel", "derived", "named"],
)
async def test_an_approval_of_one_user_is_not_the_others(
    one: dict[str, str], other: dict[str, str], choice: str
) -> None:
    harness = make_harness(asking())
    await decide(harness, one, choice)
    assert await decide(harness, other) == ASKED


async def test_an_approval_holds_in_its_chat() -> None:
    harness = make_harness(asking())
    assert await decide(harness, open_webui(), "session") == (Choice.SESSION, AnsweredBy.CLIENT)
    assert await decide(harness, open_webui()) == REMEMBERED
    assert await decide(harness, open_webui(chat="c2")) == ASKED


async def test_always_holds_for_the_user_everywhere() -> None:
    harness = make_harness(asking())
    await decide(harness, open_webui(), "always")
    assert await decide(harness, open_webui(chat="c2")) == REMEMBERED
    (grant,) = (await harness.client.get("/v1/approvals")).json["data"]
    assert (grant["end_user"], grant["session_id"]) == ("openwebui:u1", None)
    path = "/v1/approvals?pattern=rm&end_user="
    assert (await harness.client.get(f"{path}openwebui:u2", method="DELETE")).status == 404
    assert (await harness.client.get(f"{path}openwebui:u1", method="DELETE")).status == 200
    assert await decide(harness, open_webui()) == ASKED


async def test_nothing_is_remembered_for_a_derived_session() -> None:
    """Two people without any id who begin alike share a session, and may not share what it grants."""
    harness = make_harness(asking())
    first = await decide(harness, {}, "session")
    assert first == (Choice.SESSION, AnsweredBy.CLIENT)
    assert await decide(harness, {}) == ASKED
    assert (await harness.client.get("/v1/approvals")).json["data"] == []
    # Not even by naming it.
    derived = harness.agents.turns[0].session_id
    await decide(harness, {"X-Hermes-Session-Id": derived}, "session")
    assert await decide(harness, {"X-Hermes-Session-Id": derived}) == ASKED


async def test_within_its_run_an_approval_for_a_derived_session_holds() -> None:
    twice: list[Step] = [
        Ask("rm a", ("rm",)),
        Ask("rm b", ("rm",)),
        Ask("rm c", ("rm", "dd")),
        Text("Done."),
    ]
    harness = make_harness(ScriptedAgentFactory(twice, None, is_async=True))
    await decide(harness, {}, "session")
    assert [(each.choice, each.by) for each in harness.agents.decisions] == [
        (Choice.SESSION, AnsweredBy.CLIENT),
        REMEMBERED,
        (Choice.SESSION, AnsweredBy.CLIENT),
    ]


# Background tasks

TITLE = """### Task:
Generate a concise, 3-5 word title with an emoji summarizing the chat history.
### Guidelines:
- The title should clearly represent the main theme or subject of the conversation.
### Output:
JSON format: { "title": "your concise title here" }
### Chat History:
<chat_history>
USER: What is there?
ASSISTANT: There is a file.
</chat_history>"""
RAG = """### Task:
Respond to the user query using the provided context, incorporating inline citations.
<context>
<source id="1">text</source>
</context>
What is there?"""


def task(prompt: str = TITLE, **more: Any) -> Json:
    """A request as Open WebUI 0.10 sends it for itself: it removes the metadata, which name the task."""
    body = {"model": "hermes-agent", "messages": [user(prompt)], "stream": False}
    return {**body, "max_tokens": 1000, **more}


async def kept(harness: AppHarness) -> tuple[int, int]:
    """How many sessions and runs are listed."""
    paths = ("/api/sessions", "/v1/runs")
    first, second = [len((await harness.client.get(path)).json["data"]) for path in paths]
    return first, second


async def test_a_task_runs_without_tools_and_leaves_nothing() -> None:
    harness = make_harness([Text('{"title": "Files"}')])
    answer = await harness.client.send(CHAT, task(), open_webui())
    assert answer.json["choices"][0]["message"]["content"] == '{"title": "Files"}'
    (turn,) = harness.agents.turns
    assert turn.allows_tools is False
    assert await kept(harness) == (0, 0)
    assert isinstance(await harness.store.find_run("ann", answer.json["id"]), NoRun)
    await harness.client.send(CHAT, ask("What is there?"), open_webui())
    assert harness.agents.turns[-1].allows_tools is True
    assert await kept(harness) == (1, 1)


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (task("My own template"), {"X-OpenWebUI-Task": "title_generation"}),
        (task("My own template", stream=True), {"X-OpenWebUI-Task": "title_generation"}),
        (task("My own template", metadata={"task": "tags_generation"}), {}),
        (task("### Task:\nSummarize\n### Messages Being Compacted:\nx"), open_webui()),
        ({**task(), "messages": [{"role": "system", "content": "x"}, user(TITLE)]}, open_webui()),
        (task(), {**open_webui(), "X-Hermes-Session-Id": "mine"}),
        (task(), {**open_webui(), "Idempotency-Key": "k"}),
    ],
    ids=["header", "streamed", "metadata", "compaction", "system", "session", "idempotent"],
)
async def test_tasks(body: Json, headers: dict[str, str]) -> None:
    async with idle_harness() as harness:
        answer = await harness.client.send(CHAT, body, headers)
        assert answer.status == 200, answer.body
        assert harness.agents.turns[0].allows_tools is False
        assert await kept(harness) == (0, 0)


@pytest.mark.parametrize(
    ("body", "headers", "mode"),
    [
        (task(), {}, "auto"),
        (task(), open_webui(), "off"),
        (task(stream=True), open_webui(), "auto"),
        (task(RAG), open_webui(), "auto"),
        (task("### Task: write a poem"), open_webui(), "auto"),
        (task(tools=[{"type": "function", "function": {"name": "f"}}]), open_webui(), "auto"),
        (task("x"), {"X-OpenWebUI-Task": "moa_response_generation"}, "auto"),
        (task("x", metadata={"task": "nightly"}), {}, "auto"),
        ({"messages": [user("a"), assistant("b"), user(TITLE)]}, open_webui(), "auto"),
    ],
    ids=["no headers", "off", "streamed", "rag", "poem", "tools", "moa", "metadata", "history"],
)
async def test_what_is_no_task(body: Json, headers: dict[str, str], mode: str) -> None:
    harness = make_harness(options=WebOptions(open_webui_tasks=mode))
    answer = await harness.client.send(CHAT, body, headers)
    assert answer.status == 200, answer.body
    assert harness.agents.turns[0].allows_tools is True
    assert await kept(harness) == (1, 1)


async def test_tasks_are_recognised_without_headers_if_so_configured() -> None:
    harness = make_harness(options=WebOptions(open_webui_tasks="on"))
    await harness.client.send(CHAT, task())
    assert harness.agents.turns[0].allows_tools is False


async def test_tasks_in_the_form_of_responses() -> None:
    part = {"type": "input_text", "text": TITLE}
    message = {"type": "message", "role": "user", "content": [part]}
    body = {"model": "m", "input": [message], "stream": False, "max_output_tokens": 1000}
    async with idle_harness() as harness:
        answer = await harness.client.send(RESPONSES, body, open_webui())
        assert answer.status == 200, answer.body
        assert answer.json["store"] is False
        assert harness.agents.turns[0].allows_tools is False
        assert await kept(harness) == (0, 0)
        assert (await harness.client.get(f"{RESPONSES}/{answer.json['id']}")).status == 404


@pytest.mark.parametrize(
    ("principals", "handled_by"), [((), "tasks"), (("ann",), "tasks"), (("bob",), "")]
)
async def test_a_profile_for_tasks(principals: tuple[str, ...], handled_by: str) -> None:
    options = WebOptions(
        profiles=(ServedProfile("tasks", "small-model", principals),), task_profile="tasks"
    )
    small = ScriptedAgentFactory((Text("small"),))
    harness = make_harness(options=options, profile_agents={"tasks": small})
    answer = await harness.client.send(CHAT, task(), open_webui())
    agents = small if handled_by else harness.agents
    (turn,) = agents.turns
    assert (turn.profile, turn.allows_tools) == (handled_by, False)
    assert answer.json["model"] == "hermes-agent"
    await harness.client.send(CHAT, ask(), open_webui())
    assert harness.agents.turns[-1].profile == ""
