"""The Conversations API, and turns that share a conversation."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
import pytest
from openai.types.conversations import Conversation, ConversationItem
from pydantic import TypeAdapter
from trio.testing import wait_all_tasks_blocked

from hermes_trio.core.events import Text
from hermes_trio.schema import replies
from tests.support.asgi import HttpResponse
from tests.support.fakes import AppHarness, Pause, ScriptedAgentFactory
from tests.support.responses_api import (
    BOB,
    CONVERSATIONS,
    RESPONSES,
    created,
    final,
    idle_harness,
    say,
    stream,
    whole,
)

ITEMS: list[dict[str, Any]] = [
    {"type": "message", "role": "user", "content": "One"},
    {"type": "function_call", "call_id": "c", "name": "t", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c", "output": "two"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Three"}]},
]


async def make(harness: AppHarness, **body: Any) -> str:
    answer = await harness.client.send(CONVERSATIONS, body)
    return str(shown(answer)["id"])


def shown(answer: HttpResponse) -> dict[str, Any]:
    """A conversation, held against the types of others."""
    assert answer.status == 200, answer.body
    Conversation.model_validate(answer.json, strict=True)
    msgspec.convert(answer.json, replies.ConversationReply)
    return dict(answer.json)


@cache
def _item_type() -> TypeAdapter[Any]:
    return TypeAdapter(ConversationItem)


async def items(
    harness: AppHarness, conversation_id: str, query: str = "order=asc&limit=100"
) -> dict[str, Any]:
    answer = await harness.client.get(f"{CONVERSATIONS}/{conversation_id}/items?{query}")
    assert answer.status == 200, answer.body
    msgspec.convert(answer.json, replies.ItemList)
    for item in answer.json["data"]:
        _item_type().validate_python(item, strict=True)
    return dict(answer.json)


async def test_from_begin_to_end() -> None:
    async with idle_harness() as harness:
        made = shown(
            await harness.client.send(CONVERSATIONS, {"metadata": {"a": "b"}, "items": ITEMS})
        )
        path = f"{CONVERSATIONS}/{made['id']}"
        assert made["id"].startswith("conv_")
        assert made["metadata"] == {"a": "b"}
        assert shown(await harness.client.get(path)) == made
        changed = shown(await harness.client.send(path, {"metadata": {"c": "d"}}))
        assert changed == {**made, "metadata": {"c": "d"}} == shown(await harness.client.get(path))
        assert len((await items(harness, made["id"]))["data"]) == 4
        answer = await harness.client.get(path, method="DELETE")
        assert answer.json == {"id": made["id"], "object": "conversation.deleted", "deleted": True}
        await assert_unreachable(harness, made["id"])


async def test_no_body_makes_an_empty_one() -> None:
    async with idle_harness() as harness:
        made = shown(await harness.client.send_raw(CONVERSATIONS, b""))
        page = await items(harness, made["id"])
        assert (page["data"], page["first_id"], page["has_more"]) == ([], None, False)


async def assert_unreachable(
    harness: AppHarness, conversation_id: str, headers: Any = None, item: str = "x"
) -> None:
    path, more = f"{CONVERSATIONS}/{conversation_id}", headers or {}
    answers = [
        await harness.client.get(path, more),
        await harness.client.send(path, {"metadata": {}}, more),
        await harness.client.get(path, more, "DELETE"),
        await harness.client.get(f"{path}/items", more),
        await harness.client.send(f"{path}/items", {"items": ITEMS}, more),
        await harness.client.get(f"{path}/items/{item}", more),
        await harness.client.get(f"{path}/items/{item}", more, "DELETE"),
        await harness.client.send(RESPONSES, say(conversation=conversation_id), more),
        await harness.client.send(RESPONSES, stream(conversation={"id": conversation_id}), more),
    ]
    for answer in answers:
        assert (answer.status, answer.error["code"]) == (404, "conversation_not_found")


async def test_what_is_not_there_or_somebody_elses() -> None:
    async with idle_harness() as harness:
        await assert_unreachable(harness, "conv_x")
        made = await make(harness, items=ITEMS)
        first = (await items(harness, made))["first_id"]
        await assert_unreachable(harness, made, BOB, first)
        assert len((await items(harness, made))["data"]) == 4


async def test_single_items() -> None:
    async with idle_harness() as harness:
        made = await make(harness, items=ITEMS[:1])
        path = f"{CONVERSATIONS}/{made}/items"
        added = (await harness.client.send(path, {"items": ITEMS[1:]})).json
        assert len(added["data"]) == 3
        page = await items(harness, made)
        assert page["data"][1:] == added["data"]
        for item in page["data"]:
            assert (await harness.client.get(f"{path}/{item['id']}")).json == item
        gone = page["data"][0]["id"]
        assert shown(await harness.client.get(f"{path}/{gone}", method="DELETE"))["id"] == made
        for method in ("GET", "DELETE"):
            answer = await harness.client.get(f"{path}/{gone}", method=method)
            assert (answer.status, answer.error["code"]) == (404, "item_not_found")
        assert (await items(harness, made))["data"] == page["data"][1:]


async def test_the_same_items_twice_are_two() -> None:
    async with idle_harness() as harness:
        made = await make(harness, items=ITEMS)
        await harness.client.send(f"{CONVERSATIONS}/{made}/items", {"items": ITEMS})
        found = (await items(harness, made))["data"]
        assert len(found) == len({item["id"] for item in found}) == 8


@pytest.mark.parametrize("order", ["asc", "desc", ""])
@pytest.mark.parametrize("limit", [1, 3, 4])
async def test_page_by_page(order: str, limit: int) -> None:
    async with idle_harness() as harness:
        made = await make(harness, items=ITEMS)
        expected = [item["id"] for item in (await items(harness, made))["data"]]
        found: list[str] = []
        while True:
            query = f"limit={limit}&after={found[-1] if found else ''}"
            page = await items(harness, made, query + (f"&order={order}" if order else ""))
            found += [item["id"] for item in page["data"]]
            if not page["has_more"]:
                break
        assert found == (expected if order == "asc" else expected[::-1])


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("", {"items": [{"type": "item_reference", "id": "x"}]}, "items[0].type"),
        ("", {"items": ["a"] * 21}, "items"),
        ("", {"items": "a"}, "items"),
        ("", {"metadata": {"a": 1}}, "metadata.a"),
        ("/conv", {"metadata": 1}, "metadata"),
        ("/conv", {}, "metadata"),
        ("/conv/items", {"items": []}, "items"),
        ("/conv/items", {}, "items"),
        ("/conv/items", {"items": [1]}, "items[0]"),
    ],
)
async def test_what_is_refused(path: str, body: Any, param: str) -> None:
    async with idle_harness() as harness:
        path = path.replace("conv", await make(harness))
        answer = await harness.client.send(f"{CONVERSATIONS}{path}", body)
        assert (answer.status, answer.error["param"]) == (400, param)


async def test_a_turn_reads_what_was_put_in() -> None:
    async with idle_harness() as harness:
        made = await make(harness, items=ITEMS)
        told = whole(await harness.client.send(RESPONSES, say("Go", conversation=made)))
        assert told["conversation"] == {"id": made}
        history = [(message.role, message.content) for message in harness.agents.turns[0].history]
        assert history == [
            ("user", "One"),
            ("assistant", ""),
            ("tool", "two"),
            ("assistant", "Three"),
        ]
        assert len((await items(harness, made))["data"]) == 6


async def test_a_conversation_by_name_can_be_looked_at() -> None:
    async with idle_harness() as harness:
        await harness.client.send(RESPONSES, say("Go", conversation="notes"))
        assert shown(await harness.client.get(f"{CONVERSATIONS}/notes"))["id"] == "notes"
        assert len((await items(harness, "notes"))["data"]) == 2


# -- one turn at a time --


@pytest.mark.parametrize(
    "first", [say(conversation="c", background=True), stream(conversation="c")]
)
async def test_two_turns_at_once(first: Any) -> None:
    pause = Pause()
    async with idle_harness(
        ScriptedAgentFactory([pause, Text("Hi")], is_async=True), max_runs=5
    ) as harness:
        async with harness.client.post(RESPONSES, first) as exchange:
            await pause.wait_reached()
            for body in (say(conversation="c"), stream(conversation={"id": "c"})):
                answer = await harness.client.send(RESPONSES, body)
                assert (answer.status, answer.error["code"]) == (409, "conversation_busy")
                assert answer.error["param"] == "conversation"
                assert answer.headers["retry-after"] == "1"
            pause.go()
            assert whole(await harness.client.send(RESPONSES, say(conversation="other")))
            assert whole(await harness.client.send(RESPONSES, say(conversation="c"), BOB))
            await exchange.end()
        await harness.until_idle()
        assert whole(await harness.client.send(RESPONSES, say(conversation="c")))
        assert len((await items(harness, "c"))["data"]) == 4


async def test_the_next_turn_may_begin_when_the_last_event_is_heard() -> None:
    """However long the agent takes to leave."""
    pause = Pause()
    async with idle_harness(
        ScriptedAgentFactory([Text("Hi"), pause, Text("!")], factory_pause=None)
    ) as harness:
        stubborn = Stubborn(harness)
        async with harness.client.post(RESPONSES, stream(conversation="c")) as exchange:
            response_id = await created(exchange)
            await pause.wait_reached()
            async with harness.client.open("POST", f"{RESPONSES}/{response_id}/cancel") as cancel:
                assert final(await exchange.end())["status"] == "cancelled"
                assert not cancel.over.is_set()
                answer = await harness.client.send(RESPONSES, say(conversation="conv_x"))
                assert answer.status == 404
                assert not harness.state.session_locks.locked
                stubborn.leave()
                assert (await cancel.end()).json["status"] == "cancelled"


class Stubborn:
    """Makes the agents of a harness ignore interrupts until they are told to leave."""

    def __init__(self, harness: AppHarness) -> None:
        self._pauses = [step for step in harness.agents.script if isinstance(step, Pause)]
        for pause in self._pauses:
            pause.wake = lambda: None  # type: ignore[method-assign]

    def leave(self) -> None:
        for pause in self._pauses:
            pause.go()


async def test_a_turn_that_never_began_leaves_the_conversation_free() -> None:
    async with idle_harness() as harness:
        refused = await harness.client.send(RESPONSES, say(conversation="conv_x"))
        assert refused.status == 404
        assert harness.is_idle
        harness.state.admission.is_draining = True
        assert (await harness.client.send(RESPONSES, say(conversation="c"))).status == 503
        harness.state.admission.is_draining = False
        assert whole(await harness.client.send(RESPONSES, say(conversation="c")))


async def test_a_client_that_left_early_leaves_the_conversation_free() -> None:
    pause = Pause()
    async with idle_harness(ScriptedAgentFactory([pause, Text("Hi")], is_async=True)) as harness:
        async with harness.client.post(RESPONSES, stream(conversation="c")) as exchange:
            exchange.stall()
            await pause.wait_reached()
        await wait_all_tasks_blocked()
        pause.go()
        assert whole(await harness.client.send(RESPONSES, say(conversation="c")))
        assert harness.ends == [("incomplete", "client_disconnected"), ("completed", "")]


async def test_what_is_not_stored_reads_a_conversation_and_adds_nothing() -> None:
    async with idle_harness() as harness:
        made = await make(harness, items=ITEMS)
        for headers in ({}, {"Idempotency-Key": "k"}):
            told = await harness.client.send(
                RESPONSES, say(conversation=made, store=False), headers
            )
            assert whole(told)["status"] == "completed"
        assert len(harness.agents.turns[0].history) == len(harness.agents.turns[1].history) == 4
        assert len((await items(harness, made))["data"]) == 4
