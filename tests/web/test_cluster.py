"""Two nodes of one store: whatever a client can do on the node of a run, it can do on the other."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from attrs import frozen
from trio.testing import wait_all_tasks_blocked

from hermes_trio.core.events import Choice, Text
from hermes_trio.runs import cluster
from tests.support.asgi import HttpResponse, real_timeout
from tests.support.fakes import AppHarness, Pause, ScriptedAgentFactory, Step, ask, open_harness
from tests.support.responses_api import RESPONSES, created, say, stream, text_of, whole
from tests.support.runs_api import RUNS, followed, kinds, shown, started, stopped
from tests.support.shared_store import SharedMemoryStore
from tests.web.test_approvals import LIMITS, SCRIPT, answer, approved, until_open

KEY = {"Idempotency-Key": "k"}


@frozen
class Nodes:
    """The node that executes a run, and the other."""

    own: AppHarness
    other: AppHarness
    store: SharedMemoryStore


@pytest.fixture(params=[True, False], ids=["notices", "blind"])
def store(request: pytest.FixtureRequest) -> SharedMemoryStore:
    return SharedMemoryStore(can_listen=request.param)


@asynccontextmanager
async def open_nodes(
    store: SharedMemoryStore, script: Iterable[Step] | ScriptedAgentFactory, **more: Any
) -> AsyncIterator[Nodes]:
    async with (
        open_harness(script, store=store, node="a", **more) as own,
        open_harness([Text("another agent")], store=store, node="b", **more) as other,
    ):
        yield Nodes(own, other, store)
        for harness in (own, other):
            await harness.until_idle()


def paused(pause: Pause) -> ScriptedAgentFactory:
    return ScriptedAgentFactory([Text("So "), pause, Text("far.")], None, is_async=True)


async def test_a_stream_is_the_same_on_both_nodes(store: SharedMemoryStore) -> None:
    pause = Pause()
    async with open_nodes(store, paused(pause)) as nodes:
        async with nodes.own.client.post(RESPONSES, stream()) as exchange:
            response_id = await created(exchange)
            await pause.wait_reached()
            path = f"{RESPONSES}/{response_id}?stream=true"
            async with (
                nodes.other.client.open("GET", path) as joined,
                nodes.other.client.open("GET", f"{path}&starting_after=3") as resumed,
            ):
                assert await created(joined) == response_id
                pause.go()
                answers = [await each.end() for each in (exchange, joined, resumed)]
        original, copy, rest = (each.body for each in answers)
        assert copy == original
        assert original.endswith(rest)
        assert b'"sequence_number": 4' in rest
        assert b'"sequence_number": 3' not in rest


async def test_events_of_a_run_on_another_node(store: SharedMemoryStore) -> None:
    pause = Pause()
    async with open_nodes(store, paused(pause)) as nodes:
        run_id = await started(nodes.own)
        await pause.wait_reached()
        await wait_all_tasks_blocked()
        assert (await shown(nodes.other, run_id))["status"] == "running"
        listed = await nodes.other.client.get(RUNS)
        assert [(run["run_id"], run["status"]) for run in listed.json["data"]] == [
            (run_id, "running")
        ]
        async with trio.open_nursery() as nursery:

            async def check() -> None:
                assert kinds(await followed(nodes.other, run_id))[-1] == "run.completed"

            nursery.start_soon(check)
            await wait_all_tasks_blocked()
            pause.go()
        assert (await shown(nodes.other, run_id))["output"] == "So far."


async def test_a_run_is_stopped_from_the_other_node(store: SharedMemoryStore) -> None:
    async with open_nodes(store, paused(Pause())) as nodes:
        run_id = await started(nodes.own)
        assert await stopped(nodes.other, run_id) == "stopping"
        assert kinds(await followed(nodes.other, run_id))[-1] == "run.cancelled"
        assert await stopped(nodes.other, run_id) == "cancelled"


async def test_a_response_is_cancelled_and_deleted_from_the_other_node(
    store: SharedMemoryStore,
) -> None:
    async with open_nodes(store, paused(Pause())) as nodes:
        ids = [
            (await nodes.own.client.send(RESPONSES, say(background=True))).json["id"]
            for _ in range(2)
        ]
        with real_timeout():
            cancelled = whole(
                await nodes.other.client.get(f"{RESPONSES}/{ids[0]}/cancel", method="POST")
            )
            deleted = await nodes.other.client.get(f"{RESPONSES}/{ids[1]}", method="DELETE")
        assert (cancelled["status"], text_of(cancelled)) == ("cancelled", "So ")
        assert deleted.json["deleted"] is True
        assert (await nodes.own.client.get(f"{RESPONSES}/{ids[1]}")).status == 404


async def test_a_session_with_a_run_is_deleted_from_the_other_node(
    store: SharedMemoryStore,
) -> None:
    async with open_nodes(store, paused(Pause())) as nodes:
        run_id = await started(nodes.own, session_id="s-1")
        with real_timeout():
            deleted = await nodes.other.client.get("/api/sessions/s-1", method="DELETE")
        assert deleted.json["deleted"] is True
        assert (await nodes.own.client.get(f"{RUNS}/{run_id}")).status == 404


async def test_an_approval_is_given_on_the_other_node(store: SharedMemoryStore) -> None:
    agents = ScriptedAgentFactory(SCRIPT, None, is_async=True)
    async with open_nodes(store, agents, limits=LIMITS) as nodes:
        run_id = await started(nodes.own)
        await until_open(nodes.own, run_id)
        await wait_all_tasks_blocked()
        assert (await shown(nodes.other, run_id))["status"] == "waiting_for_approval"
        for query, count in (("", 1), ("?status=waiting_for_approval", 1), ("?status=running", 0)):
            own, other = [
                (await node.client.get(RUNS + query)).json["data"]
                for node in (nodes.own, nodes.other)
            ]
            assert (len(own), other) == (count, own)
        wrong = await answer(nodes.other, run_id, approval_id="another")
        assert (wrong.status, wrong.error["code"]) == (409, "approval_not_pending")
        assert await approved(nodes.other, run_id) == 1
        assert kinds(await followed(nodes.other, run_id))[-1] == "run.completed"
        late = await answer(nodes.other, run_id)
        assert (late.status, late.error["code"]) == (409, "approval_not_active")
        missing = await answer(nodes.other, "run_" + 32 * "0")
        assert (missing.status, missing.error["code"]) == (404, "run_not_found")
    assert [decision.choice for decision in agents.decisions] == [Choice.ONCE]


async def test_one_idempotency_key_on_two_nodes(store: SharedMemoryStore) -> None:
    pause = Pause()
    async with open_nodes(store, paused(pause)) as nodes:
        async with nodes.own.client.post(RESPONSES, stream(), KEY) as first:
            response_id = await created(first)
            await pause.wait_reached()
            async with nodes.other.client.post(RESPONSES, stream(), KEY) as second:
                assert await created(second) == response_id
                pause.go()
                answers = [await each.end() for each in (first, second)]
        assert answers[0].body == answers[1].body
        assert answers[1].headers["idempotency-replayed"] == "true"
        assert not nodes.other.agents.turns


async def test_a_repeated_request_waits_for_a_run_that_has_not_begun(
    store: SharedMemoryStore,
) -> None:
    pause = Pause()
    async with open_nodes(store, paused(pause)) as nodes, trio.open_nursery() as nursery:
        store.begin_gate = trio.Event()
        answers: list[HttpResponse] = []

        async def post(harness: AppHarness) -> None:
            answers.append(await harness.client.send(RESPONSES, say(background=True), KEY))

        nursery.start_soon(post, nodes.own)
        await wait_all_tasks_blocked()
        nursery.start_soon(post, nodes.other)
        await wait_all_tasks_blocked(0.05)
        assert not answers
        store.begin_gate.set()
        with real_timeout():
            while len(answers) < 2:
                await trio.lowlevel.checkpoint()
        assert answers[0].json["id"] == answers[1].json["id"]
        pause.go()


async def test_one_turn_at_a_time_in_a_session(store: SharedMemoryStore) -> None:
    pause = Pause()
    async with open_nodes(store, paused(pause)) as nodes:
        run_id = await started(nodes.own, session_id="s-1")
        busy = await nodes.other.client.send(RUNS, {"input": "Hi", "session_id": "s-1"})
        assert (busy.status, busy.error["code"]) == (409, "session_busy")
        headers = {"X-Hermes-Session-Id": "s-1"}
        busy = await nodes.other.client.send("/v1/chat/completions", ask("Hi"), headers)
        assert (busy.status, busy.error["code"]) == (409, "session_busy")
        pause.go()
        await followed(nodes.own, run_id)
        # At once: whoever knows that a turn has ended can begin the next.
        later = await started(nodes.other, session_id="s-1")
        await followed(nodes.own, later)
        assert [role for role, _ in await nodes.own.transcript("s-1")] == ["user", "assistant"] * 2


async def test_a_client_that_moves_to_the_other_node_keeps_its_run(
    store: SharedMemoryStore,
) -> None:
    pause = Pause()
    async with open_nodes(store, paused(pause)) as nodes:
        headers = {"X-Hermes-On-Disconnect": "grace:0.5"}
        async with nodes.own.client.post(RESPONSES, stream(), headers) as first:
            response_id = await created(first)
            await pause.wait_reached()
            path = f"{RESPONSES}/{response_id}?stream=true"
            async with nodes.other.client.open("GET", path) as second:
                await created(second)
                run = nodes.own.state.services.registry.find("ann", response_id)
                assert run is not None
                with real_timeout():
                    while run.clients._count < 2:
                        await trio.lowlevel.checkpoint()
                first.disconnect()
                await trio.sleep(1)
                pause.go()
                assert b"response.completed" in (await second.end()).body


async def test_an_owner_that_does_not_answer(
    store: SharedMemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "COMMAND_SECONDS", 0.2)
    pause = Pause()
    async with open_nodes(store, paused(pause)) as nodes:
        run_id = await started(nodes.own)
        nodes.store.broken.add("find_commands")
        for path, body in (
            (f"{RUNS}/{run_id}/stop", {}),
            (f"{RUNS}/{run_id}/approval", {"choice": "once"}),
        ):
            answer = await nodes.other.client.send(path, body)
            assert (answer.status, answer.error["code"]) == (503, "run_unreachable")
            assert answer.headers["retry-after"] == "1"
        nodes.store.broken.clear()
        pause.go()
