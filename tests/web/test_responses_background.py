"""Responses after the fact: in the background, cancelled, deleted, and what they were asked."""

from __future__ import annotations

from typing import Any

import pytest
from trio.testing import wait_all_tasks_blocked

from hermes_trio.core.events import Text
from tests.support.asgi import HttpResponse
from tests.support.fakes import CHAT, AppHarness, Pause, ScriptedAgentFactory, ask_stream
from tests.support.responses_api import (
    BOB,
    RESPONSES,
    as_text,
    created,
    events,
    final,
    get,
    idle_harness,
    reason_of,
    say,
    stream,
    text_of,
    until_ended,
    whole,
)

CANCELLED = ("cancelled", "stop_requested")


async def act(
    harness: AppHarness, method: str, response_id: str, more: str = "", headers: Any = None
) -> HttpResponse:
    return await harness.client.get(f"{RESPONSES}/{response_id}{more}", headers or {}, method)


@pytest.mark.parametrize("is_async", [True, False], ids=["task", "thread"])
async def test_in_the_background_from_begin_to_end(is_async: bool) -> None:
    pause = Pause()
    async with idle_harness(
        ScriptedAgentFactory([Text("One "), pause, Text("two")], None, is_async)
    ) as harness:
        begun = whole(await harness.client.send(RESPONSES, say(background=True)))
        assert (begun["status"], begun["background"]) == ("in_progress", True)
        await pause.wait_reached()
        await wait_all_tasks_blocked()
        middle = await get(harness, begun["id"])
        assert (middle["status"], text_of(middle)) == ("in_progress", "One ")
        pause.go()
        await until_ended(harness)
        shown = await get(harness, begun["id"])
        assert (shown["status"], text_of(shown)) == ("completed", "One two")


async def test_background_and_streamed() -> None:
    async with idle_harness() as harness:
        answer = await harness.client.send(RESPONSES, stream(background=True))
        told = final(answer)
        assert (told["status"], told["background"]) == ("completed", True)
        assert events(answer)[0]["response"]["background"] is True
        assert as_text(told) == await get(harness, told["id"])


@pytest.mark.parametrize("is_async", [True, False], ids=["task", "thread"])
async def test_cancelling_what_runs_in_the_background(is_async: bool) -> None:
    pause = Pause()
    async with idle_harness(ScriptedAgentFactory([Text("One "), pause], None, is_async)) as harness:
        begun = whole(await harness.client.send(RESPONSES, say(background=True)))
        await pause.wait_reached()
        first = whole(await act(harness, "POST", begun["id"], "/cancel"))
        assert (reason_of(first), text_of(first)) == (CANCELLED, "One ")
        assert len(harness.state.services.registry) == 0
        assert whole(await act(harness, "POST", begun["id"], "/cancel")) == first
        assert await get(harness, begun["id"]) == first


async def test_cancelling_before_there_is_an_agent() -> None:
    factory_pause = Pause()
    async with idle_harness(
        ScriptedAgentFactory([Text("never")], factory_pause=factory_pause)
    ) as harness:
        begun = whole(await harness.client.send(RESPONSES, say(background=True)))
        async with harness.client.open("POST", f"{RESPONSES}/{begun['id']}/cancel") as exchange:
            await wait_all_tasks_blocked()
            factory_pause.go()
            told = whole(await exchange.end())
        assert (reason_of(told), told["output"]) == (CANCELLED, [])


async def test_cancelling_what_is_finished() -> None:
    async with idle_harness() as harness:
        begun = whole(await harness.client.send(RESPONSES, say(background=True)))
        await until_ended(harness)
        shown = await get(harness, begun["id"])
        assert shown["status"] == "completed"
        assert whole(await act(harness, "POST", begun["id"], "/cancel")) == shown
        for body in (say(), stream()):
            answer = await harness.client.send(RESPONSES, body)
            done = answer.json if body == say() else final(answer)
            refused = await act(harness, "POST", done["id"], "/cancel")
            assert (refused.status, refused.error["code"]) == (400, "not_running")
            assert (await get(harness, done["id"]))["status"] == "completed"


async def test_cancelling_right_after_the_last_event() -> None:
    """An agent that is slow to leave does not make a finished response a running one."""
    async with idle_harness() as harness, harness.client.post(RESPONSES, stream()) as exchange:
        response_id = await created(exchange)
        await exchange.frame_where(type="response.completed")
        assert (await act(harness, "POST", response_id, "/cancel")).status == 400


async def test_what_is_not_stored_cannot_be_reached_while_it_runs() -> None:
    pause = Pause()
    async with (
        idle_harness(ScriptedAgentFactory([Text("a"), pause, Text("b")], is_async=True)) as harness,
        harness.client.post(RESPONSES, stream(store=False)) as exchange,
    ):
        response_id = await created(exchange)
        await pause.wait_reached()
        await assert_unreachable(harness, response_id)
        pause.go()
        assert final(await exchange.end())["status"] == "completed"


async def assert_unreachable(harness: AppHarness, response_id: str, headers: Any = None) -> None:
    """404 whatever is tried."""
    for method, more in [
        ("GET", ""),
        ("GET", "?stream=true"),
        ("GET", "?stream=true&starting_after=3"),
        ("GET", "/input_items"),
        ("POST", "/cancel"),
        ("DELETE", ""),
    ]:
        answer = await act(harness, method, response_id, more, headers)
        assert (answer.status, answer.error["code"]) == (404, "response_not_found"), (method, more)
    chained = await harness.client.send(
        RESPONSES, say(previous_response_id=response_id), headers or {}
    )
    assert (chained.status, chained.error["code"]) == (404, "previous_response_not_found")


async def test_others_see_nothing() -> None:
    pause = Pause()
    async with idle_harness(
        ScriptedAgentFactory([Text("a"), pause, Text("b")], is_async=True), max_runs=3
    ) as harness:
        begun = whole(await harness.client.send(RESPONSES, say(background=True)))
        await pause.wait_reached()
        await assert_unreachable(harness, begun["id"], BOB)
        pause.go()
        await until_ended(harness)
        await assert_unreachable(harness, begun["id"], BOB)
        assert (await get(harness, begun["id"]))["status"] == "completed"


async def test_a_chat_is_no_response() -> None:
    pause = Pause()
    async with (
        idle_harness(ScriptedAgentFactory([Text("a"), pause, Text("b")], is_async=True)) as harness,
        harness.client.post(CHAT, ask_stream(), {"Idempotency-Key": "k"}) as exchange,
    ):
        chat_id = (await exchange.frame()).json["id"]
        await pause.wait_reached()
        for method, more in [
            ("GET", ""),
            ("GET", "?stream=true"),
            ("POST", "/cancel"),
            ("DELETE", ""),
        ]:
            assert (await act(harness, method, chat_id, more)).status == 404
        assert (await act(harness, "GET", chat_id, "/input_items")).status == 404
        pause.go()
        assert b'"finish_reason": "stop"' in (await exchange.end()).body


async def test_deleting() -> None:
    async with idle_harness() as harness:
        told = whole(await harness.client.send(RESPONSES, say()))
        answer = await act(harness, "DELETE", told["id"])
        assert answer.json == {"id": told["id"], "object": "response", "deleted": True}
        await assert_unreachable(harness, told["id"])


@pytest.mark.parametrize("is_async", [True, False], ids=["task", "thread"])
async def test_deleting_what_runs(is_async: bool) -> None:
    pause = Pause()
    async with idle_harness(ScriptedAgentFactory([Text("One "), pause], None, is_async)) as harness:
        async with harness.client.post(RESPONSES, stream()) as exchange:
            response_id = await created(exchange)
            await pause.wait_reached()
            assert (await act(harness, "DELETE", response_id)).json["deleted"] is True
            assert reason_of(final(await exchange.end())) == CANCELLED
        assert harness.ends == [CANCELLED]
        await assert_unreachable(harness, response_id)


@pytest.mark.parametrize("order", ["asc", "desc", ""])
@pytest.mark.parametrize("limit", [1, 2, 5, 100])
async def test_the_input_page_by_page(order: str, limit: int) -> None:
    texts = [f"text {n}" for n in range(5)]
    async with idle_harness() as harness:
        told = whole(await harness.client.send(RESPONSES, say(texts)))
        found, after, pages = [], "", 0
        while True:
            query = f"/input_items?limit={limit}&after={after}" + (
                f"&order={order}" if order else ""
            )
            page = (await act(harness, "GET", told["id"], query)).json
            assert page["object"] == "list"
            assert (page["first_id"], page["last_id"]) == (
                page["data"][0]["id"],
                page["data"][-1]["id"],
            )
            found += [item["content"][0]["text"] for item in page["data"]]
            after, pages = page["last_id"], pages + 1
            if not page["has_more"]:
                break
        assert found == (texts if order == "asc" else texts[::-1])
        assert pages == -(-5 // limit)


@pytest.mark.parametrize(
    ("query", "status", "param"),
    [
        ("limit=0", 400, "limit"),
        ("limit=101", 400, "limit"),
        ("limit=--1", 400, "limit"),
        ("order=up", 400, "order"),
        ("after=msg_x", 404, "after"),
    ],
)
async def test_a_bad_page(query: str, status: int, param: str) -> None:
    async with idle_harness() as harness:
        told = whole(await harness.client.send(RESPONSES, say()))
        answer = await act(harness, "GET", told["id"], f"/input_items?{query}")
        assert (answer.status, answer.error["param"]) == (status, param)
