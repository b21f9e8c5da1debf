"""Approval requests as messages of a chat, when the next message reaches another node."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from hermes_trio.core.events import AnsweredBy, Choice, Text
from hermes_trio.core.outcome import Reason
from hermes_trio.runs import cluster
from tests.support.asgi import HttpResponse
from tests.support.chat_api import chunks, reason, said
from tests.support.fakes import CHAT, Ask, Pause, ScriptedAgentFactory, Step, ask, open_harness
from tests.support.runs_api import RUNS
from tests.support.shared_store import SharedMemoryStore
from tests.web.test_approval_replies import (
    CHAT_OF_ZOE,
    HEADER,
    QUESTION,
    SESSION,
    agents,
    content,
    decisions,
    send,
)
from tests.web.test_cluster import Nodes


@pytest.fixture(params=[True, False], ids=["notices", "blind"])
def store(request: pytest.FixtureRequest) -> SharedMemoryStore:
    return SharedMemoryStore(can_listen=request.param)


@asynccontextmanager
async def open_both(
    store: SharedMemoryStore, script: ScriptedAgentFactory | None = None, **more: Any
) -> AsyncIterator[Nodes]:
    """Two nodes with the same agent."""
    async with (
        open_harness(script or agents(), store=store, node="a", **more) as own,
        open_harness(agents(), store=store, node="b", **more) as other,
    ):
        yield Nodes(own, other, store)
        for harness in (own, other):
            await harness.until_idle()


@pytest.mark.parametrize(("word", "choice"), [("yes", Choice.ONCE), ("no", Choice.DENY)])
async def test_the_next_message_answers_on_any_node(
    store: SharedMemoryStore, word: str, choice: Choice
) -> None:
    async with open_both(store) as nodes:
        first = await send(nodes.own, "Delete x.")
        assert said(first) == f"Let me.\n\n{QUESTION}"
        second = await send(nodes.other, word)
        assert said(second) == "Done."
        assert reason(second) == "stop"
        assert chunks(second)[0]["id"] == chunks(first)[0]["id"]
        assert second.headers["x-hermes-session-id"] == first.headers["x-hermes-session-id"]
        assert decisions(nodes.own) == [(choice, AnsweredBy.CLIENT)]
        assert nodes.other.agents.turns == []
        assert nodes.own.ends == [("completed", "")]


async def test_replies_in_one_piece(store: SharedMemoryStore) -> None:
    async with open_both(store) as nodes:
        assert content(await nodes.own.client.send(CHAT, ask("Delete x."), CHAT_OF_ZOE)) == QUESTION
        second = await nodes.other.client.send(CHAT, ask("yes"), CHAT_OF_ZOE)
        assert content(second) == "Done."


async def test_a_named_session_is_answered_although_it_is_busy(store: SharedMemoryStore) -> None:
    headers = {HEADER: "replies", SESSION: "mine"}
    async with open_both(store, max_runs=1) as nodes:
        await send(nodes.own, "Delete x.", headers)
        assert said(await send(nodes.other, "yes", headers)) == "Done."


async def test_any_other_message_withdraws_the_question(store: SharedMemoryStore) -> None:
    async with open_both(store) as nodes:
        await send(nodes.own, "Delete x.")
        again = await send(nodes.other, "Rather not, tell me a joke")
        assert said(again).endswith(QUESTION)
        assert decisions(nodes.own) == []
        assert nodes.own.ends == [("cancelled", str(Reason.STOP_REQUESTED))]
        assert nodes.other.agents.turns[-1].message == "Rather not, tell me a joke"
        assert said(await send(nodes.own, "no")) == "Done."
        assert decisions(nodes.other) == [(Choice.DENY, AnsweredBy.CLIENT)]


async def test_nobody_else_answers(store: SharedMemoryStore) -> None:
    kim = {**CHAT_OF_ZOE, "X-OpenWebUI-User-Id": "kim"}
    async with open_both(store) as nodes:
        await send(nodes.own, "Delete x.")
        assert said(await send(nodes.other, "yes", kim)).endswith(QUESTION)
        assert decisions(nodes.own) == []
        await send(nodes.own, "no", kim)
        await send(nodes.other, "no")
        assert [len(decisions(node)) for node in (nodes.own, nodes.other)] == [1, 1]


async def test_one_question_after_another_on_alternating_nodes(store: SharedMemoryStore) -> None:
    script: list[Step] = [
        *(Ask("one"), Text("First. "), Ask("two"), Text("Second. ")),
        *(Ask("three"), Text("Third.")),
    ]
    async with open_both(store, agents(*script)) as nodes:
        assert "one" in said(await send(nodes.own, "Go"))
        second = said(await send(nodes.other, "yes"))
        assert second.startswith("First. ")
        assert "two" in second
        third = await nodes.other.client.send(CHAT, ask("yes"), CHAT_OF_ZOE)
        assert "three" in content(third)
        assert said(await send(nodes.own, "no")) == "Third."
        assert [choice for choice, _ in decisions(nodes.own)] == [*[Choice.ONCE] * 2, Choice.DENY]
        assert nodes.own.ends == [("completed", "")]


async def test_a_request_that_is_answered_before_the_reply_ends_does_not_end_it(
    store: SharedMemoryStore, autojump_clock: MockClock
) -> None:
    """The agent asks again, and someone answers through the API at the same moment."""
    pause, after = Pause(), Pause()
    script = agents(Ask("one"), pause, Ask("two"), after, Text("Done."))
    async with open_both(store, script) as nodes:
        await send(nodes.own, "Go")
        (run,) = (await nodes.own.client.get(RUNS)).json["data"]
        answers: list[HttpResponse] = []

        async def read() -> None:
            answers.append(await send(nodes.other, "yes"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            await pause.wait_reached()
            await trio.sleep(2 * cluster.RETRY_SECONDS)
            store.broken.add("send_command")  # the node cannot tell that its reply ends
            pause.go()
            await trio.sleep(2 * cluster.RETRY_SECONDS)
            told = await nodes.own.client.send(
                f"{RUNS}/{run['run_id']}/approval", {"choice": "once"}
            )
            assert told.status == 200
            store.broken.clear()
            await trio.sleep(2 * cluster.RETRY_SECONDS)
            after.go()
        assert said(answers[0]) == "Done."


async def test_a_client_that_leaves_the_other_node_ends_the_run(store: SharedMemoryStore) -> None:
    pause = Pause()
    async with open_both(store, agents(Ask("rm -r x"), Text("x"), pause, Text("y"))) as nodes:
        await send(nodes.own, "Delete x.")
        body = {**ask("yes"), "stream": True}
        async with nodes.other.client.post(CHAT, body, CHAT_OF_ZOE) as exchange:
            await exchange.content("x")
        await nodes.own.until_idle()
        assert nodes.own.ends == [("incomplete", "client_disconnected")]


async def test_a_choice_that_is_not_offered_leaves_the_question_open(
    store: SharedMemoryStore,
) -> None:
    async with open_both(store, agents(Ask("x", allow_permanent=False), Text("y"))) as nodes:
        await send(nodes.own, "Go")
        refused = await nodes.other.client.send(CHAT, ask("always"), CHAT_OF_ZOE)
        assert (refused.status, refused.error["code"]) == (400, "invalid_approval_choice")
        assert said(await send(nodes.other, "yes")) == "y"


async def test_a_node_that_does_not_answer(
    store: SharedMemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "COMMAND_SECONDS", 0.2)
    async with open_both(store) as nodes:
        await send(nodes.own, "Delete x.")
        store.broken.add("find_commands")
        for text in ("yes", "something else"):
            refused = await nodes.other.client.send(CHAT, ask(text), CHAT_OF_ZOE)
            assert (refused.status, refused.error["code"]) == (503, "run_unreachable")
        await send(nodes.own, "no")


async def test_no_answer_in_time(store: SharedMemoryStore, autojump_clock: MockClock) -> None:
    async with open_both(store) as nodes:
        await send(nodes.own, "Delete x.")
        await trio.sleep(3600)
        await nodes.own.until_idle()
        # Too late: it is a turn of its own.
        assert said(await send(nodes.other, "yes")).endswith(QUESTION)
        await send(nodes.own, "no")
