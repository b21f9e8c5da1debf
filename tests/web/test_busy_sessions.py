"""Two turns at once on one session: the second is refused or waits, on every route, and they never mix."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from attrs import frozen
from trio.testing import MockClock, wait_all_tasks_blocked

from hermes_trio.core.events import Text
from tests.support.asgi import NO_HEADERS, Answer, Headers
from tests.support.fakes import CHAT, Pause, Rig, Stage, ask, ask_stream
from tests.support.responses_api import BOB, RESPONSES, idle_rig, say, stream
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

    async def ask(self, rig: Rig) -> Answer:
        return await rig.client.send(self.path, self.body, self.headers)


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
async def busy(**more: Any) -> AsyncIterator[tuple[Rig, Pause, str]]:
    """A session ``s`` with one turn that has ended and one that is under way."""
    pause = Pause()
    pause.go()
    stage = Stage([pause, Text("Yes.")], is_async=True)
    async with idle_rig(stage, max_runs=20, **more) as rig:
        first = await started(rig, "Zero", session_id="s")
        await followed(rig, first)
        await rig.until_idle()
        held = Pause()
        stage.script = [held, Text("Yes.")]
        await started(rig, "One", session_id="s")
        await held.wait_reached()
        yield rig, held, first
        held.go()


@pytest.mark.parametrize("way", SESSION_WAYS, ids=IDS)
async def test_the_second_turn_is_refused(way: Way) -> None:
    async with busy() as (rig, held, first):
        answer = await after(way, first).ask(rig)
        assert (answer.status, answer.error["code"], answer.error["param"]) == (409, way.code, way.param)
        assert answer.headers["retry-after"] == "1"
        assert rig.site.admission.in_use == 1
        held.go()
        await rig.until_idle()
        assert (await after(way, first).ask(rig)).status in {200, 202}


@pytest.mark.parametrize("way", SESSION_WAYS, ids=IDS)
async def test_the_second_turn_waits_and_reads_what_the_first_said(way: Way, mock_clock: MockClock) -> None:
    async with busy(turn_patience=60) as (rig, held, first):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(after(way, first).ask, rig)
            await wait_all_tasks_blocked()
            mock_clock.jump(59)
            await wait_all_tasks_blocked()
            assert len(rig.site.services.registry) == 1
            assert rig.site.admission.in_use == 2  # whoever waits counts
            held.go()
        await rig.until_idle()
        said = [content for _, content in await rig.transcript("s")]
        assert said == ["Zero", "Yes.", "One", "Yes.", "Two", "Yes."]
        heard = [message.content for message in rig.stage.turns[-1].history]
        if way.path == CHAT:  # it reads the session; the others read the run that they continue, or nothing
            assert heard == said[:4]


async def test_patience_ends_with_the_refusal(mock_clock: MockClock) -> None:
    async with busy(turn_patience=60) as (rig, _, _), rig.client.post(CHAT, ask(), {ID: "s"}) as exchange:
        await wait_all_tasks_blocked()
        mock_clock.jump(60)
        answer = await exchange.end()
        assert (answer.status, answer.error["code"]) == (409, "session_busy")


async def test_whoever_leaves_the_line_loses_nothing_but_the_place() -> None:
    async with busy(turn_patience=60) as (rig, held, _):
        async with trio.open_nursery() as nursery:
            async with rig.client.post(CHAT, ask("Gone"), {ID: "s", "Idempotency-Key": "k"}):
                await wait_all_tasks_blocked()
                nursery.start_soon(rig.client.send, CHAT, ask("Two"), {ID: "s"})
                await wait_all_tasks_blocked()
                assert rig.site.admission.in_use == 3
            assert rig.site.admission.in_use == 2
            held.go()
        assert [turn.message for turn in rig.stage.turns] == ["Zero", "One", "Two"]
        answer = await rig.client.send(CHAT, ask("Gone"), {ID: "s", "Idempotency-Key": "k"})
        assert (answer.status, "idempotency-replayed" in answer.headers) == (200, False)


async def test_ten_in_line_go_one_by_one_in_order() -> None:
    async with busy(turn_patience=60) as (rig, held, _):
        async with trio.open_nursery() as nursery:
            for n in range(10):
                nursery.start_soon(rig.client.send, CHAT, ask(str(n)), {ID: "s"})
                await wait_all_tasks_blocked()
            held.go()
        said = [content for role, content in await rig.transcript("s") if role == "user"]
        assert said == ["Zero", "One", *"0123456789"]
        for turn in rig.stage.turns[2:]:  # each read all that those before it said
            assert len(turn.history) == 2 * rig.stage.turns.index(turn)


async def test_a_drain_refuses_those_who_waited() -> None:
    async with busy(turn_patience=60) as (rig, held, _):
        async with rig.client.post(CHAT, ask(), {ID: "s"}) as exchange:
            await wait_all_tasks_blocked()
            rig.site.admission.is_draining = True
            held.go()
            answer = await exchange.end()
            assert (answer.status, answer.error["code"]) == (503, "gateway_draining")
        await rig.until_idle()


async def test_conversations_wait_too() -> None:
    pause = Pause()
    async with idle_rig(Stage([pause, Text("Yes.")], is_async=True), turn_patience=60) as rig:
        async with trio.open_nursery() as nursery:
            for text in ("One", "Two"):
                nursery.start_soon(rig.client.send, RESPONSES, say(text, conversation="c"))
                await wait_all_tasks_blocked()
            assert len(rig.site.services.registry) == 1
            pause.go()
        assert [message.content for message in rig.stage.turns[1].history] == ["One", "Yes."]


async def test_a_response_that_is_still_in_progress_can_be_waited_for() -> None:
    """It began in a session of its own, which nobody named."""
    pause = Pause()
    async with idle_rig(Stage([pause, Text("Yes.")], is_async=True), turn_patience=60) as rig:
        first = await started(rig, "One")
        async with rig.client.post(RESPONSES, say("Two", previous_response_id=first)) as exchange:
            await wait_all_tasks_blocked()
            assert len(rig.site.services.registry) == 1
            pause.go()
            assert (await exchange.end()).status == 200
        assert [message.content for message in rig.stage.turns[1].history] == ["One", "Yes."]
        assert rig.stage.turns[1].session_id == first


async def test_two_branches_of_one_response_take_turns() -> None:
    pause = Pause()
    async with idle_rig(Stage([pause, Text("Yes.")], is_async=True), max_runs=5, turn_patience=60) as rig:
        pause.go()
        first = (await rig.client.send(RESPONSES, say("One"))).json["id"]
        held = Pause()
        rig.stage.script = [held, Text("Yes.")]
        async with trio.open_nursery() as nursery:
            for text in ("Left", "Right"):
                nursery.start_soon(rig.client.send, RESPONSES, say(text, previous_response_id=first))
                await wait_all_tasks_blocked()
            assert len(rig.site.services.registry) == 1
            held.go()
        left, right = rig.stage.turns[1:]
        assert left.history == right.history  # each continues the first, and only that
        said = [content for _, content in await rig.transcript(left.session_id)]
        assert said == ["One", "Yes.", "Left", "Yes.", "Right", "Yes."]


async def test_a_new_session_is_busy_for_whoever_learns_its_name() -> None:
    pause = Pause()
    async with idle_rig(Stage([pause, Text("Hi")], is_async=True), max_runs=5) as rig:
        answer = await rig.client.send(RUNS, say())
        session = {ID: answer.headers[ID.lower()]}
        refused = await rig.client.send(CHAT, ask(), session)
        assert (refused.status, refused.error["param"]) == (409, ID)
        await stopped(rig, run_id_of(answer))
        await rig.until_idle()
        pause.go()
        assert (await rig.client.send(CHAT, ask(), session)).status == 200


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
    stage = Stage([pause, Text("Hi")], is_async=True)
    async with idle_rig(stage, max_runs=5) as rig, trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(rig.client.send, path, body)
        await wait_all_tasks_blocked()
        assert len(rig.site.services.registry) == 3
        pause.go()


async def test_the_same_name_of_another_principal_is_another_session() -> None:
    async with busy() as (rig, held, _):
        held.go()
        assert (await rig.client.send(CHAT, ask(), {ID: "s", **BOB})).status == 200


async def test_a_repeated_request_needs_no_place() -> None:
    pause = Pause()
    key = {ID: "s", "Idempotency-Key": "k"}
    async with idle_rig(Stage([pause, Text("Hi")], is_async=True), max_runs=5) as rig:
        async with rig.client.post(CHAT, ask_stream(), key) as first:
            await first.frame()
            async with rig.client.post(CHAT, ask_stream(), key) as second:
                await second.frame()
                pause.go()
                assert (await first.end()).body == (await second.end()).body
        assert (await second.end()).headers["idempotency-replayed"] == "true"


async def test_what_does_not_begin_leaves_the_session_free() -> None:
    async with idle_rig(max_runs=1) as rig:
        missing = await rig.client.send(RUNS, say(session_id="s", previous_response_id="run_x"))
        assert missing.status == 404
        assert rig.is_idle
        assert (await rig.client.send(RESPONSES, stream())).status == 200
