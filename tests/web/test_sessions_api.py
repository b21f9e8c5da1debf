"""``/api/sessions``: made, listed, changed, read, branched and deleted."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from hermes_trio.core.events import Result, Text, ToolCompleted, ToolStarted
from hermes_trio.core.messages import Message, Usage
from hermes_trio.core.records import Ownership, RunHeader, Stamp
from hermes_trio.schema import replies
from tests.support.asgi import HttpResponse
from tests.support.fakes import (
    CHAT,
    EPOCH,
    AppHarness,
    BrokenStore,
    Pause,
    ScriptedAgentFactory,
    Step,
    ask,
    make_harness,
)
from tests.support.responses_api import (
    BOB,
    RESPONSES,
    idle_harness,
    say,
    stream,
    until_ended,
    whole,
)
from tests.support.runs_api import RUNS, followed, started
from tests.support.sessions_api import (
    SESSIONS,
    deleted,
    ids,
    listed,
    made,
    messages,
    patched,
    refusal,
    session_of,
    shown,
    transcript,
    with_body,
)

ID = "X-Hermes-Session-Id"


# -- making --


async def test_a_session_of_the_servers_naming() -> None:
    harness = make_harness()
    session = await made(harness)
    assert re.fullmatch(r"api_1700000000_[0-9a-f]{8}", session["id"])
    assert session == {
        "id": session["id"],
        "source": "api_server",
        "kind": "sessions",
        "user_id": None,
        "model": None,
        "title": None,
        "started_at": EPOCH,
        "ended_at": None,
        "end_reason": None,
        "message_count": 0,
        "tool_call_count": 0,
        "api_call_count": 0,
        "input_tokens": 0,
        "output_tokens": 0,
        "cache_read_tokens": 0,
        "cache_write_tokens": 0,
        "reasoning_tokens": 0,
        "estimated_cost_usd": None,
        "actual_cost_usd": None,
        "parent_session_id": None,
        "forked_messages": None,
        "pinned": False,
        "last_active": EPOCH,
        "preview": "",
        "has_system_prompt": False,
        "has_model_config": False,
    }
    assert await shown(harness, session["id"]) == session
    assert (await listed(harness))["data"] == [session]


async def test_no_body_makes_one_too() -> None:
    harness = make_harness()
    assert session_of(await harness.client.get(SESSIONS, method="POST"), 201)["title"] is None


@pytest.mark.parametrize("name", ["id", "session_id"])
async def test_a_session_of_the_clients_naming(name: str) -> None:
    harness = make_harness()
    body = {
        name: " mine ",
        "model": "m",
        "title": "  A \n title ",
        "system_prompt": "Be brief.",
        "x": 1,
    }
    session = await made(harness, **body)
    assert (session["id"], session["model"], session["title"]) == ("mine", "m", "A title")
    assert session["has_system_prompt"] is True
    assert "Be brief." not in str(session)


@pytest.mark.parametrize(
    "value", ["a\nb", "\x7f", "../etc", "a/b", "a\\b", "C:x", "x" * 257, 7, ["a"], True]
)
@pytest.mark.parametrize("path", [SESSIONS, f"{SESSIONS}/s/fork"])
async def test_a_bad_id(value: Any, path: str) -> None:
    harness = make_harness()
    await made(harness, id="s")
    answer = await harness.client.send(path, {"id": value})
    assert refusal(answer) == (400, "invalid_session_id", "id")
    assert await ids(harness) == ["s"]


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ({"system_prompt": 7}, "invalid_system_prompt", "system_prompt"),
        ({"system_prompt": ["a"]}, "invalid_system_prompt", "system_prompt"),
        ({"title": 7}, "invalid_title", "title"),
        ({"title": "x" * 101}, "invalid_title", "title"),
        ({"title": "a\x00b"}, "invalid_title", "title"),
        ({"model": 7}, None, "model"),
        ([], "invalid_json", None),
    ],
)
async def test_a_bad_body(body: Any, code: str, param: str) -> None:
    harness = make_harness()
    assert refusal(await harness.client.send(SESSIONS, body)) == (400, code, param)
    assert await ids(harness) == []


async def test_an_id_and_a_title_are_used_once() -> None:
    harness = make_harness()
    await made(harness, id="a", title="T")
    assert refusal(await harness.client.send(SESSIONS, {"id": "a"})) == (
        409,
        "session_exists",
        "id",
    )
    answer = await harness.client.send(SESSIONS, {"id": "b", "title": " T "})
    assert refusal(answer) == (400, "invalid_title", "title")
    assert await ids(harness) == ["a"]
    answer = await harness.client.send(SESSIONS, {"id": "a", "title": "T"}, BOB)
    assert session_of(answer, 201)["id"] == "a"


async def test_of_many_at_once_one_is_made() -> None:
    harness = make_harness()
    answers: list[HttpResponse] = []

    async def create() -> None:
        answers.append(await harness.client.send(SESSIONS, {"id": "same"}))

    async with trio.open_nursery() as nursery:
        for _ in range(8):
            nursery.start_soon(create)
    assert sorted(answer.status for answer in answers) == [201] + [409] * 7


# -- listing --


async def test_pages() -> None:
    harness = make_harness()
    for number in range(5):
        await made(harness, id=f"s{number}")
    everything = await ids(harness)
    assert everything == ["s4", "s3", "s2", "s1", "s0"]  # the same time: then by name
    page = await listed(harness, "?limit=2&offset=1")
    assert [each["id"] for each in page["data"]] == ["s3", "s2"]
    assert (page["object"], page["limit"], page["offset"], page["has_more"]) == ("list", 2, 1, True)
    assert (await listed(harness, "?limit=2&offset=3"))["has_more"] is False
    for source, count in (("api_server", 5), ("sessions", 5), ("chat", 0), ("cli", 0), ("", 5)):
        assert len(await ids(harness, f"?source={source}")) == count


@pytest.mark.parametrize(
    ("query", "limit", "offset"),
    [
        ("", 50, 0),
        ("?limit=201&offset=7", 200, 7),
        ("?limit=x&offset=x", 50, 0),
        ("?limit=-1&offset=-1", 50, 0),
        ("?limit=0", 50, 0),
        ("?limit=1.5&offset=", 50, 0),
        (f"?limit={10**17}&offset={10**17}", 200, 2**53),
        (f"?limit={10**50}&offset={10**50}", 50, 0),
    ],
)
async def test_odd_numbers_fall_back(query: str, limit: int, offset: int) -> None:
    page = await listed(make_harness(), query)
    assert (page["limit"], page["offset"], page["data"]) == (limit, offset, [])


async def test_sessions_of_every_api_are_one_conversation_each() -> None:
    async with idle_harness([Text("Answer")], Result(usage=Usage(1, 2))) as harness:
        for text in ("One", "Two"):
            await harness.client.send(CHAT, ask(text), {ID: "chat-session"})
        first = whole(await harness.client.send(RESPONSES, say("One")))
        second = await harness.client.send(RESPONSES, say("Two", previous_response_id=first["id"]))
        response_session = second.headers["x-hermes-session-id"]
        run_id = await started(harness, "One")
        await followed(harness, run_id)
        await followed(harness, await started(harness, "Two", previous_response_id=run_id))
        await made(harness, id="mine")
        for text in ("One", "Two"):
            await harness.client.send(f"{SESSIONS}/mine/chat", {"message": text})
        await harness.until_idle()
        found = {each["id"]: each for each in (await listed(harness))["data"]}
        assert {name: each["kind"] for name, each in found.items()} == {
            "chat-session": "chat",
            response_session: "responses",
            run_id: "runs",
            "mine": "sessions",
        }
        for name, session in found.items():
            assert (session["message_count"], session["api_call_count"], session["preview"]) == (
                4,
                2,
                "One",
            )
            assert (session["input_tokens"], session["output_tokens"]) == (2, 4)
            assert await transcript(harness, name) == [
                ("user", "One"),
                ("assistant", "Answer"),
                ("user", "Two"),
                ("assistant", "Answer"),
            ]
        assert await ids(harness, "?source=runs") == [run_id]


async def test_a_live_run_is_in_the_list() -> None:
    pause = Pause()
    async with idle_harness(ScriptedAgentFactory([pause, Text("x")], is_async=True)) as harness:
        run_id = await started(harness, "Hello?")
        await pause.wait_reached()
        [session] = (await listed(harness))["data"]
        assert (session["id"], session["preview"], session["message_count"]) == (
            run_id,
            "Hello?",
            0,
        )
        pause.go()


async def test_a_session_that_goes_on_elsewhere_is_hidden() -> None:
    harness = make_harness([Text("Moved")], Result(session_id="s-2"))
    await made(harness, id="s-1")
    await harness.client.send(CHAT, ask("Go"), {ID: "s-1"})
    assert await ids(harness) == ["s-2"]
    for word in ("1", "true", "Yes", "on"):
        assert sorted(await ids(harness, f"?include_children={word}")) == ["s-1", "s-2"]
    assert (await shown(harness, "s-2"))["parent_session_id"] == "s-1"
    assert (await shown(harness, "s-1"))["end_reason"] == "compression"


async def test_what_was_not_to_be_stored_is_not_listed() -> None:
    async with idle_harness() as harness:
        await harness.client.send(RESPONSES, say(store=False))
        await harness.client.send(RESPONSES, say(store=False), {"Idempotency-Key": "k"})
        assert await ids(harness, "?include_children=1") == []


# -- changing --


async def test_a_title_is_given_and_taken_away() -> None:
    harness = make_harness()
    await made(harness, id="a")
    await made(harness, id="b", title="B")
    assert session_of(await patched(harness, "a", {"title": " A "}))["title"] == "A"
    assert refusal(await patched(harness, "a", {"title": "B"})) == (400, "invalid_title", "title")
    assert refusal(await patched(harness, "a", {"title": "x" * 101})) == (
        400,
        "invalid_title",
        "title",
    )
    assert refusal(await patched(harness, "a", {"title": 1})) == (400, "invalid_title", "title")
    assert (await shown(harness, "a"))["title"] == "A"
    assert session_of(await patched(harness, "a", {}))["title"] == "A"
    assert session_of(await patched(harness, "a", {"title": None}))["title"] is None


async def test_the_first_end_reason_wins() -> None:
    harness = make_harness()
    await made(harness, id="a")
    for nothing in ("", None, "  "):
        assert session_of(await patched(harness, "a", {"end_reason": nothing}))["ended_at"] is None
    for reason in ("done", "again"):
        session = session_of(await patched(harness, "a", {"end_reason": reason}))
        assert (session["ended_at"], session["end_reason"]) == (EPOCH, "done")
    assert refusal(await patched(harness, "a", {"end_reason": 1})) == (400, None, "end_reason")
    assert refusal(await patched(harness, "a", {"end_reason": "x" * 257})) == (
        400,
        None,
        "end_reason",
    )


async def test_nothing_else_can_be_changed() -> None:
    harness = make_harness()
    await made(harness, id="a")
    answer = await patched(harness, "a", {"title": "T", "model": "m"})
    assert refusal(answer) == (400, "unsupported_session_field", "model")
    answer = await patched(harness, "a", {"x" * 5000: 1})
    assert answer.error["code"] == "unsupported_session_field"
    assert len(answer.body) < 500
    assert (await shown(harness, "a"))["title"] is None


# -- what is not there --


async def unreachable(harness: AppHarness, headers: dict[str, str]) -> None:
    """Nothing can be done with a session that is not there, or is somebody else's."""
    path = f"{SESSIONS}/s"
    found = [
        await harness.client.get(path, headers),
        await harness.client.get(path, headers, method="DELETE"),
        await harness.client.get(f"{path}/messages", headers),
        await harness.client.get(f"{path}/chat/stream?run_id=run_1", headers),
        await harness.client.send(f"{path}/fork", {}, headers),
        await harness.client.send(f"{path}/chat", {"message": "Hi"}, headers),
        await harness.client.send(f"{path}/chat/stream", {"message": "Hi"}, headers),
    ]
    async with harness.client.open("PATCH", path, [b'{"title": "mine"}'], headers) as exchange:
        found.append(await exchange.end())
    for answer in found:
        assert refusal(answer) == (404, "session_not_found", "session_id")


async def test_a_session_that_is_not_there() -> None:
    async with idle_harness() as harness:
        await unreachable(harness, {})
        assert harness.agents.turns == []


async def test_a_session_of_somebody_else() -> None:
    async with idle_harness() as harness:
        await made(harness, id="s", title="T")
        await harness.client.send(f"{SESSIONS}/s/chat", {"message": "Hi"})
        before = await shown(harness, "s")
        await unreachable(harness, BOB)
        assert (await listed(harness, headers=BOB))["data"] == []
        assert await shown(harness, "s") == before


async def test_a_store_that_fails() -> None:
    harness = make_harness(store=BrokenStore("read"))
    await made(harness, id="s")
    answer = await harness.client.send(f"{SESSIONS}/s/chat", {"message": "Hi"})
    assert (answer.status, answer.error["code"]) == (503, "session_db_unavailable")
    assert harness.is_idle


# -- messages --


async def test_a_transcript_page_by_page() -> None:
    script: list[Step] = [
        Text("Look."),
        ToolStarted("c", "t", {"a": 1}),
        ToolCompleted("c", "found"),
        Text("Done."),
    ]
    async with idle_harness(script) as harness:
        await made(harness, id="s")
        parts = [
            {"type": "text", "text": "Go"},
            {"type": "image_url", "image_url": {"url": "https://x.test/a.png"}},
        ]
        answer = await harness.client.send(f"{SESSIONS}/s/chat", {"message": parts})
        page = await messages(harness, "s")
        assert (page["object"], page["session_id"], page["has_more"]) == ("list", "s", False)
        question, asked, result, said = page["data"]
        assert [each["id"] for each in page["data"]] == [1, 2, 3, 4]
        assert {each["run_id"] for each in page["data"]} == {answer.json["run_id"]}
        assert (question["role"], question["content"]) == ("user", parts)
        call = {"id": "c", "type": "function", "function": {"name": "t", "arguments": '{"a": 1}'}}
        assert (asked["content"], asked["tool_calls"]) == ("Look.", [call])
        assert (result["role"], result["tool_call_id"], result["tool_name"]) == ("tool", "c", "t")
        assert said["timestamp"] >= EPOCH
        for after in range(5):
            part = await messages(harness, "s", f"?limit=2&after={after}")
            assert part["data"] == page["data"][after : after + 2]
            assert part["has_more"] is (after < 2)


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", "after=-1", "after=x"])
async def test_odd_pages_are_refused(query: str) -> None:
    harness = make_harness()
    await made(harness, id="s")
    answer = await harness.client.get(f"{SESSIONS}/s/messages?{query}")
    assert refusal(answer) == (400, None, query.partition("=")[0])


# -- branches --


async def test_a_branch_goes_its_own_way() -> None:
    async with idle_harness([Text("Answer")]) as harness:
        await made(harness, id="s", title="T1", model="m", system_prompt="Be brief.")
        await harness.client.send(f"{SESSIONS}/s/chat", {"message": "One"})
        child = session_of(await harness.client.get(f"{SESSIONS}/s/fork", method="POST"), 201)
        assert (child["title"], child["model"], child["parent_session_id"]) == ("T1 #2", "m", "s")
        assert (child["has_system_prompt"], child["message_count"], child["end_reason"]) == (
            True,
            2,
            None,
        )
        assert child["id"].startswith("api_")
        assert (await shown(harness, "s"))["end_reason"] == "branched"
        await harness.client.send(f"{SESSIONS}/{child['id']}/chat", {"message": "Two"})
        turn = harness.agents.turns[-1]
        assert turn.history == (Message("user", "One"), Message("assistant", "Answer"))
        assert (turn.instructions, turn.model) == ("Be brief.", "m")
        assert len(await transcript(harness, child["id"])) == 4
        assert len(await transcript(harness, "s")) == 2
        assert set(await ids(harness)) == {child["id"], "s"}


async def test_a_branch_of_the_clients_naming() -> None:
    harness = make_harness()
    await made(harness, id="s", title="T")
    fork = f"{SESSIONS}/s/fork"
    child = session_of(
        await harness.client.send(fork, {"session_id": "mine", "title": "Mine"}), 201
    )
    assert (child["id"], child["title"]) == ("mine", "Mine")
    assert refusal(await harness.client.send(fork, {"id": "s"})) == (409, "session_exists", "id")
    assert refusal(await harness.client.send(fork, {"title": "Mine"})) == (
        400,
        "invalid_title",
        "title",
    )
    assert refusal(await harness.client.send(fork, {"title": 1})) == (400, "invalid_title", "title")
    assert len(await ids(harness)) == 2


async def test_a_branch_before_a_message() -> None:
    async with idle_harness([Text("Answer")]) as harness:
        await made(harness, id="s", model="m")
        for text in ("One", "Two"):
            await harness.client.send(f"{SESSIONS}/s/chat", {"message": text})
        fork = f"{SESSIONS}/s/fork"
        body = {"id": "child", "before": 3, "model": "other"}
        child = session_of(await harness.client.send(fork, body), 201)
        assert (child["forked_messages"], child["message_count"], child["model"]) == (2, 2, "other")
        assert (child["preview"], (await shown(harness, "s"))["forked_messages"]) == ("One", None)
        await harness.client.send(f"{SESSIONS}/child/chat", {"message": "Three"})
        assert await transcript(harness, "child") == [
            ("user", "One"),
            ("assistant", "Answer"),
            ("user", "Three"),
            ("assistant", "Answer"),
        ]
        for before in (0, 5, 10**9):
            answer = await harness.client.send(fork, {"before": before})
            assert refusal(answer) == (400, "invalid_message_id", "before")
        assert await ids(harness, "?parent=s") == ["child"]


async def test_a_pin() -> None:
    harness = make_harness()
    assert not (await made(harness, id="s"))["pinned"]
    assert session_of(await patched(harness, "s", {"pinned": True}))["pinned"]
    assert (await shown(harness, "s"))["pinned"]
    assert refusal(await patched(harness, "s", {"pinned": 1})) == (400, "invalid_type", "pinned")


# -- search --

SEARCH = "/api/messages/search"


async def test_a_search_through_all_sessions() -> None:
    async with idle_harness([Text("An answer about Plums")]) as harness:
        for session_id in ("ash", "elm"):
            await made(harness, id=session_id, title=f"T {session_id}")
            await harness.client.send(
                f"{SESSIONS}/{session_id}/chat", {"message": f"{'before ' * 30}plums {session_id}"}
            )
        answer = await harness.client.get(f"{SEARCH}?q=PLUMS%20ELM")
        msgspec.convert(answer.json, replies.MessageMatches)
        [match] = answer.json["data"]
        assert (match["session_id"], match["title"], match["role"]) == ("elm", "T elm", "user")
        assert match["message_id"] == 1
        assert "before plums elm" in match["excerpt"]
        assert (answer.json["has_more"], answer.json["next_offset"]) == (False, None)
        first = (await harness.client.get(f"{SEARCH}?q=plums&limit=1")).json
        assert {each["role"] for each in first["data"]} == {"user", "assistant"}
        assert (first["has_more"], first["next_offset"]) == (True, 1)
        rest = (await harness.client.get(f"{SEARCH}?q=plums&offset=1")).json
        found = [each["session_id"] for each in (*first["data"], *rest["data"])]
        assert sorted(found) == ["ash", "ash", "elm", "elm"]
        assert (await harness.client.get(f"{SEARCH}?q=plums", BOB)).json["data"] == []


@pytest.mark.parametrize(
    ("query", "param"),
    [("", "q"), ("q=%20", "q"), (f"q={'x' * 201}", "q"), ("q=x&limit=0", "limit")],
)
async def test_searches_that_are_refused(query: str, param: str) -> None:
    answer = await make_harness().client.get(f"{SEARCH}?{query}")
    assert (answer.status, answer.error["param"]) == (400, param)


async def test_a_refused_branch_leaves_the_source_as_it_was() -> None:
    harness = make_harness()
    before = await made(harness, id="s", title="T")
    await harness.client.send(f"{SESSIONS}/s/fork", {"title": "T"})
    assert await shown(harness, "s") == before


async def test_a_fork_doubles_nothing_in_a_chain_of_responses() -> None:
    async with idle_harness([Text("Answer")]) as harness:
        first = await harness.client.send(RESPONSES, say("One"))
        session_id = first.headers["x-hermes-session-id"]
        await harness.client.send(f"{SESSIONS}/{session_id}/fork", {"id": "child"})
        await harness.client.send(RESPONSES, say("Two", previous_response_id=first.json["id"]))
        said = [message.content for message in harness.agents.turns[-1].history]
        assert said == ["One", "Answer"]


# -- deleting --


async def test_nothing_of_a_deleted_session_is_left() -> None:
    async with idle_harness() as harness:
        response = await harness.client.send(RESPONSES, say("Secret"), {"Idempotency-Key": "k"})
        session_id, response_id = response.headers["x-hermes-session-id"], response.json["id"]
        run_id = await started(harness, session_id=session_id)
        await followed(harness, run_id)
        await harness.until_idle()
        answer = await harness.client.get(f"{SESSIONS}/{session_id}", method="DELETE")
        assert deleted(answer) == session_id
        assert answer.json["object"] == "hermes.session.deleted"
        for path in (f"{SESSIONS}/{session_id}", f"{RESPONSES}/{response_id}", f"{RUNS}/{run_id}"):
            assert (await harness.client.get(path)).status == 404
        again = await harness.client.send(RESPONSES, say("Secret"), {"Idempotency-Key": "k"})
        assert "idempotency-replayed" not in again.headers
        assert await harness.transcript(session_id) == []


@pytest.mark.parametrize("is_async", [True, False], ids=["task", "thread"])
async def test_what_runs_in_it_is_stopped_first(is_async: bool) -> None:
    pause = Pause()
    async with idle_harness(ScriptedAgentFactory([Text("One"), pause], None, is_async)) as harness:
        await started(harness, session_id="s")
        await pause.wait_reached()
        assert deleted(await harness.client.get(f"{SESSIONS}/s", method="DELETE")) == "s"
        assert harness.ends == [("cancelled", "stop_requested")]
        assert await ids(harness, "?include_children=1") == []


async def test_runs_elsewhere_go_on() -> None:
    pause = Pause()
    async with idle_harness(ScriptedAgentFactory([Text("One"), pause], is_async=True)) as harness:
        await made(harness, id="s")
        await started(harness, session_id="other")
        await pause.wait_reached()
        deleted(await harness.client.get(f"{SESSIONS}/s", method="DELETE"))
        await wait_all_tasks_blocked()
        assert harness.ends == []
        pause.go()


async def test_a_session_in_use_by_another_process_is_kept() -> None:
    async with idle_harness() as harness:
        header = RunHeader("ann", Stamp("run_x", EPOCH, "m"), "runs", "s", (Message("user", "Hi"),))
        await harness.store.begin_run(header, Ownership("another process"))
        answer = await harness.client.get(f"{SESSIONS}/s", method="DELETE")
        assert refusal(answer) == (409, "session_busy", "session_id")
        assert await ids(harness) == ["s"]


class Vanishing(BrokenStore):
    """A session is deleted by somebody else between two looks."""

    async def delete_session(self, principal: str, session_id: str) -> Any:
        await super().delete_session(principal, session_id)
        return await super().delete_session(principal, session_id)


async def test_two_deletions_at_once() -> None:
    harness = make_harness(store=Vanishing())
    await made(harness, id="s")
    answer = await harness.client.get(f"{SESSIONS}/s", method="DELETE")
    assert refusal(answer) == (404, "session_not_found", "session_id")


async def test_deleting_a_live_response_by_its_session() -> None:
    pause = Pause()
    async with idle_harness(ScriptedAgentFactory([Text("One"), pause], is_async=True)) as harness:
        async with harness.client.post(RESPONSES, stream(background=True)) as exchange:
            await pause.wait_reached()
            [session] = await ids(harness)
            deleted(await harness.client.get(f"{SESSIONS}/{session}", method="DELETE"))
            await exchange.end()
        await until_ended(harness)
        assert await ids(harness) == []


async def test_a_body_that_is_none() -> None:
    harness = make_harness()
    await made(harness, id="s")
    for method, path in (
        ("PATCH", f"{SESSIONS}/s"),
        ("POST", f"{SESSIONS}/s/chat"),
        ("POST", SESSIONS),
    ):
        answer = await with_body(harness, method, path, b"{")
        assert refusal(answer) == (400, "invalid_json", None)
