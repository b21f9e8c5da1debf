"""``Idempotency-Key``: a request that comes again is answered again, and runs once."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from hermes_trio.core.events import Text
from hermes_trio.core.records import IdempotencyRecord, Ownership, RunHeader
from hermes_trio.stores.base import StoreError
from hermes_trio.stores.sqlite import MemoryStore
from tests.support.asgi import HttpResponse
from tests.support.fakes import CHAT, AppHarness, Pause, ScriptedAgentFactory, ask, ask_stream
from tests.support.responses_api import (
    BOB,
    RESPONSES,
    RICH,
    final,
    idle_harness,
    say,
    stream,
    until_ended,
)

KEY = {"Idempotency-Key": "k"}
ALL = [
    pytest.param(CHAT, ask("Go"), id="chat"),
    pytest.param(CHAT, ask_stream("Go"), id="chat-stream"),
    pytest.param(RESPONSES, say("Go"), id="responses"),
    pytest.param(RESPONSES, stream("Go"), id="responses-stream"),
]
VARYING = {"x-request-id", "idempotency-replayed"}


def headers_of(answer: HttpResponse) -> dict[str, str]:
    return {name: value for name, value in answer.headers.items() if name not in VARYING}


@pytest.mark.parametrize(("path", "body"), ALL)
async def test_again_after_the_end(path: str, body: Any) -> None:
    async with idle_harness(RICH) as harness:
        first = await harness.client.send(path, body, KEY)
        again = [await harness.client.send(path, body, KEY) for _ in range(2)]
        assert first.status == 200
        assert "idempotency-replayed" not in first.headers
        for answer in again:
            assert answer.headers["idempotency-replayed"] == "true"
            assert (answer.body, headers_of(answer)) == (first.body, headers_of(first))
        await (
            harness.state.services.registry.wait_empty()
        )  # a run is counted a moment after its client has heard its end
        assert len(harness.agents.turns) == len(harness.ends) == 1
        session = first.headers["x-hermes-session-id"]
        assert len(await harness.transcript(session)) == 5  # the turn was stored once


@pytest.mark.parametrize(("path", "body"), ALL)
async def test_again_while_it_runs(path: str, body: Any) -> None:
    pause = Pause()
    async with idle_harness(
        ScriptedAgentFactory([*RICH[:5], pause, *RICH[5:]], is_async=True), max_runs=1
    ) as harness:
        async with harness.client.post(path, body, KEY) as first:
            await pause.wait_reached()
            async with harness.client.post(path, body, KEY) as second:  # although no slot is free
                await wait_all_tasks_blocked()
                if body.get("stream"):
                    assert second.raw == first.raw
                pause.go()
                one, two = await first.end(), await second.end()
        assert one.body == two.body
        assert two.headers["idempotency-replayed"] == "true"
        assert len(harness.ends) == 1


async def test_a_key_whose_first_request_began_nothing(mock_clock: MockClock) -> None:
    body = say("Go")
    fingerprint = sha256(json.dumps(body).encode()).hexdigest()
    claim = IdempotencyRecord("ann", RESPONSES, "k", fingerprint, "resp_never", 0.0)
    async with idle_harness() as harness:
        await harness.store.claim_key(claim)
        async with harness.client.post(RESPONSES, body, KEY) as second:
            await wait_all_tasks_blocked()
            mock_clock.jump(11.0)
            answer = await second.end()
        assert (answer.status, answer.error["code"]) == (409, "idempotency_key_pending")
        await harness.store.take_over_runs("the next process")
        assert (await harness.client.send(RESPONSES, body, KEY)).status == 200


async def test_the_first_leaves_and_the_second_keeps_it_going() -> None:
    pause = Pause()
    async with (
        idle_harness(ScriptedAgentFactory([Text("a"), pause, Text("b")], is_async=True)) as harness,
        harness.client.post(RESPONSES, stream(), KEY) as first,
    ):
        await pause.wait_reached()
        async with harness.client.post(RESPONSES, stream(), KEY) as second:
            await second.started()
            first.disconnect()
            await first.end()
            await wait_all_tasks_blocked()
            pause.go()
            assert final(await second.end())["status"] == "completed"


@pytest.mark.parametrize(("path", "body"), ALL)
async def test_what_was_cut_is_told_again(path: str, body: Any) -> None:
    pause = Pause()
    async with idle_harness(ScriptedAgentFactory([Text("Half"), pause], is_async=True)) as harness:
        async with harness.client.post(path, body, KEY):
            await pause.wait_reached()
        await until_ended(harness)
        answer = await harness.client.send(path, body, KEY)
        assert answer.headers["idempotency-replayed"] == "true"
        assert b"client_disconnected" in answer.body
        assert len(harness.agents.turns) == 1


async def test_a_failure_is_told_again() -> None:
    async with idle_harness([], ValueError("broken")) as harness:
        for path, body in ((CHAT, ask()), (RESPONSES, say())):
            first, second = [await harness.client.send(path, body, KEY) for _ in range(2)]
            assert (first.status, first.body) == (second.status, second.body)
        assert len(harness.agents.turns) == 2


@pytest.mark.parametrize(("path", "body"), ALL)
async def test_another_body_is_a_conflict(path: str, body: Any) -> None:
    async with idle_harness() as harness:
        await harness.client.send(path, body, KEY)
        answer = await harness.client.send(path, {**body, "user": "x"}, KEY)
        assert (answer.status, answer.error["code"]) == (409, "idempotency_key_conflict")
        assert answer.error["param"] == "Idempotency-Key"
        assert len(harness.agents.turns) == 1


async def test_keys_are_scoped() -> None:
    async with idle_harness() as harness:
        await harness.client.send(RESPONSES, say("a"), KEY)
        others = [
            await harness.client.send(CHAT, ask("b"), KEY),
            await harness.client.send(RESPONSES, say("c"), {**KEY, **BOB}),
            await harness.client.send(RESPONSES, say("d"), {"Idempotency-Key": "l"}),
        ]
        assert [answer.status for answer in others] == [200] * 3
        assert all("idempotency-replayed" not in answer.headers for answer in others)
        assert len(harness.agents.turns) == 4


@pytest.mark.parametrize(("path", "body"), ALL)
async def test_one_winner_in_a_race(path: str, body: Any) -> None:
    answers: list[HttpResponse] = []

    async def send(harness: AppHarness) -> None:
        answers.append(await harness.client.send(path, body, KEY))

    async with idle_harness(RICH, max_runs=1) as harness:
        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(send, harness)
        assert {answer.status for answer in answers} == {200}
        assert len({answer.body for answer in answers}) == 1
        assert sum("idempotency-replayed" not in answer.headers for answer in answers) == 1
        assert len(harness.agents.turns) == 1


@pytest.mark.parametrize(("path", "body"), ALL)
async def test_a_refused_request_does_not_burn_its_key(path: str, body: Any) -> None:
    pause = Pause()
    async with idle_harness(
        ScriptedAgentFactory([pause, Text("Hi")], is_async=True), max_runs=1
    ) as harness:
        bad = await harness.client.send(path, {**body, "temperature": "hot"}, KEY)
        async with harness.client.post(CHAT, ask()) as other:
            await pause.wait_reached()
            full = await harness.client.send(path, body, KEY)
            pause.go()
            await other.end()
        harness.state.admission.is_draining = True
        drained = await harness.client.send(path, body, KEY)
        harness.state.admission.is_draining = False
        assert [answer.status for answer in (bad, full, drained)] == [400, 429, 503]
        answer = await harness.client.send(path, body, KEY)
        assert answer.status == 200
        assert "idempotency-replayed" not in answer.headers


async def test_a_turn_that_was_not_possible_does_not_burn_its_key() -> None:
    async with idle_harness() as harness:
        for body in (say(previous_response_id="resp_x"), say(conversation="conv_x")):
            statuses = [(await harness.client.send(RESPONSES, body, KEY)).status for _ in range(2)]
            assert statuses == [404, 404]
        assert (await harness.client.send(RESPONSES, say(), KEY)).status == 200


class FailingOnce(MemoryStore):
    """Does not take the first run."""

    failures = 1

    async def begin_run(self, header: RunHeader, ownership: Ownership) -> None:
        if self.failures:
            self.failures -= 1
            raise StoreError("the disk is on fire")
        await super().begin_run(header, ownership)


@pytest.mark.parametrize(("path", "body"), ALL)
async def test_a_store_that_does_not_take_the_run(path: str, body: Any) -> None:
    async with idle_harness(store=FailingOnce()) as harness:
        refused = await harness.client.send(path, body, KEY)
        assert (refused.status, refused.error["code"]) == (503, "session_db_unavailable")
        assert harness.is_idle
        answer = await harness.client.send(path, body, KEY)
        assert (answer.status, "idempotency-replayed" in answer.headers) == (200, False)


class Hesitant(MemoryStore):
    """Takes its time to look a run or a session up, once."""

    def __init__(self) -> None:
        super().__init__()
        self.pause = Pause()

    async def load_history(self, principal: str, run_id: str) -> Any:
        await self.pause.stop_here_in_trio()
        return await super().load_history(principal, run_id)


async def test_a_client_that_leaves_before_there_is_a_run_does_not_burn_its_key() -> None:
    store = Hesitant()
    async with idle_harness(store=store) as harness:
        told = (await harness.client.send(RESPONSES, say())).json
        body = say(previous_response_id=told["id"])
        async with harness.client.post(RESPONSES, body, KEY):
            await store.pause.wait_reached()
        assert harness.is_idle
        store.pause.go()
        answer = await harness.client.send(RESPONSES, body, KEY)
        assert (answer.status, "idempotency-replayed" in answer.headers) == (200, False)


class Lost(MemoryStore):
    """Says that each key was claimed by a run that nobody has heard of since."""

    async def claim_key(self, record: IdempotencyRecord) -> IdempotencyRecord:
        return attrs.evolve(record, run_id="resp_lost")


async def test_a_run_that_never_comes_is_not_waited_for_in_vain(mock_clock: MockClock) -> None:
    async with idle_harness(store=Lost()) as harness:
        async with harness.client.post(RESPONSES, say(), KEY) as exchange:
            await wait_all_tasks_blocked()
            assert not exchange.over.is_set()
            mock_clock.jump(10)
            answer = await exchange.end()
        assert 400 <= answer.status < 500
        assert set(answer.error) == {"message", "type", "param", "code"}


@pytest.mark.parametrize("body", [say(store=False), stream(store=False)])
async def test_what_is_not_stored_is_kept_for_this_alone(body: Any) -> None:
    async with idle_harness(RICH) as harness:
        first, second = [await harness.client.send(RESPONSES, body, KEY) for _ in range(2)]
        assert first.body == second.body
        response_id = final(first)["id"] if body.get("stream") else first.json["id"]
        for more in ("", "?stream=true", "/input_items"):
            assert (await harness.client.get(f"{RESPONSES}/{response_id}{more}")).status == 404
        chained = await harness.client.send(RESPONSES, say(previous_response_id=response_id))
        assert chained.status == 404


async def test_in_the_background() -> None:
    pause = Pause()
    async with idle_harness(ScriptedAgentFactory([pause, Text("Hi")], is_async=True)) as harness:
        body = say(background=True)
        first = await harness.client.send(RESPONSES, body, KEY)
        second = await harness.client.send(RESPONSES, body, KEY)
        assert first.json["id"] == second.json["id"]
        assert second.json["status"] == "in_progress"
        await pause.wait_reached()
        pause.go()
        await until_ended(harness)
        third = await harness.client.send(RESPONSES, body, KEY)
        assert (third.json["id"], third.json["status"]) == (first.json["id"], "completed")


@pytest.mark.parametrize("key", ["", "  "])
async def test_a_blank_key_is_none(key: str) -> None:
    async with idle_harness() as harness:
        for _ in range(2):
            answer = await harness.client.send(RESPONSES, say(), {"Idempotency-Key": key})
            assert "idempotency-replayed" not in answer.headers


async def test_a_key_that_is_too_long() -> None:
    async with idle_harness() as harness:
        answer = await harness.client.send(RESPONSES, say(), {"Idempotency-Key": "k" * 257})
        assert (answer.status, answer.error["param"]) == (400, "Idempotency-Key")


class FailingLate(MemoryStore):
    """Takes its time, and then does not take the run."""

    def __init__(self) -> None:
        super().__init__()
        self.pause = Pause()

    async def begin_run(self, header: RunHeader, ownership: Ownership) -> None:
        await self.pause.stop_here_in_trio()
        raise StoreError("the disk is on fire")


@pytest.mark.parametrize(("path", "body"), ALL)
async def test_whoever_waits_for_a_run_that_never_begins_hears_of_it(path: str, body: Any) -> None:
    store = FailingLate()
    async with idle_harness(store=store) as harness, harness.client.post(path, body, KEY) as first:
        await store.pause.wait_reached()
        async with harness.client.post(path, body, KEY) as second:
            await wait_all_tasks_blocked()
            assert second.answer.status == 0  # nothing is told of a run that is not stored
            store.pause.go()
            assert [(await each.end()).status for each in (first, second)] == [503, 503]
