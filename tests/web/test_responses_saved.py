"""The store hears of everything first, and when it fails the client hears of that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from trio.testing import wait_all_tasks_blocked

from hermes_trio.core.events import Text
from hermes_trio.core.records import EndedRun, LogBatch, Ownership, RunHeader
from hermes_trio.stores.sqlite import MemoryStore
from tests.support.asgi import Exchange
from tests.support.fakes import BrokenStore, Pause, ScriptedAgentFactory
from tests.support.responses_api import (
    RESPONSES,
    as_text,
    checked_event,
    created,
    final,
    get,
    idle_harness,
    reason_of,
    say,
    stream,
    text_of,
    whole,
)


class NotingStore(MemoryStore):
    """Notes how much of the answer is on the wire whenever a run is written."""

    def __init__(self) -> None:
        super().__init__()
        self.exchange: Exchange | None = None
        self.seen: list[tuple[str, bytes]] = []

    async def begin_run(self, header: RunHeader, ownership: Ownership) -> None:
        await super().begin_run(header, ownership)
        self._note("begin")

    async def end_run(
        self,
        ended: EndedRun,
        tail: Sequence[LogBatch] = (),
        items: Sequence[Mapping[str, Any]] = (),
        ownership: Ownership | None = None,
    ) -> bool:
        is_ours = await super().end_run(ended, tail, items, ownership)
        self._note("end")
        return is_ours

    def _note(self, what: str) -> None:
        self.seen.append((what, self.exchange.raw if self.exchange else b""))


async def test_the_store_is_always_first() -> None:
    store, pause = NotingStore(), Pause()
    async with (
        idle_harness(
            ScriptedAgentFactory([Text("Hi"), pause, Text("!")], is_async=True), store=store
        ) as harness,
        harness.client.post(RESPONSES, stream()) as store.exchange,
    ):
        await pause.wait_reached()
        await store.exchange.frame_where(type="response.output_text.delta")
        pause.go()
        answer = await store.exchange.end()
    (first, before), (second, after) = store.seen
    assert (first, before, second) == ("begin", b"", "end")
    assert b"event: response.completed" not in after
    assert b'"delta": "Hi"' in after
    assert text_of(final(answer)) == "Hi!"


@pytest.mark.parametrize("is_async", [True, False], ids=["task", "thread"])
async def test_a_response_can_be_fetched_while_it_runs(is_async: bool) -> None:
    pause = Pause()
    async with idle_harness(
        ScriptedAgentFactory([Text("So far"), pause, Text(".")], None, is_async)
    ) as harness:
        async with harness.client.post(RESPONSES, stream()) as exchange:
            response_id = await created(exchange)
            await pause.wait_reached()
            await exchange.frame_where(type="response.output_text.delta")
            shown = await get(harness, response_id)
            assert (shown["status"], text_of(shown)) == ("in_progress", "So far")
            assert shown["usage"] is None
            pause.go()
            told = final(await exchange.end())
        assert as_text(told) == await get(harness, response_id)


async def test_a_response_can_be_fetched_before_its_agent_exists() -> None:
    factory_pause = Pause()
    async with (
        idle_harness(ScriptedAgentFactory([Text("Hi")], factory_pause=factory_pause)) as harness,
        harness.client.post(RESPONSES, stream()) as exchange,
    ):
        response_id = await created(exchange)
        assert (await get(harness, response_id))["status"] == "in_progress"
        factory_pause.go()
        await exchange.end()


@pytest.mark.parametrize("body", [say(), stream(), say(background=True), say(conversation="c")])
async def test_a_store_that_does_not_take_the_run(body: Any) -> None:
    async with idle_harness(store=BrokenStore("begin")) as harness:
        answer = await harness.client.send(RESPONSES, body)
        assert (answer.status, answer.error["code"]) == (503, "session_db_unavailable")
        assert answer.headers["retry-after"] == "1"
        assert harness.is_idle
        assert (harness.agents.turns, harness.ends) == ([], [])


async def test_an_end_that_is_not_stored_is_a_failure() -> None:
    async with idle_harness(store=BrokenStore("write")) as harness:
        streamed = await harness.client.send(RESPONSES, stream(conversation="c"))
        assert checked_event(streamed.frames[-2])["type"] == "response.failed"
        told = whole(await harness.client.send(RESPONSES, say(conversation="c")))
        for response in (final(streamed), told):
            assert reason_of(response) == ("failed", "server_error")
            assert text_of(response) == "Hello world"
        assert harness.ends == [("failed", "server_error")] * 2


class LateStore(MemoryStore):
    """Takes its time to begin a run."""

    def __init__(self) -> None:
        super().__init__()
        self.pause = Pause()

    async def begin_run(self, header: RunHeader, ownership: Ownership) -> None:
        await self.pause.stop_here_in_trio()
        await super().begin_run(header, ownership)


@pytest.mark.parametrize(
    ("more", "end"),
    [
        ({}, ("incomplete", "client_disconnected")),
        ({"background": True}, ("completed", "")),
    ],
)
@pytest.mark.parametrize("body", [say, stream])
async def test_leaving_while_the_run_is_being_stored(body: Any, more: Any, end: Any) -> None:
    """The policy decides, as if the client had left a moment later."""
    store, pause = LateStore(), Pause()
    async with idle_harness(
        ScriptedAgentFactory([pause, Text("Hi")], is_async=True), store=store
    ) as harness:
        async with harness.client.post(RESPONSES, body(conversation="c", **more)) as exchange:
            await store.pause.wait_reached()
            exchange.disconnect()
            assert not harness.is_idle
            store.pause.go()
            await exchange.end()
        await wait_all_tasks_blocked()
        pause.go()
        await harness.until_idle()
        assert harness.ends == [end]
        assert (
            whole(await harness.client.send(RESPONSES, say(conversation="c")))["status"]
            == "completed"
        )
