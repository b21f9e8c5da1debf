"""References in the input of a turn: to stored items of the same principal, and to nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from hermes_trio.core.events import ClientCall, Reasoning, Text, ToolCompleted, ToolStarted
from tests.support.fakes import AppHarness, Step
from tests.support.responses_api import BOB, CONVERSATIONS, RESPONSES, idle_harness, say

MCP = {"X-Hermes-Tool-Items": "mcp_call"}
# One item of each kind: reasoning, message, mcp_call, function_call.
SCRIPT: tuple[Step, ...] = (
    Reasoning("Let me see."),
    Text("Looking."),
    ToolStarted("c1", "terminal", {"command": "ls"}),
    ToolCompleted("c1", "a b"),
    ClientCall("c2", "lookup", "{}"),
)
RESULT = {"type": "function_call_output", "call_id": "c2", "output": "found"}


def reference(item: dict[str, Any]) -> dict[str, str]:
    return {"type": "item_reference", "id": item["id"]}


async def first_turn(harness: AppHarness) -> list[dict[str, Any]]:
    """Return the items of a first turn, its input included."""
    answer = (await harness.client.send(RESPONSES, say("What is here?"), MCP)).json
    listed = (await harness.client.get(f"{RESPONSES}/{answer['id']}/input_items")).json["data"]
    return [*listed, *answer["output"]]


@pytest.mark.parametrize("has_type", [True, False])
async def test_references_are_as_good_as_the_items(has_type: bool) -> None:
    async with idle_harness(SCRIPT) as harness:
        items = await first_turn(harness)
        kinds = ["message", "reasoning", "message", "mcp_call", "function_call"]
        assert [item["type"] for item in items] == kinds
        refs = [reference(item) if has_type else {"id": item["id"]} for item in items]
        referred = (await harness.client.send(RESPONSES, say([*refs, RESULT]), MCP)).json
        await harness.client.send(RESPONSES, say([*items, RESULT]), MCP)
        _, by_reference, in_full = harness.agents.turns
        assert by_reference.message == in_full.message == ""
        roles = [message.role for message in by_reference.history]
        assert roles == ["user", "assistant", "tool", "tool"]
        # The call id of an ``mcp_call`` that is sent in full is made up: its id is not kept.
        contents = [message.content for message in by_reference.history]
        assert contents == [message.content for message in in_full.history]
        assert contents[2:] == ["a b", "found"]

        path = f"{RESPONSES}/{referred['id']}/input_items?order=asc"
        shown = (await harness.client.get(path)).json["data"]
        assert shown[:-1] == items, "with the ids that they have"


async def test_references_work_turn_after_turn() -> None:
    async with idle_harness([Text("Yes.")]) as harness:
        items: list[dict[str, Any]] = []
        for n in range(4):
            body = say([*map(reference, items), {"role": "user", "content": f"Question {n}"}])
            answer = (await harness.client.send(RESPONSES, body)).json
            path = f"{RESPONSES}/{answer['id']}/input_items?order=asc"
            listed = (await harness.client.get(path)).json["data"]
            assert listed[:-1] == items
            items = [*listed, *answer["output"]]
        said = [message.content for message in harness.agents.turns[-1].history]
        assert said == ["Question 0", "Yes.", "Question 1", "Yes.", "Question 2", "Yes."]


async def test_a_reference_to_the_last_message_is_a_question() -> None:
    async with idle_harness([Text("Yes.")]) as harness:
        asked, _ = await first_turn(harness)
        answer = await harness.client.send(RESPONSES, say([reference(asked)]))
        assert answer.status == 200
        assert harness.agents.turns[-1].message == "What is here?"


async def test_instructions_may_be_referred_to() -> None:
    async with idle_harness([Text("Yes.")]) as harness:
        asked = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
        first = (await harness.client.send(RESPONSES, say(asked))).json
        path = f"{RESPONSES}/{first['id']}/input_items?order=asc"
        items = (await harness.client.get(path)).json["data"]
        await harness.client.send(RESPONSES, say([*map(reference, items)]))
        assert harness.agents.turns[-1].instructions == "Be brief."


async def test_items_of_a_conversation() -> None:
    async with idle_harness([Text("Yes.")]) as harness:
        said = {"items": [{"role": "user", "content": "Blue."}]}
        made = (await harness.client.send(CONVERSATIONS, said)).json
        path = f"{CONVERSATIONS}/{made['id']}/items"
        [item] = (await harness.client.get(path)).json["data"]
        await harness.client.send(RESPONSES, say([reference(item), "Which colour?"]))
        assert [message.content for message in harness.agents.turns[-1].history] == ["Blue."]
        refused = await harness.client.send(path, {"items": [reference(item)]})
        assert (refused.status, refused.error["param"]) == (400, "items[0].type")


async def refused(harness: AppHarness, body: Any, headers: dict[str, str] | None = None) -> str:
    """Return what is said about a reference that leads nowhere."""
    turns = len(harness.agents.turns)
    answer = await harness.client.send(RESPONSES, body, headers or {})
    assert (answer.status, answer.error["code"]) == (400, "item_not_found")
    assert answer.error["param"] == "input[1]"
    assert len(harness.agents.turns) == turns
    return str(answer.error["message"])


async def test_an_unknown_reference_is_named() -> None:
    async with idle_harness() as harness:
        body = say(["Hi", {"type": "item_reference", "id": "msg_unknown"}])
        assert "msg_unknown" in await refused(harness, body)


async def test_items_of_another_principal_are_unknown() -> None:
    async with idle_harness([Text("Yes.")]) as harness:
        for item in await first_turn(harness):
            assert item["id"] in await refused(harness, say(["Hi", reference(item)]), BOB)


async def test_items_of_a_deleted_response_are_unknown() -> None:
    async with idle_harness([Text("Yes.")]) as harness:
        answer = (await harness.client.send(RESPONSES, say())).json
        await harness.client.get(f"{RESPONSES}/{answer['id']}", method="DELETE")
        await refused(harness, say(["Hi", reference(answer["output"][0])]))


async def test_items_that_were_not_stored_are_unknown() -> None:
    async with idle_harness([Text("Yes.")]) as harness:
        answer = (await harness.client.send(RESPONSES, say(store=False))).json
        await refused(harness, say(["Hi", reference(answer["output"][0])]))


async def test_runs_take_references_too() -> None:
    async with idle_harness([Text("Yes.")]) as harness:
        asked, said = await first_turn(harness)
        body = {"input": [reference(asked), reference(said), "And?"]}
        assert (await harness.client.send("/v1/runs", body)).status == 202
        await harness.until_idle()
        history = harness.agents.turns[-1].history
        assert [message.content for message in history] == ["What is here?", "Yes."]
        refused = await harness.client.send("/v1/runs", {"input": [reference(said)]})
        assert (refused.status, refused.error["param"]) == (400, "input")


async def test_a_session_that_follows_from_the_beginning_stays_the_same() -> None:
    """The AI SDK sends system and user messages in full, and refers to the others."""
    async with idle_harness([Text("Yes.")]) as harness:

        async def session_of(*items: Any) -> str:
            answer = await harness.client.send(RESPONSES, say([*items], prompt_cache_key="k"))
            assert answer.status == 200
            replies.append(answer.json["output"][0])
            return str(answer.headers["x-hermes-session-id"])

        replies: list[dict[str, Any]] = []
        system = {"role": "system", "content": "Be brief."}
        first = await session_of(system, "Hi")
        assert await session_of(system, "Hi", reference(replies[0]), "And?") == first
        assert await session_of(system, "Ho", reference(replies[0]), "And?") != first
        alone = await session_of(reference(replies[0]), "And?")
        assert await session_of(reference(replies[0]), "And?") != alone, "nothing to follow from"
