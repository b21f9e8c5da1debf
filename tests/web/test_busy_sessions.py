"""Two turns at once on one session.

The second is refused or waits, on every route, and they never mix.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from attrs import frozen
from trio.testing import MockClock, wait_all_tasks_blocked

from hermes_trio.core.events import Text
from tests.support.asgi import NO_HEADERS, Headers, HttpResponse
from tests.support.fakes import CHAT, AppHarness, Pause, ScriptedAgentFactory, ask, ask_stream
from tests.support.responses_api import BOB, RESPONSES, idle_harness, say, stream
from tests.support.runs_api import RUNS, followed, run_id_of, started, stopped

ID = "X-Hermes-Session-Id"


@frozen
class Way:
    """A way to ask for a turn in a session, and what is said when it is busy."""

    path: str
    body: dict[str, Any]
    param: str
    code: str = "session_busy"
    headers: Headers = NO_HEADERS

    async def ask(self, harness: AppHarness) -> HttpResponse:
        return await harness.client.send(self.path, self.body, self.headers)


BY_HEADER = Way(CHAT, ask("Two"), ID, headers={ID: "s"})
STREAMED = Way(CHAT, ask_stream("Two"), ID, headers={ID: "s"})
BY_FIELD = Way(RUNS, say("Two", session_id="s"), "session_id")
CHAINED = Way(RESPONSES, say("Two", previous_response_id="run_0"), "previous_response_id")
CHAINED_RUN = Way(RUNS, say("Two", previous_response_id="run_0"), "previous_response_id")
SESSION_WAYS = [BY_HEADER, STREAMED, BY_FIELD, CHAINED, CHAINED_RUN]
IDS = ["chat", "chat-stream", "runs", "responses-chained", "runs-chained"]


def after(way: Way, run_id: str) -> Way:
    """The same, with a real run to continue."""
    body = {name: run_id if value == "run_0" else value for name, value in way.body.items()}
    return Way(way.path, body, way.param, way.code, way.headers)


@asynccontextmanager
async def busy(**more: Any) -> AsyncIterator[tuple[AppHarness, Pause, str]]:
    """A session ``s`` with one turn that has ended and one that is under way."""
    pause = Pause()
    pause.go()
    agents = ScriptedAgentFactory([pause, Text("Yes.")], is_async=True)
    async with idle_harness(agents, max_runs=20, **more) as harness:
        first = await started(harness, "Zero", session_id="s")
        await followed(harness, first)
        await harness.until_idle()
        held = Pause()
        agents.script = [held, Text("Yes.")]
        await started(harness, "One", session_id="s")
        await held.wait_reached()
        yield harness, held, first
        held.go()


@pytest.mark.parametrize("way", SESSION_WAYS, ids=IDS)
async def test_the_second_turn_is_refused(way: Way) -> None:
    async with busy() as (harness, held, first):
        answer = await after(way, first).ask(harness)
        assert (answer.status, answer.error["code"], answer.error["param"]) == (
            409,
            way.code,
            way.param,
        )
        assert answer.headers["retry-after"] == "1"
        assert harness.state.admission.in_use == 1
        held.go()
        await harness.until_idle()
        assert (await after(way, first).ask(harness)).status in {200, 202}


@pytest.mark.parametrize("way", SESSION_WAYS, ids=IDS)
async def test_the_second_turn_waits_and_reads_what_the_first_said(
    way: Way, mock_clock: MockClock
) -> None:
    async with busy(turn_patience=60) as (harness, held, first):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(after(way, first).ask, harness)
            await wait_all_tasks_blocked()
            mock_clock.jump(59)
            await wait_all_tasks_blocked()
            assert len(harness.state.services.registry) == 1
            assert harness.state.admission.in_use == 2  # whoever waits counts
            held.go()
        await harness.until_idle()
        said = [content for _, content in await harness.transcript("s")]
        assert said == ["Zero", "Yes.", "One", "Yes.", "Two", "Yes."]
        heard = [message.content for message in harness.agents.turns[-1].history]
        if (
            way.path == CHAT
        ):  # it reads the session; the others read the run that they continue, or nothing
            assert heard == said[:4]


async def test_patience_ends_with_the_refusal(mock_clock: MockClock) -> None:
    async with (
        busy(turn_patience=60) as (harness, _, _),
        harness.client.post(CHAT, ask(), {ID: "s"}) as exchange,
    ):
        await wait_all_tasks_blocked()
        mock_clock.jump(60)
        answer = await exchange.end()
        assert (answer.status, answer.error["code"]) == (409, "session_busy")


async def test_whoever_leaves_the_line_loses_nothing_but_the_place() -> None:
    async with busy(turn_patience=60) as (harness, held, _):
        async with trio.open_nursery() as nursery:
            async with harness.client.post(CHAT, ask("Gone"), {ID: "s", "Idempotency-Key": "k"}):
                await wait_all_tasks_blocked()
                nursery.start_soon(harness.client.send, CHAT, ask("Two"), {ID: "s"})
                await wait_all_tasks_blocked()
                assert harness.state.admission.in_use == 3
            assert harness.state.admission.in_use == 2
            held.go()
        assert [turn.message for turn in harness.agents.turns] == ["Zero", "One", "Two"]
        answer = await harness.client.send(CHAT, ask("Gone"), {ID: "s", "Idempotency-Key": "k"})
        assert (answer.status, "idempotency-replayed" in answer.headers) == (200, False)


async def test_ten_in_line_go_one_by_one_in_order() -> None:
    async with busy(turn_patience=60) as (harness, held, _):
        async with trio.open_nursery() as nursery:
            for n in range(10):
                nursery.start_soon(harness.client.send, CHAT, ask(str(n)), {ID: "s"})
                await wait_all_tasks_blocked()
            held.go()
        said = [content for role, content in await harness.transcript("s") if role == "user"]
        assert said == ["Zero", "One", *"0123456789"]
        for turn in harness.agents.turns[2:]:  # each read all that those before it said
            assert len(turn.history) == 2 * harness.agents.turns.index(turn)


async def test_a_drain_refuses_those_who_waited() -> None:
    async with busy(turn_patience=60) as (harness, held, _):
        async with harness.client.post(CHAT, ask(), {ID: "s"}) as exchange:
            await wait_all_tasks_blocked()
            harness.state.admission.is_draining = True
            held.go()
            answer = await exchange.end()
            assert (answer.status, answer.error["code"]) == (503, "gateway_draining")
        await harness.until_idle()


async def test_conversations_wait_too() -> None:
    pause = Pause()
    async with idle_harness(
        ScriptedAgentFactory([pause, Text("Yes.")], is_async=True), turn_patience=60
    ) as harness:
        async with trio.open_nursery() as nursery:
            for text in ("One", "Two"):
                nursery.start_soon(harness.client.send, RESPONSES, say(text, conversation="c"))
                await wait_all_tasks_blocked()
            assert len(harness.state.services.registry) == 1
            pause.go()
        assert [message.content for message in harness.agents.turns[1].history] == ["One", "Yes."]


async def test_a_response_that_is_still_in_progress_can_be_waited_for() -> None:
    """It began in a session of its own, which nobody named."""
    pause = Pause()
    async with idle_harness(
        ScriptedAgentFactory([pause, Text("Yes.")], is_async=True), turn_patience=60
    ) as harness:
        first = await started(harness, "One")
        async with harness.client.post(
            RESPONSES, say("Two", previous_response_id=first)
        ) as exchange:
            await wait_all_tasks_blocked()
            assert len(harness.state.services.registry) == 1
            pause.go()
            assert (await exchange.end()).status == 200
        assert [message.content for message in harness.agents.turns[1].history] == ["One", "Yes."]
        assert harness.agents.turns[1].session_id == first


async def test_two_branches_of_one_response_take_turns() -> None:
    pause = Pause()
    async with idle_harness(
        ScriptedAgentFactory([pause, Text("Yes.")], is_async=True), max_runs=5, turn_patience=60
    ) as harness:
        pause.go()
        first = (await harness.client.send(RESPONSES, say("One"))).json["id"]
        held = Pause()
        harness.agents.script = [held, Text("Yes.")]
        async with trio.open_nursery() as nursery:
            for text in ("Left", "Right"):
                nursery.start_soon(
                    harness.client.send, RESPONSES, say(text, previous_response_id=first)
                )
                await wait_all_tasks_blocked()
            assert len(harness.state.services.registry) == 1
            held.go()
        left, right = harness.agents.turns[1:]
        assert left.history == right.history  # each continues the first, and only that
        said = [content for _, content in await harness.transcript(left.session_id)]
        assert said == ["One", "Yes.", "Left", "Yes.", "Right", "Yes."]


async def test_a_new_session_is_busy_for_whoever_learns_its_name() -> None:
    pause = Pause()
    async with idle_harness(
        ScriptedAgentFactory([pause, Text("Hi")], is_async=True), max_runs=5
    ) as harness:
        answer = await harness.client.send(RUNS, say())
        session = {ID: answer.headers[ID.lower()]}
        refused = await harness.client.send(CHAT, ask(), session)
        assert (refused.status, refused.error["param"]) == (409, ID)
        await stopped(harness, run_id_of(answer))
        await harness.until_idle()
        pause.go()
        assert (await harness.client.send(CHAT, ask(), session)).status == 200


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, ask()),  # a derived session
        (RESPONSES, say()),
        (RUNS, say()),
        (RESPONSES, say(conversation="c", store=False)),
    ],
)
async def test_what_names_no_session_or_is_not_stored_blocks_nobody(path: str, body: Any) -> None:
    pause = Pause()
    agents = ScriptedAgentFactory([pause, Text("Hi")], is_async=True)
    async with idle_harness(agents, max_runs=5) as harness, trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(harness.client.send, path, body)
        await wait_all_tasks_blocked()
        assert len(harness.state.services.registry) == 3
        pause.go()


async def test_the_same_name_of_another_principal_is_another_session() -> None:
    async with busy() as (harness, held, _):
        held.go()
        assert (await harness.client.send(CHAT, ask(), {ID: "s", **BOB})).status == 200


async def test_a_repeated_request_needs_no_place() -> None:
    pause = Pause()
    key = {ID: "s", "Idempotency-Key": "k"}
    async with idle_harness(
        ScriptedAgentFactory([pause, Text("Hi")], is_async=True), max_runs=5
    ) as harness:
        async with harness.client.post(CHAT, ask_stream(), key) as first:
            await first.frame()
            async with harness.client.post(CHAT, ask_stream(), key) as second:
                await second.frame()
                pause.go()
                assert (await first.end()).body == (await second.end()).body
        assert (await second.end()).headers["idempotency-replayed"] == "true"


async def test_what_does_not_begin_leaves_the_session_free() -> None:
    async with idle_harness(max_runs=1) as harness:
        missing = await harness.client.send(RUNS, say(session_id="s", previous_response_id="run_x"))
        assert missing.status == 404
        assert harness.is_idle
        assert (await harness.client.send(RESPONSES, stream())).status == 200
