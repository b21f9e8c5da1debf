"""Approval requests as items: a response ends with them, and the next one brings the answers.

The agent keeps waiting in between, so that nothing is done twice and nothing is lost.
"""

from __future__ import annotations

from typing import Any

import pytest
import trio
from attrs import evolve
from trio.testing import MockClock, wait_all_tasks_blocked

from hermes_trio.core.approvals import Decision
from hermes_trio.core.events import (
    AnsweredBy,
    Choice,
    ClientCall,
    Result,
    Text,
    ToolCompleted,
    ToolStarted,
)
from hermes_trio.core.messages import Usage
from hermes_trio.runs.supervisor import open_supervisor
from hermes_trio.runs.tracker import RunLimits
from hermes_trio.web.app import attach_state
from tests.support.asgi import HttpResponse, real_timeout
from tests.support.fakes import AppHarness, Ask, Pause, ScriptedAgentFactory, Step, make_harness
from tests.support.responses_api import (
    BOB,
    CONVERSATIONS,
    RESPONSES,
    as_text,
    final,
    get,
    idle_harness,
    say,
    stream,
    text_of,
    whole,
)

Json = dict[str, Any]
ITEMS = {"X-Hermes-Tool-Items": "mcp_call", "X-Hermes-Approvals": "items"}
SCRIPT: tuple[Step, ...] = (
    Text("Let me. "),
    ToolStarted("c1", "terminal", {"command": "rm -r x"}),
    Ask("rm -r x", ("rm",), "c1"),
    ToolCompleted("c1", "gone"),
    Text("Done."),
)
GRANTED = Decision(Choice.ONCE, AnsweredBy.CLIENT)
DENIED = Decision(Choice.DENY, AnsweredBy.CLIENT)


def agents(
    *script: Step, is_async: bool = True, end: Result | str | None = None
) -> ScriptedAgentFactory:
    return ScriptedAgentFactory(script or SCRIPT, end, is_async=is_async)


async def asked(harness: AppHarness, body: Json | None = None, **headers: str) -> Json:
    """Return a response that ends with approval requests."""
    answer = await harness.client.send(RESPONSES, body or say(), {**ITEMS, **headers})
    told = final(answer) if (body or {}).get("stream") else whole(answer)
    assert (told["status"], told["output"][-1]["type"]) == ("completed", "mcp_approval_request")
    return told


def reply(request: Json | str, approve: bool = True, **more: Any) -> Json:
    request_id = request if isinstance(request, str) else request["id"]
    return {
        "type": "mcp_approval_response",
        "approval_request_id": request_id,
        "approve": approve,
        **more,
    }


async def answered(harness: AppHarness, *items: Json, **more: Any) -> HttpResponse:
    return await harness.client.send(RESPONSES, say([*items], **more), ITEMS)


def kinds(response: Json) -> list[str]:
    return [item["type"] for item in response["output"]]


@pytest.mark.parametrize("is_async", [True, False], ids=["task", "thread"])
@pytest.mark.parametrize("body", [say, stream])
async def test_a_response_ends_with_the_request_and_the_next_one_continues(
    body: Any, is_async: bool
) -> None:
    end = Result("", usage=Usage(5, 7))
    async with idle_harness(agents(is_async=is_async, end=end)) as harness:
        first = await asked(harness, body())
        assert kinds(first) == ["message", "mcp_approval_request"]
        request = first["output"][-1]
        assert request == {
            "id": request["id"],
            "type": "mcp_approval_request",
            "server_label": "hermes",
            "name": "terminal",
            "arguments": '{"command": "rm -r x"}',
        }
        assert request["id"].startswith("mcpr_")
        assert await get(harness, first["id"]) == as_text(first)
        assert harness.agents.decisions == [], "the agent waits"

        chain = {"previous_response_id": first["id"]}
        answer = await harness.client.send(RESPONSES, body([reply(request)], **chain), ITEMS)
        second = final(answer) if body is stream else whole(answer)
        assert kinds(second) == ["mcp_call", "message"]
        call = second["output"][0]
        assert (call["name"], call["output"], call["status"]) == ("terminal", "gone", "completed")
        assert call["approval_request_id"] == request["id"]
        assert (text_of(second), second["usage"]["total_tokens"]) == ("Done.", 12)
        assert second["previous_response_id"] == first["id"]
        assert await get(harness, second["id"]) == as_text(second)
        assert second["completed_at"] - second["created_at"] < 60
    assert harness.agents.decisions == [GRANTED]
    assert len(harness.agents.turns) == 1, "one agent for both"
    assert harness.ends == [("completed", "")] * 2


async def test_streams_are_replayed_byte_for_byte() -> None:
    async with idle_harness(agents()) as harness:
        first = await harness.client.send(RESPONSES, stream(), ITEMS)
        request = final(first)["output"][-1]
        second = await harness.client.send(RESPONSES, stream([reply(request)]), ITEMS)
        for answer in (first, second):
            path = f"{RESPONSES}/{final(answer)['id']}?stream=true"
            assert (await harness.client.get(path)).body == answer.body


async def test_a_refusal_with_its_reason() -> None:
    async with idle_harness(agents()) as harness:
        first = await asked(harness)
        answer = reply(first["output"][-1], approve=False, reason="Too dangerous.")
        second = whole(await answered(harness, answer))
        items = (await harness.client.get(f"{RESPONSES}/{second['id']}/input_items")).json["data"]
        assert [(item["approve"], item["reason"]) for item in items] == [(False, "Too dangerous.")]
    assert harness.agents.decisions == [DENIED]


async def test_the_transcript_has_everything_once() -> None:
    async with idle_harness(agents()) as harness:
        first = await asked(harness, say("Remove x."))
        chain = {"previous_response_id": first["id"]}
        second = whole(await answered(harness, reply(first["output"][-1]), **chain))
        harness.agents.script = [Text("Yes.")]
        chain = {"previous_response_id": second["id"]}
        await harness.client.send(RESPONSES, say("Is it gone?", **chain), ITEMS)
        turn = harness.agents.turns[-1]
        assert [(message.role, message.content) for message in turn.history] == [
            ("user", "Remove x."),
            ("assistant", "Let me. "),
            ("tool", "gone"),
            ("assistant", "Done."),
        ]
        assert [call.name for call in turn.history[1].tool_calls] == ["terminal"]


async def test_clients_that_send_the_history_along() -> None:
    """The Agents SDK does, with the request in it; the AI SDK refers to the request."""
    for by_reference in (True, False):
        async with idle_harness(agents()) as harness:
            first = await asked(harness)
            items = [*first["output"]]
            if by_reference:
                items = [{"type": "item_reference", "id": item["id"]} for item in items]
            user = {"role": "user", "content": "Hi"}
            request = first["output"][-1]
            second = whole(await answered(harness, user, *items, reply(request)))
            assert text_of(second) == "Done."
            assert len(harness.agents.turns) == 1
            # And in the next turn everything again.
            harness.agents.script = [Text("Yes.")]
            more = [*first["output"], reply(request), *second["output"], "And now?"]
            third = whole(await harness.client.send(RESPONSES, say([user, *more]), ITEMS))
            assert text_of(third) == "Yes."
            turn = harness.agents.turns[-1]
            assert turn.message == "And now?"
            roles = [message.role for message in turn.history]
            assert roles == ["user", "assistant", "tool", "assistant"]


async def test_in_a_conversation() -> None:
    async with idle_harness(agents()) as harness:
        made = (await harness.client.send(CONVERSATIONS, {})).json
        first = await asked(harness, say("Remove x.", conversation=made["id"]))
        answer = reply(first["output"][-1])
        await answered(harness, answer, conversation=made["id"])
        path = f"{CONVERSATIONS}/{made['id']}/items?order=asc"
        items = (await harness.client.get(path)).json["data"]
        assert [item["type"] for item in items] == [
            "message", "message", "mcp_approval_request", "mcp_approval_response", "mcp_call", "message",
        ]  # fmt: skip
        harness.agents.script = [Text("Yes.")]
        await harness.client.send(RESPONSES, say("Gone?", conversation=made["id"]), ITEMS)
        roles = [message.role for message in harness.agents.turns[-1].history]
        assert roles == ["user", "assistant", "tool", "assistant"]


async def test_without_storing() -> None:
    async with idle_harness(agents()) as harness:
        first = await asked(harness, say(store=False))
        second = whole(await answered(harness, reply(first["output"][-1]), store=False))
        assert text_of(second) == "Done."
        for response in (first, second):
            assert (await harness.client.get(f"{RESPONSES}/{response['id']}")).status == 404


TWO: tuple[Step, ...] = (
    ToolStarted("c1", "terminal", {"command": "rm -r x"}),
    Ask("rm -r x", (), "c1"),
    ToolCompleted("c1", "gone"),
    Ask("mail the boss"),
    Text("Done."),
)


async def test_one_request_after_another() -> None:
    async with idle_harness(agents(*TWO)) as harness:
        first = await asked(harness)
        second = whole(await answered(harness, reply(first["output"][-1])))
        assert kinds(second) == ["mcp_call", "mcp_approval_request"]
        request = second["output"][-1]
        # No call asks for this one, so it stands for itself.
        assert request["name"] == "approval"
        assert "mail the boss" in request["arguments"]
        assert await get(harness, second["id"]) == second
        third = whole(await answered(harness, reply(request, approve=False)))
        assert (kinds(third), text_of(third)) == (["message"], "Done.")
    assert harness.agents.decisions == [GRANTED, DENIED]


class Parallel(ScriptedAgentFactory):
    """Two calls that ask at the same time, and one that does not ask."""

    def factory(self, context: Any) -> Any:
        self.turns.append(context.turn)
        return self

    async def run(self, turn: Any, emitter: Any) -> None:
        async def call(name: str, asks: bool) -> None:
            await emitter.tool_started(name, name, {})
            if asks:
                self.decisions.append(await emitter.ask(name, "", (), name))
            else:
                await emitter.tool_output(name, "half")
            await emitter.tool_completed(name, f"{name} done")

        async with trio.open_nursery() as nursery:
            for name in ("a", "b", "quiet"):
                nursery.start_soon(call, name, name != "quiet")
        await emitter.text("All done.")


async def test_requests_of_parallel_calls() -> None:
    async with idle_harness(Parallel(())) as harness:
        first = await asked(harness)
        assert sorted(kinds(first)) == ["mcp_approval_request"] * 2 + ["mcp_call"]
        assert first["output"][0]["output"] == "quiet done", "the other call has its result"
        assert await get(harness, first["id"]) == first
        requests = {item["name"]: item for item in first["output"][1:]}
        # Answering one of them is enough to go on; the other one is asked again.
        second = whole(await answered(harness, reply(requests["b"])))
        assert kinds(second) == ["mcp_call", "mcp_approval_request"]
        assert second["output"][1] == requests["a"]
        assert await get(harness, second["id"]) == second
        third = whole(await answered(harness, reply(requests["a"])))
        assert (kinds(third), text_of(third)) == (["mcp_call", "message"], "All done.")
    assert harness.agents.decisions == [GRANTED, GRANTED]


async def test_both_answers_at_once() -> None:
    async with idle_harness(Parallel(())) as harness:
        first = await asked(harness)
        requests = [item for item in first["output"] if item["type"] == "mcp_approval_request"]
        second = whole(await answered(harness, *map(reply, requests)))
        assert text_of(second) == "All done."
    assert len(harness.agents.decisions) == 2


# -- how it is chosen --

HOSTED = {"type": "mcp", "server_label": "hermes", "server_url": "http://x", "headers": None}


@pytest.mark.parametrize(
    ("headers", "tools", "expected"),
    [
        ({}, [HOSTED], True),
        ({}, [{**HOSTED, "require_approval": "always"}], True),
        ({}, [{**HOSTED, "require_approval": "never"}], False),
        ({}, [{**HOSTED, "server_label": "other"}], False),
        ({}, [{"type": "function", "name": "f"}], False),
        ({"X-Hermes-Approvals": "events"}, [HOSTED], False),
        ({"X-Hermes-Approvals": "ITEMS"}, [], True),
    ],
)
async def test_by_header_or_by_the_tools(
    headers: dict[str, str], tools: list[Json], expected: bool
) -> None:
    async with idle_harness(agents()) as harness:
        answer = await harness.client.send(RESPONSES, say(tools=tools), {**headers})
        is_last = answer.json["output"][-1]["type"] == "mcp_approval_request"
        assert is_last == expected
        if expected:
            await answered(harness, reply(answer.json["output"][-1]))
    assert [decision.by for decision in harness.agents.decisions] == [
        AnsweredBy.CLIENT if expected else AnsweredBy.NOBODY
    ]


async def test_an_unknown_choice_is_refused() -> None:
    async with idle_harness(agents()) as harness:
        answer = await harness.client.send(RESPONSES, say(), {"X-Hermes-Approvals": "both"})
        assert (answer.status, answer.error["code"]) == (400, "invalid_approvals")


@pytest.mark.parametrize("form", ["function_call", "hidden"])
async def test_with_other_forms_of_tool_calls(form: str) -> None:
    async with idle_harness(agents()) as harness:
        first = await asked(harness, None, **{"X-Hermes-Tool-Items": form})
        second = whole(await answered(harness, reply(first["output"][-1])))
        shown = ["function_call", "function_call_output"] if form == "function_call" else []
        assert kinds(second) == [*shown, "message"], "in the form of the response before"


async def test_a_turn_without_requests_is_like_any_other() -> None:
    script = (ToolStarted("c", "terminal", {}), ToolCompleted("c", "ran"), Text("Done."))
    async with idle_harness(agents(*script)) as harness:
        told = final(await harness.client.send(RESPONSES, stream(), ITEMS))
        assert kinds(told) == ["mcp_call", "message"]
        assert told["output"][0]["approval_request_id"] is None


async def test_a_client_call_beside_a_request() -> None:
    script = (*SCRIPT[:2], ClientCall("k", "lookup", "{}"), *SCRIPT[2:])
    async with idle_harness(agents(*script)) as harness:
        first = await asked(harness)
        assert kinds(first) == ["message", "function_call", "mcp_approval_request"]
        await answered(harness, reply(first["output"][-1]))


# -- what can go wrong --


async def refused(harness: AppHarness, *items: Any, **more: Any) -> tuple[Any, Any]:
    answer = await harness.client.send(RESPONSES, say([*items]), {**ITEMS, **more})
    assert answer.status == 400, answer.body
    return answer.error["param"], answer.error["code"]


async def test_answers_that_nobody_waits_for() -> None:
    place = ("input[0].approval_request_id", "approval_not_pending")
    async with idle_harness(agents()) as harness:
        assert await refused(harness, reply("mcpr_unknown")) == place
        first = await asked(harness)
        answer = reply(first["output"][-1])
        assert await refused(harness, answer, **BOB) == place, "only who was asked can answer"
        assert (await refused(harness, answer, "And a message"))[1] == "approval_not_last"
        assert whole(await answered(harness, answer))["status"] == "completed"
        assert await refused(harness, answer) == place
        assert await refused(harness, {**answer, "approve": "yes"}) == ("input[0].approve", None)


async def test_another_user_of_the_same_key_cannot_answer() -> None:
    async with idle_harness(agents()) as harness:
        first = await asked(harness, None, **{"X-OpenWebUI-User-Id": "ann"})
        answer = reply(first["output"][-1])
        other = {"X-OpenWebUI-User-Id": "bob"}
        assert (await refused(harness, answer, **other))[1] == "approval_not_pending"
        assert text_of(whole(await answered(harness, answer))) == "Done."


async def test_of_two_answers_at_once_one_wins() -> None:
    pause = Pause()
    script = (*SCRIPT[:3], pause, *SCRIPT[3:])
    async with idle_harness(agents(*script)) as harness:
        first = await asked(harness)
        answer = stream([reply(first["output"][-1])])
        async with harness.client.post(RESPONSES, answer, ITEMS) as exchange:
            await pause.wait_reached()
            assert (await refused(harness, reply(first["output"][-1])))[1] == "approval_not_pending"
            pause.go()
            assert text_of(final(await exchange.end())) == "Done."


async def test_the_answer_needs_no_slot_of_its_own() -> None:
    async with idle_harness(agents(), max_runs=1) as harness:
        first = await asked(harness)
        full = await harness.client.send(RESPONSES, say(), ITEMS)
        assert full.status == 429, "the agent that waits has the only slot"
        assert text_of(whole(await answered(harness, reply(first["output"][-1])))) == "Done."
        await harness.until_idle()
        await answered(harness, reply((await asked(harness))["output"][-1]))


async def test_an_agent_that_nobody_continues_is_stopped(autojump_clock: MockClock) -> None:
    limits = RunLimits(approval=60.0)
    async with idle_harness(agents(), limits=limits) as harness:
        first = await asked(harness)
        await trio.sleep(59)
        assert harness.state.admission.in_use == 1
        await trio.sleep(2)
        assert harness.is_idle
        code = (await refused(harness, reply(first["output"][-1])))[1]
        assert code == "approval_not_pending"
        assert (await get(harness, first["id"]))["status"] == "completed"
    assert harness.agents.exits == ["Cancelled"]
    assert harness.agents.decisions == []


@pytest.mark.parametrize("is_async", [True, False], ids=["task", "thread"])
async def test_stopping_the_next_response_stops_the_agent(is_async: bool) -> None:
    pause = Pause()
    script = (*SCRIPT[:3], pause, *SCRIPT[3:])
    async with idle_harness(agents(*script, is_async=is_async)) as harness:
        first = await asked(harness)
        body = say([reply(first["output"][-1])], background=True)
        second = (await harness.client.send(RESPONSES, body, ITEMS)).json
        await pause.wait_reached()
        path = f"{RESPONSES}/{second['id']}/cancel"
        told = (await harness.client.get(path, method="POST")).json
        assert told["status"] == "cancelled"
        assert kinds(told) == ["mcp_call"]
        assert told["output"][0]["status"] == "incomplete"
    assert len(harness.agents.exits) == 1
    assert harness.ends[-1] == ("cancelled", "stop_requested")


async def test_a_client_that_leaves_before_the_request_ends_the_run() -> None:
    pause = Pause()
    async with idle_harness(agents(pause, *SCRIPT)) as harness:
        async with harness.client.post(RESPONSES, stream(), ITEMS) as exchange:
            await exchange.frame()
            await pause.wait_reached()
        await harness.until_idle()
    assert harness.agents.exits == ["Cancelled"]
    assert harness.ends == [("incomplete", "client_disconnected")]


async def test_a_client_that_leaves_after_the_request_does_not_stop_the_agent() -> None:
    async with idle_harness(agents()) as harness:
        async with harness.client.post(RESPONSES, stream(), ITEMS) as exchange:
            first = final(await exchange.end())
        await wait_all_tasks_blocked()
        assert text_of(whole(await answered(harness, reply(first["output"][-1])))) == "Done."


async def test_deleting_the_response_stops_the_agent() -> None:
    async with idle_harness(agents()) as harness:
        first = await asked(harness)
        await harness.client.get(f"{RESPONSES}/{first['id']}", method="DELETE")
        await harness.until_idle()
    assert harness.agents.exits == ["Cancelled"]


async def test_the_end_of_the_server_stops_the_agent() -> None:
    harness = make_harness(agents())
    with real_timeout():
        async with open_supervisor(harness.state.services) as supervisor:
            attach_state(harness.app, evolve(harness.state, supervisor=supervisor))
            await asked(harness)
    assert harness.agents.exits == ["Cancelled"]
    assert harness.is_idle
