"""Sessions in Chat Completions: the headers that name them, what is kept, and who may see it."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from hermes_trio.core.events import Result, Text, ToolCompleted, ToolStarted
from tests.support.fakes import (
    CHAT,
    OTHER_KEY,
    AppHarness,
    BrokenStore,
    ask,
    ask_stream,
    bearer,
    make_harness,
)

ID, KEY = "X-Hermes-Session-Id", "X-Hermes-Session-Key"
BODIES = [ask, ask_stream]


def history(harness: AppHarness) -> list[tuple[str, Any]]:
    """What the last agent was told of the past."""
    return [(said.role, said.content) for said in harness.agents.turns[-1].history]


def derived(beginning: str) -> str:
    """The id of a session by its system prompt, a line break, and its first user message."""
    return f"api-{hashlib.sha256(beginning.encode()).hexdigest()[:16]}"


@pytest.mark.parametrize("body", BODIES)
async def test_a_named_session_continues_its_transcript(body: Any) -> None:
    harness = make_harness([Text("Answer")])
    first = await harness.client.send(CHAT, body("One"), {ID: "s-1"})
    messages = [{"role": "user", "content": "forged"}, {"role": "user", "content": "Two"}]
    await harness.client.send(CHAT, {**body(), "messages": messages}, {ID: "s-1"})
    assert first.headers["x-hermes-session-id"] == "s-1"
    assert harness.agents.turns[1].message == "Two"
    assert history(harness) == [("user", "One"), ("assistant", "Answer")]
    assert await harness.transcript("s-1") == [
        *history(harness),
        ("user", "Two"),
        ("assistant", "Answer"),
    ]


async def test_an_unknown_session_has_no_history() -> None:
    harness = make_harness()
    messages = [{"role": "user", "content": "One"}, {"role": "user", "content": "Two"}]
    answer = await harness.client.send(CHAT, {"messages": messages}, {ID: "never-seen"})
    assert answer.headers["x-hermes-session-id"] == "never-seen"
    assert history(harness) == []


@pytest.mark.parametrize("body", BODIES)
async def test_without_a_name_the_id_follows_from_the_beginning(body: Any) -> None:
    harness = make_harness()
    system = {"role": "system", "content": "Be brief."}
    first, reply = {"role": "user", "content": "One"}, {"role": "assistant", "content": "1"}
    turns = [[system, first], [system, first, reply, {"role": "user", "content": "Two"}]]
    answers = [await harness.client.send(CHAT, {**body(), "messages": said}) for said in turns]
    assert {answer.headers["x-hermes-session-id"] for answer in answers} == {
        derived("Be brief.\nOne")
    }
    assert history(harness) == [
        ("user", "One"),
        ("assistant", "1"),
    ]  # what the client sent, not what is stored


@pytest.mark.parametrize(
    ("system", "first"),
    [("Be brief.", "Two"), ("Be kind.", "One"), (None, "One"), ("Be brief.", ["One", "!"])],
)
async def test_another_beginning_is_another_session(system: str | None, first: object) -> None:
    harness = make_harness()
    known = derived("Be brief.\nOne")
    messages = [{"role": "system", "content": system}, {"role": "user", "content": first}]
    answer = await harness.client.send(CHAT, {"messages": messages})
    assert answer.headers["x-hermes-session-id"] != known
    assert answer.headers["x-hermes-session-id"].startswith("api-")


async def test_list_content_is_part_of_the_derived_id_as_text() -> None:
    harness = make_harness()
    image = {"type": "image_url", "image_url": {"url": "https://x.test/a.png"}}
    answer = await harness.client.send(CHAT, ask([image]))
    assert answer.headers["x-hermes-session-id"] == derived(f"\n{[image]}")


async def test_principals_do_not_see_each_other() -> None:
    harness = make_harness([Text("Answer")])
    await harness.client.send(CHAT, ask("Ann's secret"), {ID: "shared-name"})
    await harness.client.send(CHAT, ask("Bob asks"), {ID: "shared-name", **bearer(OTHER_KEY)})
    assert history(harness) == []
    assert harness.agents.turns[1].principal == "bob"
    assert await harness.transcript("shared-name", "ann") == [
        ("user", "Ann's secret"),
        ("assistant", "Answer"),
    ]
    assert await harness.transcript("shared-name", "bob") == [
        ("user", "Bob asks"),
        ("assistant", "Answer"),
    ]


async def test_tools_are_kept_in_the_transcript() -> None:
    harness = make_harness(
        [Text("Look."), ToolStarted("c", "t", {"a": 1}), ToolCompleted("c", "found"), Text("Done.")]
    )
    await harness.client.send(CHAT, ask("Go"), {ID: "s"})
    assert await harness.transcript("s") == [
        ("user", "Go"),
        ("assistant", "Look."),
        ("tool", "found"),
        ("assistant", "Done."),
    ]


@pytest.mark.parametrize("body", BODIES)
async def test_the_session_key_reaches_the_agent_and_is_echoed(body: Any) -> None:
    harness = make_harness()
    with_key = await harness.client.send(CHAT, body(), {KEY: " scope of ann/1 "})
    without = await harness.client.send(CHAT, body())
    assert with_key.headers["x-hermes-session-key"] == "scope of ann/1"
    assert "x-hermes-session-key" not in without.headers
    assert with_key.headers["x-hermes-session-id"] == without.headers["x-hermes-session-id"]
    assert [turn.session_key for turn in harness.agents.turns] == ["scope of ann/1", ""]


@pytest.mark.parametrize("name", [ID, KEY])
async def test_other_alphabets_come_back_as_they_were_sent(name: str) -> None:
    harness = make_harness()
    sent = "kůň".encode().decode("latin-1")
    answer = await harness.client.send(CHAT, ask(), {name: sent})
    assert answer.headers[name.lower()] == sent
    assert "kůň" in (harness.agents.turns[0].session_id, harness.agents.turns[0].session_key)


BAD = ["a\rb", "a\x00b", "a\x7fb", "x" * 257, "\xff"]
BAD_IDS = ["../etc", "a/b", "a\\b", "C:x", "a..b"]


@pytest.mark.parametrize(
    ("name", "value"), [*((n, v) for n in (ID, KEY) for v in BAD), *((ID, v) for v in BAD_IDS)]
)
@pytest.mark.parametrize("body", BODIES)
async def test_bad_names_are_refused_by_header(body: Any, name: str, value: str) -> None:
    harness = make_harness()
    answer = await harness.client.send(CHAT, body(), {name: value})
    assert answer.status == 400
    assert answer.error["param"] == name
    assert harness.agents.turns == []
    assert harness.is_idle


@pytest.mark.parametrize("value", ["x" * 256, "a b", "ann:1", "0"])
async def test_good_names_pass(value: str) -> None:
    harness = make_harness()
    answer = await harness.client.send(CHAT, ask(), {ID: value, KEY: value})
    assert answer.headers["x-hermes-session-id"] == value
    assert answer.headers["x-hermes-session-key"] == value


async def test_an_agent_may_move_to_another_session() -> None:
    harness = make_harness([Text("Moved")], Result(session_id="s-2"))
    answer = await harness.client.send(CHAT, ask("Go"), {ID: "s-1"})
    assert answer.headers["x-hermes-session-id"] == "s-2"
    assert await harness.transcript("s-2") == [("user", "Go"), ("assistant", "Moved")]
    assert await harness.transcript("s-1") == []


async def test_a_store_that_cannot_be_read_is_a_503() -> None:
    harness = make_harness(store=BrokenStore("read"))
    answer = await harness.client.send(CHAT, ask(), {ID: "s"})
    assert answer.status == 503
    assert answer.error["code"] == "session_db_unavailable"
    assert answer.headers["retry-after"] == "1"
    assert harness.agents.turns == []
    assert harness.is_idle
