"""Chat turns in a named session: stored while they run, and still their client's alone."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from hermes_trio.core.events import Text, ToolStarted
from hermes_trio.core.records import EndedRun, LiveRun, NoRun, RunQuery
from hermes_trio.runs.log import load_changes
from hermes_trio.runs.persistence import RETRY_SECONDS
from tests.support.chat_api import said
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
from tests.support.responses_api import idle_harness
from tests.support.runs_api import RUNS, shown

SESSION = {"X-Hermes-Session-Id": "s"}
BODIES = [ask, ask_stream]
GONE = ("incomplete", "client_disconnected")


def only_run(harness: AppHarness) -> str:
    [run] = harness.state.services.registry.list_for("ann")
    return run.header.run_id


@pytest.mark.parametrize("body", BODIES)
async def test_what_was_said_so_far_is_in_the_store(body: Any) -> None:
    pause = Pause()
    script: list[Step] = [Text("One "), ToolStarted("c", "terminal"), pause]
    async with (
        idle_harness(ScriptedAgentFactory(script, is_async=True)) as harness,
        harness.client.post(CHAT, body("Go"), SESSION) as exchange,
    ):
        await pause.wait_reached()
        await wait_all_tasks_blocked()
        run_id = only_run(harness)
        assert isinstance(await harness.store.find_run("ann", run_id), LiveRun)
        assert len(await load_changes(harness.store, "ann", run_id, 0)) == 2
        pause.go()
        await exchange.end()
        assert isinstance(await harness.store.find_run("ann", run_id), EndedRun)
        assert len(await load_changes(harness.store, "ann", run_id, 0)) == 4


@pytest.mark.parametrize("body", BODIES)
async def test_a_turn_that_no_session_remembers_is_stored_at_its_end(body: Any) -> None:
    pause = Pause()
    async with (
        idle_harness(ScriptedAgentFactory([Text("One "), pause], is_async=True)) as harness,
        harness.client.post(CHAT, body("Go")) as exchange,
    ):
        await pause.wait_reached()
        await wait_all_tasks_blocked()
        run_id = only_run(harness)
        assert isinstance(await harness.store.find_run("ann", run_id), NoRun)
        pause.go()
        await exchange.end()
        assert isinstance(await harness.store.find_run("ann", run_id), EndedRun)


@pytest.mark.parametrize("body", BODIES)
async def test_a_store_that_refuses_the_turn_is_told_with_a_status(body: Any) -> None:
    async with idle_harness(store=BrokenStore("begin")) as harness:
        answer = await harness.client.send(CHAT, body("Go"), SESSION)
        assert (answer.status, answer.error["code"]) == (503, "session_db_unavailable")
        assert harness.agents.turns == []
        assert harness.is_idle


@pytest.mark.parametrize("body", BODIES)
async def test_a_client_that_only_watches_does_not_keep_it_running(body: Any) -> None:
    pause = Pause()
    async with idle_harness(ScriptedAgentFactory([Text("One "), pause], is_async=True)) as harness:
        async with harness.client.post(CHAT, body("Go"), SESSION) as exchange:
            await pause.wait_reached()
            run_id = only_run(harness)
            async with harness.client.open("GET", f"{RUNS}/{run_id}/events") as watching:
                exchange.disconnect()
                await exchange.end()
                seen = await watching.end()
        assert harness.ends == [GONE]
        assert harness.is_idle
        assert b'"event": "run.cancelled"' in seen.body
        assert await harness.transcript("s") == [("user", "Go"), ("assistant", "One ")]


@pytest.mark.parametrize("session", [{}, SESSION], ids=["unnamed", "named"])
async def test_a_turn_whose_client_left_is_cancelled_in_the_list(session: dict[str, str]) -> None:
    pause = Pause()
    async with idle_harness(ScriptedAgentFactory([Text("One "), pause], is_async=True)) as harness:
        async with harness.client.post(CHAT, ask_stream("Go"), session) as exchange:
            await pause.wait_reached()
            exchange.disconnect()
            await exchange.end()
        for status, count in (("cancelled", 1), ("failed", 0), ("completed", 0)):
            listed = (await harness.client.get(f"{RUNS}?status={status}")).json["data"]
            assert len(listed) == count
        [listed] = (await harness.client.get(RUNS)).json["data"]
        told = await shown(harness, listed["run_id"])
        assert (told["status"], told["reason"]) == ("cancelled", "client_disconnected")
        assert "error" not in told


@pytest.mark.parametrize("body", BODIES)
async def test_nothing_stays_in_progress_wherever_the_client_leaves(
    body: Any, autojump_clock: MockClock
) -> None:
    ends = set()
    for steps in range(40):
        script = ScriptedAgentFactory([Text("One "), Text("two")], is_async=True)
        async with idle_harness(script) as harness:
            async with harness.client.post(CHAT, body("Go"), SESSION) as exchange:
                for _ in range(steps):
                    await trio.lowlevel.checkpoint()
                exchange.disconnect()
                await exchange.end()
            await harness.until_idle()
            await trio.sleep(RETRY_SECONDS * 2)
            page = await harness.store.list_runs("ann", RunQuery())
            assert not any(isinstance(run, LiveRun) for run in page.runs)
            ends |= {(bool(harness.ends), bool(page.runs))}
    # Before the store knew of it, in the midst of it, and, as only the body of a stream starts
    # it later, in between.
    unstarted = {(False, True)} if body is ask_stream else set()
    assert ends == {(False, False), (True, True)} | unstarted


async def test_a_watcher_sees_what_the_client_sees() -> None:
    pause = Pause()
    async with (
        idle_harness(
            ScriptedAgentFactory([Text("One "), pause, Text("two")], is_async=True)
        ) as harness,
        harness.client.post(CHAT, ask_stream("Go"), SESSION) as exchange,
    ):
        await pause.wait_reached()
        await wait_all_tasks_blocked()
        async with harness.client.open("GET", f"{RUNS}/{only_run(harness)}/events") as watching:
            pause.go()
            seen = await watching.end()
        assert said(await exchange.end()) == "One two"
        assert seen.body.count(b'"event": "message.delta"') == 2
