"""Approvals over HTTP: asked on every streaming route and in the background, answered from anywhere."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock

from hermes_trio.core.events import AnsweredBy, Choice, Text, ToolCompleted, ToolStarted
from hermes_trio.runs.recovery import recover
from hermes_trio.runs.tracker import RunLimits
from hermes_trio.schema import replies
from hermes_trio.stores.sqlite import MemoryStore
from tests.support import run_harness
from tests.support.asgi import Exchange, HttpResponse
from tests.support.chat_api import chunks, said
from tests.support.fakes import (
    CHAT,
    AppHarness,
    Ask,
    Pause,
    ScriptedAgentFactory,
    Step,
    ask,
    ask_stream,
    make_harness,
)
from tests.support.responses_api import BOB, RESPONSES, events, idle_harness, say, stream
from tests.support.run_stream_rules import event_of
from tests.support.runs_api import RUNS, followed, kinds, shown, started, stopped

Json = dict[str, Any]
SCRIPT: tuple[Step, ...] = (
    Text("Let me. "),
    ToolStarted("c1", "terminal", {"command": "rm -r x"}),
    Ask("rm -r x", ("rm",), "c1"),
    ToolCompleted("c1", "gone"),
    Text("Done."),
)
LIMITS = RunLimits(approval=60.0)


async def answer(
    harness: AppHarness, run_id: str, choice: str = "once", route: str = RUNS, **more: Any
) -> HttpResponse:
    """Answer a run."""
    return await harness.client.send(f"{route}/{run_id}/approval", {"choice": choice, **more})


async def approved(
    harness: AppHarness, run_id: str, choice: str = "once", route: str = RUNS, **more: Any
) -> int:
    """The same, and it must work."""
    told = await answer(harness, run_id, choice, route, **more)
    assert told.status == 200, told.body
    reply = msgspec.convert(told.json, replies.ApprovalReply)
    assert reply.run_id == run_id
    return reply.resolved


async def until_asked(harness: AppHarness, run_id: str) -> Json:
    """Wait until a run waits; returns how it is shown."""
    await until_open(harness, run_id)
    told = await shown(harness, run_id)
    assert told["status"] == "waiting_for_approval"
    return told


async def until_open(harness: AppHarness, run_id: str) -> None:
    """Wait until a live run asks."""
    run = harness.state.services.registry.find("ann", run_id)
    assert run is not None
    await run_harness.until_asked(run)


@pytest.mark.parametrize("is_async", [True, False], ids=["task", "thread"])
async def test_a_run_waits_and_goes_on(is_async: bool) -> None:
    async with idle_harness(ScriptedAgentFactory(SCRIPT, None, is_async)) as harness:
        run_id = await started(harness)
        told = await until_asked(harness, run_id)
        assert told["last_event"] == "approval.request"
        assert told["approvals_pending"] == 1
        assert told["approval"]["command"] == "rm -r x"
        assert told["approval"]["choices"] == ["once", "session", "always", "deny"]
        assert await approved(harness, run_id) == 1
        events = await followed(harness, run_id)
        assert kinds(events) == [
            "run.started", "message.delta", "tool.started", "approval.request", "approval.responded",
            "tool.completed", "message.delta", "run.completed",
        ]  # fmt: skip
        assert {event["toolCallId"] for event in events[2:6]} == {"c1"}
        assert (events[4]["choice"], events[4]["by"]) == ("once", "client")
        assert "approval" not in await shown(harness, run_id)
    assert [decision.choice for decision in harness.agents.decisions] == [Choice.ONCE]


async def test_chat_shows_the_question_as_a_chunk_that_changes_nothing() -> None:
    harness = make_harness(ScriptedAgentFactory(SCRIPT, None, is_async=True))
    async with harness.client.post(CHAT, ask_stream()) as exchange:
        frame = await exchange.frame_where(object="chat.completion.chunk")
        while frame.event != "hermes.approval.request":
            frame = await exchange.frame()
        question = frame.json["approval"]
        assert question["toolCallId"] == "c1"
        assert (
            await approved(
                harness, frame.json["id"], "session", approval_id=question["approval_id"]
            )
            == 1
        )
        whole = await exchange.end()
    assert said(whole) == "Let me. Done."
    (decided,) = [chunk for chunk in chunks(whole) if "by" in chunk.get("approval", {})]
    assert (decided["approval"]["choice"], decided["approval"]["by"]) == ("session", "client")


async def test_responses_tell_on_retrieve_and_on_the_run() -> None:
    async with idle_harness(ScriptedAgentFactory(SCRIPT, None, is_async=True)) as harness:
        created = await harness.client.send(RESPONSES, say(background=True))
        run_id = created.json["id"]
        await until_open(harness, run_id)
        told = (await harness.client.get(f"{RESPONSES}/{run_id}")).json
        assert told["status"] == "in_progress"
        assert told["hermes"]["approval"]["command"] == "rm -r x"
        assert await approved(harness, run_id, "deny", RESPONSES) == 1
        await harness.until_idle()
        assert "hermes" not in (await harness.client.get(f"{RESPONSES}/{run_id}")).json
    assert [decision.approved for decision in harness.agents.decisions] == [False]


async def test_a_stream_of_responses_says_nothing_of_it() -> None:
    async with idle_harness(ScriptedAgentFactory(SCRIPT, None, is_async=True)) as harness:
        async with harness.client.post(RESPONSES, stream()) as exchange:
            run_id = (await exchange.frame()).json["response"]["id"]
            await until_open(harness, run_id)
            assert b"approval" not in exchange.raw
            assert await approved(harness, run_id, route=RESPONSES) == 1
            whole = await exchange.end()
        assert b"approval" not in whole.body


async def test_open_webui_is_shown_the_question_of_a_response() -> None:
    headers = {"X-OpenWebUI-Chat-Id": "1"}
    async with idle_harness(ScriptedAgentFactory(SCRIPT, None, is_async=True)) as harness:
        async with harness.client.post(RESPONSES, stream(), headers) as exchange:
            asked = await exchange.frame()
            while "event" not in asked.json:
                asked = await exchange.frame()
            response = asked.json["response"]
            assert response["hermes"]["approval"]["command"] == "rm -r x"
            assert [item["type"] for item in response["output"]] == ["message", "function_call"]
            assert await approved(harness, response["id"], route=RESPONSES) == 1
            whole = await exchange.end()
        shown = [event for event in events(whole) if "event" in event]
        again = await harness.client.get(f"{RESPONSES}/{response['id']}?stream=true")
        assert again.body == whole.body, "for every client that reads it later"
    assert [event["type"] for event in shown] == ["response.in_progress"] * 2, "a standard event"
    assert [event["event"] for event in shown] == [
        {"type": "status", "data": {"description": "Waiting for an approval: rm -r x", "done": False}},
        {"type": "status", "data": {"description": "Approval: once", "done": True}},
    ]  # fmt: skip
    assert "hermes" not in shown[1]["response"]


@pytest.mark.parametrize(("path", "body"), [(CHAT, ask()), (RESPONSES, say())])
async def test_where_nobody_can_see_the_question_the_answer_is_no(path: str, body: Json) -> None:
    async with idle_harness(ScriptedAgentFactory(SCRIPT, None, is_async=True)) as harness:
        assert (await harness.client.send(path, body)).status == 200
    assert [(decision.choice, decision.by) for decision in harness.agents.decisions] == [
        (Choice.DENY, AnsweredBy.NOBODY)
    ]


async def event(exchange: Exchange, kind: str) -> Json:
    """Read on to an event of a kind."""
    while (told := event_of(await exchange.block()))["event"] != kind:
        pass
    return told


async def test_a_dropped_client_comes_back_and_answers() -> None:
    async with idle_harness(ScriptedAgentFactory(SCRIPT, None, is_async=True)) as harness:
        run_id = await started(harness)
        async with harness.client.open("GET", f"{RUNS}/{run_id}/events") as exchange:
            await event(exchange, "approval.request")
        async with harness.client.open("GET", f"{RUNS}/{run_id}/events?last_seq=2") as exchange:
            question = await event(exchange, "approval.request")
            assert await approved(harness, run_id, approval_id=question["approval_id"]) == 1
            await event(exchange, "run.completed")


async def test_twice_is_once_too_often() -> None:
    pause = Pause()
    async with idle_harness(ScriptedAgentFactory([*SCRIPT, pause], None, is_async=True)) as harness:
        run_id = await started(harness)
        question = (await until_asked(harness, run_id))["approval"]
        assert await approved(harness, run_id, approval_id=question["approval_id"]) == 1
        await pause.wait_reached()
        for more in ({}, {"approval_id": question["approval_id"]}, {"all": True}):
            again = await answer(harness, run_id, **more)
            assert (again.status, again.error["code"]) == (409, "approval_not_pending")
        pause.go()
        await harness.until_idle()
        over = await answer(harness, run_id)
        assert (over.status, over.error["code"]) == (409, "approval_not_active")


async def test_runs_of_one_session_never_answer_each_other() -> None:
    """Two chats that begin alike are of one session, and need not wait for each other."""
    harness = make_harness(ScriptedAgentFactory(SCRIPT, None, is_async=True))
    async with (
        harness.client.post(CHAT, ask_stream()) as first,
        harness.client.post(CHAT, ask_stream()) as second,
    ):
        runs = [(await exchange.frame()).json["id"] for exchange in (first, second)]
        assert (
            len(
                {
                    (await exchange.started()).headers["x-hermes-session-id"]
                    for exchange in (first, second)
                }
            )
            == 1
        )
        for run_id in runs:
            await until_asked(harness, run_id)
        assert await approved(harness, runs[1], all=True) == 1
        assert (await until_asked(harness, runs[0]))["approvals_pending"] == 1
        assert await approved(harness, runs[0], "deny") == 1
        ends = [await exchange.end() for exchange in (first, second)]
    choices = [
        chunk["approval"]["choice"]
        for end in ends
        for chunk in chunks(end)
        if "by" in chunk.get("approval", {})
    ]
    assert choices == ["deny", "once"]


async def test_parallel_questions_are_told_apart() -> None:
    both: list[Step] = [
        ToolStarted("a", "terminal", {}), ToolStarted("b", "terminal", {}), Ask("one", call_id="a"),
        Ask("two", call_id="b"), Text("x"),
    ]  # fmt: skip
    async with idle_harness(ScriptedAgentFactory(both, None, is_async=True)) as harness:
        run_id = await started(harness)
        assert (await until_asked(harness, run_id))["approval"]["toolCallId"] == "a"
        await approved(harness, run_id, "deny")
        assert (await until_asked(harness, run_id))["approval"]["toolCallId"] == "b"
        await approved(harness, run_id)
        requests = [
            event
            for event in await followed(harness, run_id)
            if event["event"] == "approval.request"
        ]
        assert [(event["toolCallId"], event["command"]) for event in requests] == [
            ("a", "one"),
            ("b", "two"),
        ]
        assert len({event["approval_id"] for event in requests}) == 2


async def test_time_is_up(autojump_clock: MockClock) -> None:
    async with idle_harness(
        ScriptedAgentFactory(SCRIPT, None, is_async=True), limits=LIMITS
    ) as harness:
        run_id = await started(harness)
        events = await followed(harness, run_id)
        (decided,) = [event for event in events if event["event"] == "approval.responded"]
        assert (decided["choice"], decided["by"]) == ("deny", "timeout")
        assert events[-1]["event"] == "run.completed"


@pytest.mark.parametrize("is_async", [True, False], ids=["task", "thread"])
async def test_stop_while_it_waits(is_async: bool) -> None:
    async with idle_harness(ScriptedAgentFactory(SCRIPT, None, is_async)) as harness:
        run_id = await started(harness)
        await until_open(harness, run_id)
        assert await stopped(harness, run_id) == "stopping"
        events = await followed(harness, run_id)
        assert kinds(events)[-3:] == ["approval.responded", "tool.completed", "run.cancelled"]
        assert (events[-3]["choice"], events[-3]["by"]) == ("deny", "run_ended")
        over = await answer(harness, run_id)
        assert over.status == 409
    assert harness.agents.decisions == []


async def test_denied_at_restart() -> None:
    store = MemoryStore()
    with trio.CancelScope() as crash:
        async with idle_harness(
            ScriptedAgentFactory(SCRIPT, None, is_async=True), store=store
        ) as harness:
            run_id = await started(harness)
            await until_asked(harness, run_id)
            logged = harness.state.services.registry.find("ann", run_id)
            assert logged is not None
            await logged._unsaved_log.wait_flushed()
            # The process dies: nothing of the run reaches the store any more.
            left_behind = await store.find_run("ann", run_id)
            assert type(left_behind).__name__ == "LiveRun"
            await recover(store, "the next process", lambda ended: ())
            crash.cancel()
    async with idle_harness(store=store) as harness:
        events = await followed(harness, run_id)
        assert kinds(events)[-3:] == ["approval.responded", "tool.completed", "run.failed"]
        assert (events[-3]["choice"], events[-3]["by"]) == ("deny", "run_ended")
        assert (await answer(harness, run_id)).error["code"] == "approval_not_active"


async def test_others_can_neither_see_nor_answer() -> None:
    async with idle_harness(ScriptedAgentFactory(SCRIPT, None, is_async=True)) as harness:
        run_id = await started(harness)
        await until_asked(harness, run_id)
        for route, code in ((RUNS, "run_not_found"), (RESPONSES, "response_not_found")):
            told = await harness.client.send(f"{route}/{run_id}/approval", {"choice": "once"}, BOB)
            assert (told.status, told.error["code"]) == (404, code)
        await approved(harness, run_id, "always")
        await harness.until_idle()
        assert (await harness.client.get("/v1/approvals", BOB)).json == {
            "object": "list",
            "data": [],
        }


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({}, "choice", None), ({"choice": 1}, "choice", None),
        ({"choice": "maybe"}, "choice", "invalid_approval_choice"),
        ({"choice": "once", "approval_id": 3}, "approval_id", None),
    ],
)  # fmt: skip
async def test_bad_answers(body: Json, param: str, code: str | None) -> None:
    told = await make_harness().client.send(f"{RUNS}/run_x/approval", body)
    assert (told.status, told.error["param"], told.error["code"]) == (400, param, code)


@pytest.mark.parametrize("word", ["approve", "approved", "ALLOW", " once "])
async def test_other_words_for_yes(word: str) -> None:
    async with idle_harness(ScriptedAgentFactory(SCRIPT, None, is_async=True)) as harness:
        run_id = await started(harness)
        await until_asked(harness, run_id)
        assert (await answer(harness, run_id, word)).json["choice"] == "once"


async def test_always_only_where_it_is_offered() -> None:
    script: list[Step] = [Ask("x", allow_permanent=False), Text("y")]
    async with idle_harness(ScriptedAgentFactory(script, None, is_async=True)) as harness:
        run_id = await started(harness)
        assert (await until_asked(harness, run_id))["approval"]["choices"] == [
            "once",
            "session",
            "deny",
        ]
        told = await answer(harness, run_id, "always")
        assert (told.status, told.error["code"]) == (400, "invalid_approval_choice")
        await approved(harness, run_id)


async def test_remembered_approvals_are_listed_and_revoked() -> None:
    async with idle_harness(ScriptedAgentFactory(SCRIPT, None, is_async=True)) as harness:
        run_id = await started(harness)
        await until_asked(harness, run_id)
        await approved(harness, run_id, "always")
        assert kinds(await followed(harness, await started(harness))).count("approval.request") == 0
        listed = (await harness.client.get("/v1/approvals")).json
        msgspec.convert(listed, replies.RememberedApprovals)
        assert [(each["pattern"], each["session_id"]) for each in listed["data"]] == [("rm", None)]
        gone = await harness.client.get("/v1/approvals?pattern=rm", method="DELETE")
        assert gone.status == 200
        msgspec.convert(gone.json, replies.RevokedApproval)
        again = await harness.client.get("/v1/approvals?pattern=rm", method="DELETE")
        assert (again.status, again.error["code"]) == (404, "approval_not_found")
        last = await started(harness)
        await until_asked(harness, last)
        await approved(harness, last)


async def test_revoking_names_what_is_missing() -> None:
    told = await make_harness().client.get("/v1/approvals", method="DELETE")
    assert (told.status, told.error["param"]) == (400, "pattern")
