"""Turns in a session, in one piece and streamed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from trio.testing import wait_all_tasks_blocked

from hermes_trio.core.changes import TextAdded
from hermes_trio.core.events import Result, Text, Verdict
from hermes_trio.core.log_codec import encode_changes
from hermes_trio.core.messages import Message, Usage
from hermes_trio.core.records import LogBatch, Ownership, RunHeader, Stamp
from hermes_trio.runs.recovery import recover
from hermes_trio.web.state import WebOptions
from tests.support.fakes import (
    CHAT,
    EPOCH,
    AppHarness,
    Pause,
    ScriptedAgentFactory,
    ask,
    make_harness,
)
from tests.support.responses_api import BOB, RESPONSES, RICH, idle_harness, say, until_ended, whole
from tests.support.runs_api import RUNS
from tests.support.sessions_api import (
    SESSIONS,
    Json,
    events,
    ids,
    made,
    refusal,
    reply_of,
    run_id_of,
    shown,
    transcript,
)

ID, KEY = "X-Hermes-Session-Id", "X-Hermes-Session-Key"
POLICY = "X-Hermes-On-Disconnect"
CHAT_PATH = f"{SESSIONS}/s/chat"
STREAM = f"{SESSIONS}/s/chat/stream"
BOTH = [CHAT_PATH, STREAM]
HI = {"message": "Hi"}


async def test_a_turn_in_one_piece() -> None:
    async with idle_harness(RICH, Result("", usage=Usage(5, 7))) as harness:
        await made(harness, id="s")
        answer = await harness.client.send(CHAT_PATH, HI, {KEY: "scope"})
        reply = reply_of(answer)
        usage, run_id = reply.pop("usage"), reply.pop("run_id")
        assert (usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]) == (5, 7, 12)
        assert reply == {
            "object": "hermes.session.chat.completion",
            "session_id": "s",
            "message": {"id": f"msg_{run_id[4:]}", "role": "assistant", "content": "All done: é."},
            "completed": True,
            "partial": False,
            "interrupted": False,
        }
        assert (answer.headers[ID.lower()], answer.headers[KEY.lower()]) == ("s", "scope")
        session = await shown(harness, "s")
        assert (session["tool_call_count"], session["api_call_count"]) == (2, 1)
        assert (session["input_tokens"], session["model"]) == (5, "hermes-agent")


async def test_a_turn_as_a_stream() -> None:
    async with idle_harness(RICH, Result("", usage=Usage(5, 7))) as harness:
        await made(harness, id="s")
        answer = await harness.client.send(STREAM, {"message": "Ahoj, kůň"}, {KEY: "scope"})
        assert (answer.headers[ID.lower()], answer.headers[KEY.lower()]) == ("s", "scope")
        told = events(answer)
        assert "kůň".encode() in answer.body
        assert told[0]["user_message"] == {"role": "user", "content": "Ahoj, kůň"}
        assert {event["event"] for event in told} == {
            "run.started", "message.started", "tool.progress", "assistant.delta", "tool.started", "tool.output",
            "tool.completed", "assistant.completed", "run.completed", "done",
        }  # fmt: skip
        assert told[-3]["content"] == "All done: é."
        assert [each["role"] for each in told[-2]["messages"]] == [
            "assistant",
            "tool",
            "tool",
            "assistant",
        ]
        assert told[-2]["usage"]["total_tokens"] == 12
        spoken = [(each["role"], each["content"]) for each in told[-2]["messages"]]
        assert await transcript(harness, "s") == [("user", "Ahoj, kůň"), *spoken]


@pytest.mark.parametrize("path", BOTH)
async def test_what_reaches_the_agent(path: str) -> None:
    async with idle_harness([Text("Answer")]) as harness:
        await made(harness, id="s", model="m", system_prompt="Be brief.")
        await harness.client.send(
            path, {"input": "One", "instructions": "Be kind.", "model": "ignored"}
        )
        await harness.client.send(
            path, {"message": "Two", "input": "not this"}, {KEY: "k", ID: "ignored"}
        )
        await harness.client.send(path, {"message": "Three", "system_message": "Be quick."})
        first, second, third = harness.agents.turns
        assert (first.message, first.instructions, first.model) == (
            "One",
            "Be brief.\n\nBe kind.",
            "m",
        )
        assert (second.message, second.instructions) == ("Two", "Be brief.")
        assert (second.session_id, second.session_key, second.principal) == ("s", "k", "ann")
        assert second.history == (Message("user", "One"), Message("assistant", "Answer"))
        assert third.instructions == "Be brief.\n\nBe quick."
        assert [message.content for message in third.history] == ["One", "Answer", "Two", "Answer"]


@pytest.mark.parametrize("path", BOTH)
async def test_parts_reach_the_agent(path: str) -> None:
    async with idle_harness() as harness:
        await made(harness, id="s")
        image = {"type": "input_image", "image_url": "https://x.test/a.png"}
        await harness.client.send(
            path, {"message": [{"type": "input_text", "text": "Look"}, image]}
        )
        assert harness.agents.turns[0].message == (
            {"type": "text", "text": "Look"},
            {"type": "image_url", "image_url": {"url": "https://x.test/a.png"}},
        )


@pytest.mark.parametrize("path", BOTH)
@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ({}, "missing_message", "message"),
        ({"message": None}, "missing_message", "message"),
        ({"message": "  "}, "missing_message", "message"),
        ({"message": []}, "missing_message", "message"),
        ({"input": ""}, "missing_message", "input"),
        ({"message": [{"type": "audio"}]}, "unsupported_content_type", "message"),
        ({"message": {"a": 1}}, "invalid_content_part", "message"),
        ({**HI, "system_message": 7}, "invalid_system_message", "system_message"),
        ({**HI, "instructions": ["a"]}, "invalid_system_message", "instructions"),
        ([], "invalid_json", None),
    ],
)
async def test_a_bad_body(path: str, body: Any, code: str, param: str) -> None:
    async with idle_harness() as harness:
        await made(harness, id="s")
        assert refusal(await harness.client.send(path, body)) == (400, code, param)
        assert harness.agents.turns == []


@pytest.mark.parametrize("path", BOTH)
async def test_a_bad_policy(path: str) -> None:
    async with idle_harness() as harness:
        await made(harness, id="s")
        answer = await harness.client.send(path, HI, {POLICY: "sometimes"})
        assert refusal(answer) == (400, "invalid_on_disconnect", POLICY)


@pytest.mark.parametrize("path", BOTH)
async def test_sessions_of_other_apis_go_on_here(path: str) -> None:
    async with idle_harness([Text("Answer")]) as harness:
        await harness.client.send(CHAT, ask("One"), {ID: "s"})
        await harness.client.send(path, {"message": "Two"})
        await harness.client.send(CHAT, ask("Three"), {ID: "s"})
        assert [message.content for message in harness.agents.turns[2].history] == [
            "One", "Answer", "Two", "Answer",
        ]  # fmt: skip
        assert (await shown(harness, "s"))["kind"] == "chat"


@pytest.mark.parametrize("path", BOTH)
async def test_a_response_may_continue_a_turn(path: str) -> None:
    async with idle_harness([Text("Answer")]) as harness:
        await made(harness, id="s", system_prompt="Be brief.")
        await harness.client.send(path, {"message": "One"})
        await harness.client.send(path, {"message": "Two"})
        run_id = harness.agents.turns[-1].run_id
        await harness.client.send(path, {"message": "Three"})
        answer = await harness.client.send(RESPONSES, say("Four", previous_response_id=run_id))
        assert answer.headers[ID.lower()] == "s"
        turn = harness.agents.turns[-1]
        assert [message.content for message in turn.history] == ["One", "Answer", "Two", "Answer"]
        assert turn.instructions == "Be brief."
        whole(answer)


async def test_turns_are_runs_and_no_responses() -> None:
    async with idle_harness() as harness:
        await made(harness, id="s")
        run_id = reply_of(await harness.client.send(CHAT_PATH, HI))["run_id"]
        shown = (await harness.client.get(f"{RUNS}/{run_id}")).json
        assert (shown["kind"], shown["status"], shown["session_id"]) == (
            "sessions",
            "completed",
            "s",
        )
        assert (await harness.client.get(f"{RESPONSES}/{run_id}")).status == 404


@pytest.mark.parametrize("path", BOTH)
async def test_one_turn_at_a_time(path: str) -> None:
    pause = Pause()
    async with idle_harness(
        ScriptedAgentFactory([pause, Text("Hi")], is_async=True), max_runs=5
    ) as harness:
        for session_id in ("s", "t"):
            await made(harness, id=session_id)
        async with harness.client.post(path, HI) as exchange:
            await pause.wait_reached()
            answer = await harness.client.send(path, HI)
            assert answer.status == 409
            async with harness.client.post(f"{SESSIONS}/t/chat", HI) as elsewhere:
                await wait_all_tasks_blocked()
                pause.go()
                assert (await elsewhere.end()).status == 200
            await exchange.end()
        assert len(await transcript(harness, "s")) == 2


@pytest.mark.parametrize("path", BOTH)
async def test_one_limit_for_all(path: str) -> None:
    harness = make_harness(max_runs=1)
    harness.state.admission.admit("ann")
    answer = await harness.client.send(path, HI)
    assert (answer.status, answer.error["code"]) == (429, "rate_limit_exceeded")
    harness.state.admission.is_draining = True
    assert (await harness.client.send(path, HI)).status == 503


# -- how turns end --


@pytest.mark.parametrize(
    ("end", "flags"),
    [
        (None, {"completed": True, "partial": False, "interrupted": False}),
        (
            Result("", Verdict.TRUNCATED),
            {
                "completed": False,
                "partial": True,
                "interrupted": False,
                "reason": "max_output_tokens",
            },
        ),
        (
            Result("", Verdict.INTERRUPTED),
            {"completed": False, "partial": True, "interrupted": True, "reason": "stop_requested"},
        ),
    ],
)
async def test_an_end_is_told_honestly(end: Any, flags: Json) -> None:
    async with idle_harness([Text("Hi")], end) as harness:
        await made(harness, id="s")
        answer = await harness.client.send(CHAT_PATH, HI)
        reply, told = reply_of(answer), events(await harness.client.send(STREAM, HI))
        assert flags.items() <= reply.items()
        assert flags.items() <= told[-3].items()
        assert flags.items() <= told[-2].items()
        assert ("reason" in reply) is ("x-hermes-completed" in answer.headers)


async def test_an_agent_that_raises() -> None:
    async with idle_harness([Text("Hi")], ValueError("token=sk-abcdefgh12345678")) as harness:
        await made(harness, id="s")
        answer = await harness.client.send(CHAT_PATH, HI)
        assert (answer.status, answer.error["code"]) == (424, "agent_error")
        assert (answer.headers["x-should-retry"], answer.headers[ID.lower()]) == ("false", "s")
        told = events(await harness.client.send(STREAM, HI))
        assert [event["event"] for event in told[-2:]] == ["error", "done"]
        assert (told[-2]["reason"], told[-1]["status"]) == ("agent_error", "failed")
        assert b"abcdefgh" not in answer.body
        assert "abcdefgh" not in str(told)


async def test_an_agent_that_says_nothing() -> None:
    async with idle_harness([], Result("", Verdict.FAILED, "no luck")) as harness:
        await made(harness, id="s")
        answer = await harness.client.send(CHAT_PATH, HI)
        assert (answer.status, answer.error["code"]) == (424, "agent_incomplete")


async def test_an_agent_that_moves_on() -> None:
    async with idle_harness([Text("Moved")], Result(session_id="s-2")) as harness:
        await made(harness, id="s")
        answer = await harness.client.send(CHAT_PATH, HI)
        assert (answer.headers[ID.lower()], reply_of(answer)["session_id"]) == ("s-2", "s-2")
        assert [
            event["session_id"] for event in events(await harness.client.send(STREAM, HI))[-3:]
        ] == ["s-2"] * 3
        assert await ids(harness) == ["s-2"]


async def test_images_are_shown_in_the_reply_alone(tmp_path: Path) -> None:
    image = tmp_path / "a.png"
    image.write_bytes(b"png")
    async with idle_harness([Text(f"See MEDIA:{image}")], workspace=tmp_path) as harness:
        await made(harness, id="s")
        reply = reply_of(await harness.client.send(CHAT_PATH, HI))
        assert reply["message"]["content"] == "See ![a.png](data:image/png;base64,cG5n)"
        told = events(await harness.client.send(STREAM, HI))
        assert told[-3]["content"] == f"See MEDIA:{image}"


# -- idempotency --


@pytest.mark.parametrize("path", BOTH)
async def test_the_same_key_is_the_same_turn(path: str) -> None:
    async with idle_harness(RICH) as harness:
        await made(harness, id="s")
        key = {"Idempotency-Key": "k"}
        first, again = (
            await harness.client.send(path, HI, key),
            await harness.client.send(path, HI, key),
        )
        assert first.body == again.body
        assert again.headers["idempotency-replayed"] == "true"
        assert len(harness.agents.turns) == 1
        answer = await harness.client.send(path, {"message": "Other"}, key)
        assert answer.error["code"] == "idempotency_key_conflict"


# -- leaving --


@pytest.mark.parametrize("is_async", [True, False], ids=["task", "thread"])
@pytest.mark.parametrize("path", BOTH)
async def test_leaving_interrupts_and_keeps_what_was_said(path: str, is_async: bool) -> None:
    pause = Pause()
    async with idle_harness(
        ScriptedAgentFactory([Text("So far"), pause, Text("never")], None, is_async)
    ) as harness:
        await made(harness, id="s")
        async with harness.client.post(path, HI):
            await pause.wait_reached()
        await until_ended(harness)
        assert harness.ends == [("incomplete", "client_disconnected")]
        assert await transcript(harness, "s") == [("user", "Hi"), ("assistant", "So far")]


@pytest.mark.parametrize("path", BOTH)
async def test_a_turn_that_goes_on_alone(path: str) -> None:
    pause = Pause()
    async with idle_harness(
        ScriptedAgentFactory([Text("One "), pause, Text("two")], is_async=True)
    ) as harness:
        await made(harness, id="s")
        async with harness.client.post(path, HI, {POLICY: "detach"}):
            await pause.wait_reached()
        await wait_all_tasks_blocked()
        pause.go()
        await until_ended(harness)
        assert harness.ends == [("completed", "")]
        assert await transcript(harness, "s") == [("user", "Hi"), ("assistant", "One two")]


# -- picking up a stream --


async def resumed(
    harness: AppHarness, run_id: str, query: str = "", headers: dict[str, str] | None = None
) -> Any:
    return await harness.client.get(f"{STREAM}?run_id={run_id}{query}", headers or {})


async def test_a_stream_is_picked_up_after_every_event() -> None:
    async with idle_harness(RICH) as harness:
        await made(harness, id="s")
        unbroken = await harness.client.send(STREAM, HI)
        frames = unbroken.body.split(b"\n\n")[:-1]
        run_id = events(unbroken)[0]["run_id"]
        for number in range(len(frames)):
            rest = b"".join(frame + b"\n\n" for frame in frames[number:])
            assert (await resumed(harness, run_id, f"&last_seq={number}")).body == rest
            header = {"Last-Event-ID": str(number)}
            assert (await resumed(harness, run_id, "&last_seq=1", header)).body == rest
        last = len(frames)
        assert (await resumed(harness, run_id, "", {"Last-Event-ID": str(last)})).status == 204
        assert (await resumed(harness, run_id, f"&last_seq={last}")).body == b""


@pytest.mark.parametrize("is_async", [True, False], ids=["task", "thread"])
async def test_a_live_stream_is_picked_up(is_async: bool) -> None:
    pause = Pause()
    agents = ScriptedAgentFactory([*RICH, pause, Text(" And é more.")], None, is_async)
    async with idle_harness(agents, options=WebOptions(keepalive_seconds=1000)) as harness:
        await made(harness, id="s")
        async with harness.client.post(STREAM, HI, {POLICY: "grace:60"}) as exchange:
            run_id = await run_id_of(exchange)
            await pause.wait_reached()
            await wait_all_tasks_blocked()
        begun = exchange.raw
        seen = begun.count(b"\n\n")
        async with harness.client.open("GET", f"{STREAM}?run_id={run_id}&last_seq={seen}") as again:
            await again.started()
            await wait_all_tasks_blocked()
            pause.go()
            rest = (await again.end()).body
        assert begun + rest == (await resumed(harness, run_id)).body
        assert harness.ends == [("completed", "")]


async def test_a_stream_that_is_not_there() -> None:
    async with idle_harness() as harness:
        for session_id in ("s", "t"):
            await made(harness, id=session_id)
        run_id = reply_of(await harness.client.send(CHAT_PATH, HI))["run_id"]
        response = whole(await harness.client.send(RESPONSES, say()))
        path = f"{SESSIONS}/t/chat/stream?run_id={run_id}"
        for answer in (
            await harness.client.get(path),
            await resumed(harness, "run_unknown"),
            await resumed(harness, response["id"]),
        ):
            assert refusal(answer) == (404, "run_not_found", "run_id")
        assert refusal(await harness.client.get(STREAM)) == (400, None, "run_id")
        assert (await resumed(harness, run_id, "", BOB)).status == 404
        for query, headers, param in (
            ("&last_seq=x", {}, "last_seq"),
            ("", {"Last-Event-ID": "-1"}, "Last-Event-ID"),
        ):
            assert refusal(await resumed(harness, run_id, query, headers)) == (400, None, param)


async def test_a_turn_whose_process_died_is_told_to_its_end() -> None:
    async with idle_harness() as harness:
        await made(harness, id="s")
        header = RunHeader(
            "ann", Stamp("run_x", EPOCH, "m"), "sessions", "s", (Message("user", "Hi"),)
        )
        await harness.store.begin_run(header, Ownership("dead"))
        await harness.store.append_log(
            [LogBatch("ann", "run_x", 0, encode_changes([TextAdded(0, "So far")]), 1)]
        )
        await recover(harness.store, "alive", lambda _: (), lambda: EPOCH + 5)
        told = events(await resumed(harness, "run_x"))
        assert [event["event"] for event in told[2:]] == ["assistant.delta", "error", "done"]
        assert told[-2]["reason"] == "process_died"
        assert await transcript(harness, "s") == [("user", "Hi"), ("assistant", "So far")]
