"""Turns through the whole server.

What clients get, what our store keeps, what the database of Hermes keeps.
"""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes_trio import Settings, create_app
from hermes_trio.agents.hermes import compat
from hermes_trio.core.messages import Message, ToolCall
from tests.hermes.conftest import CONFIGURATION
from tests.hermes.harness import serving
from tests.hermes.scripted_model import ScriptedAnswer, ScriptedCall, Upstream
from tests.support.fakes import CHAT, AppHarness, ask, ask_stream
from tests.support.sse import Frame

RESPONSES = "/v1/responses"
KEY = "key-kq7w-vzx2-mhp9"


def shell(call_id: str, command: str) -> ScriptedCall:
    return ScriptedCall(call_id, "terminal", {"command": command})


def three_turns() -> tuple[ScriptedAnswer, ...]:
    """Text; a tool between two texts; text again."""
    return (
        ScriptedAnswer(["One."], reasoning=["first"]),
        ScriptedAnswer(["Wait."], calls=[shell("c1", "echo two")]),
        ScriptedAnswer(["Two."]),
        ScriptedAnswer(["Three."]),
    )


OUTPUT = json.dumps({"output": "two", "exit_code": 0, "error": None})
EXACT = (
    Message("user", "first?"),
    Message("assistant", "One.", reasoning="first"),
    Message("user", "second?"),
    Message("assistant", "Wait.\n\n", (ToolCall("c1", "terminal", '{"command": "echo two"}'),)),
    Message("tool", OUTPUT, tool_call_id="c1", name="terminal"),
    Message("assistant", "Two."),
    Message("user", "third?"),
    Message("assistant", "Three."),
)


def stored_by_hermes(home: Path, session_id: str) -> list[tuple[str, str]]:
    """Who said what in the database of Hermes."""
    from hermes_state import SessionDB  # type: ignore[import-not-found] # noqa: PLC0415

    database = SessionDB(db_path=home / "state.db")
    try:
        found = database.get_messages_as_conversation(session_id)
    finally:
        database.close()
    return [(message["role"], message["content"]) for message in found]


# The same without the blank line that only those need who read one text after the other.
EXACT_THERE = [(message.role, str(message.content).rstrip("\n")) for message in EXACT]


def said_to_model(asked: dict[str, Any]) -> list[tuple[str, str]]:
    """What the model was told, without the system prompt."""
    messages = asked["messages"][1:]
    return [(message["role"], message["content"] or "") for message in messages]


async def test_three_turns_of_a_session(model: Upstream, home: Path) -> None:
    model.play(*three_turns())
    session = {"X-Hermes-Session-Id": "chained-chat"}
    async with serving(model) as harness:
        answers = [
            await harness.client.send(CHAT, ask(text), session)
            for text in ("first?", "second?", "third?")
        ]
        stored = await harness.store.load_messages("ann", "chained-chat")
    contents = [answer.json["choices"][0]["message"]["content"] for answer in answers]
    assert contents == ["One.", "Two.", "Three."]
    assert {answer.headers["x-hermes-session-id"] for answer in answers} == {"chained-chat"}
    assert stored == EXACT
    assert stored_by_hermes(home, "chained-chat") == EXACT_THERE
    assert said_to_model(model.requests[-1]) == EXACT_THERE[:-1]
    assert [answer.json["usage"]["total_tokens"] for answer in answers] == [18, 36, 18]


async def test_three_chained_responses(model: Upstream, home: Path) -> None:
    model.play(*three_turns())
    previous: dict[str, str] = {}
    async with serving(model) as harness:
        for text in ("first?", "second?", "third?"):
            answer = await harness.client.send(RESPONSES, {"input": text, **previous})
            assert answer.json["status"] == "completed"
            previous = {"previous_response_id": answer.json["id"]}
        session_id = harness.agents.turns[-1].session_id
        stored = await harness.store.load_history("ann", previous["previous_response_id"])
    assert {request.session_id for request in harness.agents.turns} == {session_id}
    assert stored == EXACT
    assert stored_by_hermes(home, session_id) == EXACT_THERE
    assert said_to_model(model.requests[-1]) == EXACT_THERE[:-1]


async def test_a_streamed_turn_shows_its_tool(model: Upstream) -> None:
    model.play(*three_turns()[1:3])
    async with serving(model) as harness:
        answer = await harness.client.send(CHAT, ask_stream("second?"))
    progress = [frame.json for frame in answer.frames if frame.event == "hermes.tool.progress"]
    assert [(each["toolCallId"], each["status"]) for each in progress] == [
        ("c1", "running"),
        ("c1", "completed"),
    ]
    assert progress[1]["result"] == OUTPUT


def without(monkeypatch: pytest.MonkeyPatch, *callbacks: str) -> None:
    """Let ``AIAgent`` have fewer callbacks, as other releases and runtimes of Hermes do."""
    made = compat.agent_class()

    def make(**kwargs: Any) -> Any:
        return made(**{name: value for name, value in kwargs.items() if name not in callbacks})

    monkeypatch.setattr(compat, "agent_class", lambda: make)


async def test_the_progress_callback_alone_shows_a_running_command(
    model: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without(monkeypatch, "tool_start_callback", "tool_complete_callback")
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    # The command ends when the test has seen that it runs.
    model.play(ScriptedAnswer(calls=[shell("c1", f"cat {fifo}")]), ScriptedAnswer(["Read."]))
    async with (
        serving(model) as harness,
        harness.client.post(CHAT, ask_stream("Read it")) as exchange,
    ):
        running = (await exchange.frame_where(status="running")).json
        await trio.to_thread.run_sync(fifo.write_text, "something")
        answer = await exchange.end()
    assert (running["tool"], running["label"]) == ("terminal", f"cat {fifo}")
    assert running["toolCallId"] not in ("c1", "call")
    ended = [frame.json for frame in answer.frames if frame.event == "hermes.tool.progress"][-1]
    assert (ended["toolCallId"], ended["status"]) == (running["toolCallId"], "completed")


async def test_without_the_progress_callback_a_call_is_no_error(
    model: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    without(monkeypatch, "tool_progress_callback")
    model.play(*three_turns()[1:3])
    async with serving(model) as harness:
        answer = await harness.client.send(CHAT, ask_stream("second?"))
    progress = [frame.json for frame in answer.frames if frame.event == "hermes.tool.progress"]
    assert [each["toolCallId"] for each in progress] == ["c1", "c1"]
    assert (progress[1]["result"], progress[1]["isError"]) == (OUTPUT, False)


async def test_parallel_calls_keep_the_ids_of_the_model_on_the_wire(
    model: Upstream, tmp_path: Path
) -> None:
    calls = []
    for number in range(4):
        path = tmp_path / f"{number}.txt"
        path.write_text(f"I am {number}")
        calls.append(ScriptedCall(f"c{number}", "read_file", {"path": str(path)}))
    model.play(ScriptedAnswer(calls=calls), ScriptedAnswer(["Read."]))
    async with serving(model) as harness:
        answer = await harness.client.send(CHAT, ask_stream("Read"))
    progress = [frame.json for frame in answer.frames if frame.event == "hermes.tool.progress"]
    ids = [f"c{number}" for number in range(4)]
    assert [each["toolCallId"] for each in progress] == ids * 2
    assert [each["label"] for each in progress[:4]] == [f"{number}.txt" for number in range(4)]


async def test_the_model_is_named_after_the_profile_as_hermes_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hermes_cli.profiles import (  # type: ignore[import-not-found] # noqa: PLC0415
        get_active_profile_name,
    )

    options = {"warm_up": False}
    settings = Settings(
        agent="hermes", api_key=KEY, store="memory:", data_dir=tmp_path, agent_options=options
    )
    for parts in (("profiles", "lucas"), ("elsewhere",), ("profiles", "No Id")):
        home = tmp_path.joinpath("root", *parts)
        home.mkdir(parents=True)
        (home / "config.yaml").write_text(CONFIGURATION)
        monkeypatch.setenv("HERMES_HOME", str(home))
        named_by_hermes = get_active_profile_name()
        async with create_app(settings).test_app() as running:
            client = running.test_client()
            answer = await client.get("/v1/models", headers={"Authorization": f"Bearer {KEY}"})
            (served,) = (await answer.get_json())["data"]
        unnamed = named_by_hermes in {"default", "custom"}
        assert served["id"] == ("hermes-agent" if unnamed else named_by_hermes)
    assert named_by_hermes == "custom"


async def test_a_client_that_leaves_ends_the_turn(model: Upstream, home: Path) -> None:
    hold = threading.Event()
    model.play(ScriptedAnswer(["Once upon"], hold=hold))
    async with serving(model) as harness:
        session = {"X-Hermes-Session-Id": "left"}
        async with harness.client.post(CHAT, ask_stream("A tale"), session) as exchange:
            await exchange.content("Once upon")
            began = trio.current_time()
        await until_idle(harness)
        assert trio.current_time() - began < 2
        assert await harness.transcript("left") == [("user", "A tale"), ("assistant", "Once upon")]
    hold.set()
    assert harness.ends == [("incomplete", "client_disconnected")]
    assert stored_by_hermes(home, "left")[:2] == [("user", "A tale"), ("assistant", "Once upon")]


async def until_idle(harness: AppHarness) -> None:
    with trio.fail_after(10):
        while not harness.is_idle:  # noqa: ASYNC110 - a thread tells nobody that it is gone
            await trio.sleep(0.005)


def asked_of(frame: Frame) -> dict[str, Any]:
    question: dict[str, Any] = frame.json["approval"]
    return question


async def test_somebody_is_asked_and_the_answer_holds_for_the_session(
    model: Upstream, tmp_path: Path
) -> None:
    victims = [tmp_path / name for name in "ab"]
    for victim in victims:
        victim.mkdir()
    calls = [ScriptedAnswer(calls=[shell("c1", f"rm -r {victim}")]) for victim in victims]
    model.play(calls[0], ScriptedAnswer(["Gone."]), calls[1], ScriptedAnswer(["Gone too."]))
    session = {"X-Hermes-Session-Id": "cleaning"}
    async with serving(model) as harness:
        async with harness.client.post(CHAT, ask_stream("Clean up"), session) as exchange:
            while (frame := await exchange.frame()).event != "hermes.approval.request":
                pass
            assert asked_of(frame)["toolCallId"] == "c1"
            told = await harness.client.send(
                f"/v1/runs/{frame.json['id']}/approval", {"choice": "session"}
            )
            assert told.json["resolved"] == 1
            first = await exchange.end()
        second = await harness.client.send(CHAT, ask_stream("The other too"), session)
    assert not any(victim.exists() for victim in victims)
    events = [[frame.event for frame in answer.frames if frame.event] for answer in (first, second)]
    assert events[0].count("hermes.approval.request") == 1
    assert events[1].count("hermes.approval.request") == 0


async def test_a_failure_is_one_for_the_client(model: Upstream) -> None:
    model.play(ScriptedAnswer(status=401))
    async with serving(model) as harness:
        answer = await harness.client.send(RESPONSES, {"input": "Hi"})
    assert answer.json["status"] == "failed"
    assert "scripted 401" in answer.json["error"]["message"]


async def test_a_session_of_the_built_in_server_goes_on(model: Upstream, home: Path) -> None:
    from hermes_state import SessionDB  # noqa: PLC0415

    database = SessionDB(db_path=home / "state.db")
    database.create_session("old-one", source="api_server")
    database.append_message("old-one", role="user", content="before?")
    database.append_message("old-one", role="assistant", content="Before.")
    database.close()
    model.play(ScriptedAnswer(["Now."]), ScriptedAnswer(["Later."]))
    session = {"X-Hermes-Session-Id": "old-one"}
    async with serving(model, adopt_sessions=True) as harness:
        await harness.client.send(CHAT, ask("now?"), session)
        await harness.client.send(CHAT, ask("later?"), session)
    assert said_to_model(model.requests[1]) == [
        ("user", "before?"),
        ("assistant", "Before."),
        ("user", "now?"),
        ("assistant", "Now."),
        ("user", "later?"),
    ]
