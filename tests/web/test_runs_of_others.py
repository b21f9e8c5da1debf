"""The routes of a run for what another API started: look at it, follow its events, stop it."""

from __future__ import annotations

from typing import Any

import pytest
from trio.testing import wait_all_tasks_blocked

from hermes_trio.core.events import Text
from tests.support.asgi import Exchange
from tests.support.fakes import (
    CHAT,
    AppHarness,
    BrokenStore,
    Pause,
    ScriptedAgentFactory,
    Step,
    ask,
    ask_stream,
)
from tests.support.responses_api import (
    BOB,
    RESPONSES,
    RICH,
    created,
    final,
    idle_harness,
    say,
    stream,
)
from tests.support.run_stream_rules import check_whole
from tests.support.runs_api import RUNS, followed, kinds, shown, stopped


async def chat_id(exchange: Exchange) -> str:
    """The id that the first chunk tells."""
    return str((await exchange.frame()).json["id"])


async def live_id(harness: AppHarness) -> str:
    """Of the one run that is live."""
    await wait_all_tasks_blocked()
    [run] = harness.state.services.registry.list_for("ann")
    return run.header.run_id


async def test_a_response_that_has_ended() -> None:
    async with idle_harness(RICH) as harness:
        response = (await harness.client.send(RESPONSES, say(metadata={"a": "b"}))).json
        run_id = response["id"]
        told = await shown(harness, run_id)
        assert (told["kind"], told["status"], told["metadata"]) == (
            "responses",
            "completed",
            {"a": "b"},
        )
        assert told["output"] == "All done: é."
        events = await followed(harness, run_id)
        assert (events[-1]["event"], events[-1]["output"]) == ("run.completed", told["output"])
        assert await stopped(harness, run_id) == "completed"
        assert (await harness.client.get(f"{RESPONSES}/{run_id}")).json == response


async def test_a_response_while_it_runs() -> None:
    pause = Pause()
    async with idle_harness(ScriptedAgentFactory([Text("Hi"), pause], is_async=True)) as harness:
        async with harness.client.post(RESPONSES, stream()) as exchange:
            run_id = await created(exchange)
            await pause.wait_reached()
            await wait_all_tasks_blocked()
            assert (await shown(harness, run_id))["status"] == "running"
            async with harness.client.open("GET", f"{RUNS}/{run_id}/events") as follower:
                await follower.block()
                assert await stopped(harness, run_id) == "stopping"
                assert final(await exchange.end())["status"] == "cancelled"
                assert kinds(check_whole((await follower.end()).body))[-1] == "run.cancelled"
        assert (await shown(harness, run_id))["status"] == "cancelled"


async def test_a_chat_turn_that_has_ended() -> None:
    async with idle_harness(RICH) as harness:
        run_id = (await harness.client.send(CHAT, ask())).json["id"]
        told = await shown(harness, run_id)
        assert (told["kind"], told["status"], told["output"]) == (
            "chat",
            "completed",
            "All done: é.",
        )
        answer = await harness.client.get(f"{RUNS}/{run_id}/events")
        assert (answer.status, answer.error["code"]) == (404, "events_expired")
        assert await stopped(harness, run_id) == "completed"


async def test_a_chat_turn_that_is_kept_has_events() -> None:
    async with idle_harness(RICH) as harness:
        run_id = (await harness.client.send(CHAT, ask(), {"Idempotency-Key": "k"})).json["id"]
        assert kinds(await followed(harness, run_id))[-1] == "run.completed"


@pytest.mark.parametrize("body", [ask(), ask_stream()])
async def test_a_chat_turn_while_it_runs(body: Any) -> None:
    """The store is to know of it only at its end."""
    pause = Pause()
    async with idle_harness(ScriptedAgentFactory([Text("Hi"), pause], is_async=True)) as harness:
        async with harness.client.post(CHAT, body) as exchange:
            await pause.wait_reached()
            run_id = await live_id(harness)
            told = await shown(harness, run_id)
            assert (told["kind"], told["status"], told["last_event"]) == (
                "chat",
                "running",
                "message.delta",
            )
            answer = await harness.client.get(f"{RUNS}/{run_id}/events")
            assert (answer.status, answer.error["code"]) == (
                404,
                "events_expired",
            )  # its client has taken some
            for place, method in (("", "GET"), ("/events", "GET"), ("/stop", "POST")):
                answer = await harness.client.get(f"{RUNS}/{run_id}{place}", BOB, method)
                assert (answer.status, answer.error["code"]) == (404, "run_not_found")
            assert await stopped(harness, run_id) == "stopping"
            await exchange.end()
        assert (await shown(harness, run_id))["status"] == "cancelled"
        assert harness.ends == [("cancelled", "stop_requested")]


async def test_events_of_a_chat_turn_from_its_beginning() -> None:
    pause = Pause()
    async with idle_harness(ScriptedAgentFactory([pause, *RICH], is_async=True)) as harness:
        async with harness.client.post(CHAT, ask_stream()) as exchange:
            run_id = await chat_id(exchange)
            await pause.wait_reached()
            async with harness.client.open("GET", f"{RUNS}/{run_id}/events") as follower:
                await follower.block()
                pause.go()
                events = check_whole((await follower.end()).body)
                await exchange.end()
        assert events[-1]["output"] == (await shown(harness, run_id))["output"] == "All done: é."


async def test_a_follower_that_leaves_or_does_not_read_disturbs_no_chat_turn() -> None:
    pause = Pause()
    script: list[Step] = [pause, *(Text(f"{n} ") for n in range(300))]
    async with (
        idle_harness(ScriptedAgentFactory(script, is_async=True)) as harness,
        harness.client.post(CHAT, ask_stream()) as exchange,
    ):
        run_id = await chat_id(exchange)
        await pause.wait_reached()
        async with (
            harness.client.open("GET", f"{RUNS}/{run_id}/events") as slow,
            harness.client.open("GET", f"{RUNS}/{run_id}/events") as leaving,
        ):
            await slow.block()
            await leaving.block()
            slow.stall()
            leaving.disconnect()
            pause.go()
            assert (await exchange.end()).frames[-1].is_done
            slow.read_on()
            assert check_whole((await slow.end()).body)[-1]["event"] == "run.completed"


async def test_a_chat_turn_that_is_not_saved_leaves_no_trace() -> None:
    async with idle_harness(store=BrokenStore("write")) as harness:
        run_id = (await harness.client.send(CHAT, ask_stream())).frames[0].json["id"]
        assert (await harness.client.get(f"{RUNS}/{run_id}")).status == 404


async def test_what_is_not_stored_is_hidden_while_it_runs() -> None:
    pause = Pause()
    async with idle_harness(ScriptedAgentFactory([Text("Hi"), pause], is_async=True)) as harness:
        for headers in ({}, {"Idempotency-Key": "k"}):
            async with harness.client.post(RESPONSES, stream(store=False), headers) as exchange:
                run_id = await created(exchange)
                await wait_all_tasks_blocked()
                for place, method in (("", "GET"), ("/events", "GET"), ("/stop", "POST")):
                    answer = await harness.client.get(f"{RUNS}/{run_id}{place}", method=method)
                    assert (answer.status, answer.error["code"]) == (404, "run_not_found")
                assert (await harness.client.get(RUNS)).json["data"] == []
            await harness.until_idle()
