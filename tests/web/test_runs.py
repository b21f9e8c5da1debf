"""``/v1/runs``: started, looked at, chained to."""

from __future__ import annotations

from typing import Any

import pytest
from trio.testing import wait_all_tasks_blocked

from hermes_trio.core.changes import TextAdded
from hermes_trio.core.events import Result, Text, Verdict
from hermes_trio.core.log_codec import encode_changes
from hermes_trio.core.messages import Message, Usage
from hermes_trio.core.records import LogBatch, Ownership, RunHeader, Stamp
from tests.support.fakes import EPOCH, BrokenStore, Pause, ScriptedAgentFactory
from tests.support.responses_api import BOB, RESPONSES, RICH, idle_harness, say, text_of, whole
from tests.support.runs_api import RUNS, followed, kinds, run_id_of, shown, started, stopped


async def test_a_run_from_start_to_end() -> None:
    async with idle_harness(RICH, Result("", usage=Usage(5, 7))) as harness:
        answer = await harness.client.send(
            RUNS, {"input": "Hi"}, {"X-Hermes-Session-Key": "chan:1"}
        )
        run_id = run_id_of(answer)
        assert answer.headers["x-hermes-session-key"] == "chan:1"
        assert answer.headers["x-hermes-session-id"] == run_id
        events = await followed(harness, run_id)
        assert (events[-1]["event"], events[-1]["output"]) == ("run.completed", "All done: é.")
        assert events[-1]["usage"]["total_tokens"] == 12
        assert set(kinds(events)) == {
            "run.started", "reasoning.delta", "message.delta", "tool.started", "tool.output", "tool.completed",
            "run.completed",
        }  # fmt: skip
        told = await shown(harness, run_id)
        assert told.pop("updated_at") >= EPOCH
        assert told == {
            "object": "hermes.run",
            "run_id": run_id,
            "kind": "runs",
            "status": "completed",
            "created_at": EPOCH,
            "session_id": run_id,
            "model": "hermes-agent",
            "last_event": "run.completed",
            "metadata": {},
            "client": None,
            "preview": "Hi",
            "output": "All done: é.",
            "usage": events[-1]["usage"],
        }


async def test_what_reaches_the_agent() -> None:
    async with idle_harness() as harness:
        items = [
            {"role": "user", "content": "One"},
            {"role": "assistant", "content": "Two"},
            "Three",
        ]
        more = {
            "instructions": "Be brief.",
            "model": "m",
            "session_id": "s-1",
            "metadata": {"a": "b"},
            "client": None,
            "preview": "Hi",
        }
        run_id = await started(harness, items, {"X-Hermes-Session-Key": "k"}, **more)
        await followed(harness, run_id)
        [turn] = harness.agents.turns
        assert (turn.run_id, turn.session_id, turn.session_key) == (run_id, "s-1", "k")
        assert (turn.message, turn.instructions, turn.model, turn.principal) == (
            "Three",
            "Be brief.",
            "m",
            "ann",
        )
        assert turn.history == (Message("user", "One"), Message("assistant", "Two"))
        told = await shown(harness, run_id)
        assert (told["session_id"], told["model"], told["metadata"]) == ("s-1", "m", {"a": "b"})


@pytest.mark.parametrize("is_async", [True, False], ids=["task", "thread"])
async def test_a_run_while_it_runs(is_async: bool) -> None:
    pause = Pause()
    async with idle_harness(
        ScriptedAgentFactory([Text("So far"), pause, Text(".")], None, is_async)
    ) as harness:
        run_id = await started(harness)
        await pause.wait_reached()
        await wait_all_tasks_blocked()
        told = await shown(harness, run_id)
        assert (told["status"], told["last_event"]) == ("running", "message.delta")
        assert told.keys().isdisjoint({"output", "usage", "error", "reason"})
        pause.go()
        assert kinds(await followed(harness, run_id))[-1] == "run.completed"


async def test_a_run_before_its_agent_exists() -> None:
    factory_pause = Pause()
    async with idle_harness(
        ScriptedAgentFactory([Text("Hi")], factory_pause=factory_pause)
    ) as harness:
        run_id = await started(harness)
        await factory_pause.wait_reached()
        told = await shown(harness, run_id)
        assert (told["status"], told["last_event"]) == ("running", "run.started")
        assert told["updated_at"] == told["created_at"] == EPOCH
        factory_pause.go()


@pytest.mark.parametrize(
    ("end", "status", "reason"),
    [
        (Result("", Verdict.TRUNCATED), "completed", "max_output_tokens"),
        (Result("", Verdict.FAILED, "no luck"), "failed", "agent_error"),
        (Result("", Verdict.INTERRUPTED), "cancelled", "stop_requested"),
        (ValueError("broken"), "failed", "agent_error"),
    ],
)
async def test_the_object_ends_as_the_stream_does(end: Any, status: str, reason: str) -> None:
    async with idle_harness([Text("Hi")], end) as harness:
        run_id = await started(harness)
        last = (await followed(harness, run_id))[-1]
        told = await shown(harness, run_id)
        assert (last["event"], told["status"]) == (f"run.{status}", status)
        assert last["reason"] == told["reason"] == reason
        assert last.get("error") == told.get("error")
        assert told["output"] == "Hi"


async def test_a_run_goes_on_when_its_client_leaves() -> None:
    pause = Pause()
    async with idle_harness(ScriptedAgentFactory([pause, Text("Hi")], is_async=True)) as harness:
        run_id = await started(harness)
        async with harness.client.open("GET", f"{RUNS}/{run_id}/events") as exchange:
            await exchange.block()
        await wait_all_tasks_blocked()
        pause.go()
        assert kinds(await followed(harness, run_id))[-1] == "run.completed"


@pytest.mark.parametrize("place", ["", "/events", "/stop"])
async def test_what_is_not_there_or_not_ones_own_or_not_stored(place: str) -> None:
    method = "POST" if place == "/stop" else "GET"
    async with idle_harness() as harness:
        mine = await started(harness)
        await followed(harness, mine)
        unstored = await harness.client.send(RESPONSES, say(store=False), {"Idempotency-Key": "k"})
        other = whole(unstored)["id"]
        for run_id, who in (("run_x", {}), (mine, BOB), (other, {})):
            answer = await harness.client.get(f"{RUNS}/{run_id}{place}", who, method)
            assert (answer.status, answer.error["code"]) == (404, "run_not_found")
            assert answer.error["param"] == "run_id"


async def test_a_foreign_live_run_cannot_be_stopped() -> None:
    pause = Pause()
    async with idle_harness(ScriptedAgentFactory([pause, Text("Hi")], is_async=True)) as harness:
        run_id = await started(harness)
        await pause.wait_reached()
        answer = await harness.client.get(f"{RUNS}/{run_id}/stop", BOB, "POST")
        assert answer.status == 404
        pause.go()
        assert kinds(await followed(harness, run_id))[-1] == "run.completed"


async def test_a_run_is_no_response() -> None:
    async with idle_harness() as harness:
        run_id = await started(harness)
        await followed(harness, run_id)
        for method, path in (
            ("GET", ""),
            ("GET", "?stream=true"),
            ("DELETE", ""),
            ("POST", "/cancel"),
        ):
            answer = await harness.client.get(f"{RESPONSES}/{run_id}{path}", method=method)
            assert (answer.status, answer.error["code"]) == (404, "response_not_found")
        assert (await shown(harness, run_id))["status"] == "completed"


# -- chaining --


async def test_runs_and_responses_continue_each_other() -> None:
    async with idle_harness() as harness:
        first = await started(harness, "One", session_id="s-1", instructions="Be brief.")
        await followed(harness, first)
        second = whole(await harness.client.send(RESPONSES, say("Two", previous_response_id=first)))
        third = await started(harness, "Three", previous_response_id=second["id"])
        await followed(harness, third)
        assert text_of(second) == "Hello world"
        last = harness.agents.turns[-1]
        assert [message.content for message in last.history] == [
            "One",
            "Hello world",
            "Two",
            "Hello world",
        ]
        assert (last.session_id, last.instructions) == ("s-1", "Be brief.")
        assert len(await harness.transcript("s-1")) == 6


async def test_a_named_session_wins_over_the_chained_one() -> None:
    async with idle_harness() as harness:
        first = await started(harness, "One")
        await followed(harness, first)
        await followed(
            harness, await started(harness, "Two", previous_response_id=first, session_id="s-2")
        )
        last = harness.agents.turns[-1]
        assert (last.session_id, len(last.history)) == ("s-2", 2)


async def test_an_explicit_history_wins_over_the_chained_one() -> None:
    async with idle_harness() as harness:
        history = [{"role": "user", "content": "Before"}]
        run_id = await started(
            harness, "Now", previous_response_id="run_x", conversation_history=history
        )
        await followed(harness, run_id)
        [turn] = harness.agents.turns
        assert (turn.history, turn.session_id) == ((Message("user", "Before"),), run_id)


async def test_nothing_to_continue() -> None:
    pause = Pause()
    async with idle_harness(ScriptedAgentFactory([pause], is_async=True)) as harness:
        answer = await harness.client.send(RUNS, {"input": "Hi", "previous_response_id": "run_x"})
        assert (answer.status, answer.error["code"]) == (404, "previous_response_not_found")
        run_id = await started(harness)
        answer = await harness.client.send(RUNS, {"input": "Hi", "previous_response_id": run_id})
        assert (answer.status, answer.error["code"]) == (409, "previous_response_in_progress")
        assert await stopped(harness, run_id) == "stopping"


# -- asked twice, refused, out of reach --


async def test_the_same_key_is_the_same_run() -> None:
    pause = Pause()
    key = {"Idempotency-Key": "k"}
    async with idle_harness(ScriptedAgentFactory([pause, Text("Hi")], is_async=True)) as harness:
        first = await harness.client.send(RUNS, {"input": "Hi"}, key)
        again = await harness.client.send(RUNS, {"input": "Hi"}, key)
        other = await harness.client.send(RUNS, {"input": "Ho"}, key)
        pause.go()
        await followed(harness, run_id_of(first))
        later = await harness.client.send(RUNS, {"input": "Hi"}, key)
        assert run_id_of(first) == run_id_of(again) == run_id_of(later)
        replayed = [answer.headers.get("idempotency-replayed") for answer in (first, again, later)]
        assert replayed == [None, "true", "true"]
        assert (other.status, other.error["code"]) == (409, "idempotency_key_conflict")
        assert len(harness.agents.turns) == 1


async def test_too_many_runs() -> None:
    pause = Pause()
    async with idle_harness(
        ScriptedAgentFactory([pause], "Hi", is_async=True), max_runs=1
    ) as harness:
        run_id = await started(harness)
        answer = await harness.client.send(RUNS, {"input": "Hi"})
        assert answer.status == 429
        pause.go()
        await followed(harness, run_id)


@pytest.mark.parametrize(
    ("body", "param"), [({}, "input"), ({"input": "a", "session_id": "../b"}, "session_id")]
)
async def test_a_wrong_body(body: Any, param: str) -> None:
    async with idle_harness() as harness:
        answer = await harness.client.send(RUNS, body)
        assert (answer.status, answer.error["param"]) == (400, param)
        assert harness.is_idle


async def test_a_store_that_does_not_take_the_run() -> None:
    async with idle_harness(store=BrokenStore("begin")) as harness:
        answer = await harness.client.send(RUNS, {"input": "Hi"})
        assert (answer.status, answer.error["code"]) == (503, "session_db_unavailable")
        assert (harness.agents.turns, harness.ends) == ([], [])


async def test_a_run_of_another_process() -> None:
    """It can be looked at, from what the store has; it is out of reach for the rest."""
    async with idle_harness() as harness:
        header = RunHeader("ann", Stamp("run_far", EPOCH, "m"), "runs", "s", ())
        await harness.store.begin_run(header, Ownership("another"))
        body = encode_changes((TextAdded(0, "Hi"),))
        await harness.store.append_log([LogBatch("ann", "run_far", 0, body, 1)])
        told = await shown(harness, "run_far")
        assert (told["status"], told["last_event"]) == ("running", "message.delta")
        for method, place in (("POST", "stop"), ("GET", "events")):
            answer = await harness.client.get(f"{RUNS}/run_far/{place}", method=method)
            assert (answer.status, answer.error["code"]) == (409, "run_not_here")
