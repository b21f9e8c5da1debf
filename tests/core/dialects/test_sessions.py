"""The session dialect: its stream, its reply in one piece, its objects."""

from __future__ import annotations

import json
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_trio.core.changes import (
    CallEnded,
    CallStarted,
    Change,
    Ended,
    ReasoningAdded,
    TextAdded,
    ToolOutputAdded,
)
from hermes_trio.core.dialects.chat import AGENT_FAILED
from hermes_trio.core.dialects.sessions import (
    SessionCollector,
    SessionStream,
    frames_after,
    match_object,
    message_fields,
    message_object,
    session_object,
)
from hermes_trio.core.errors import ApiError
from hermes_trio.core.events import Event, Result, Verdict
from hermes_trio.core.messages import Message, ToolCall, Usage, transcript
from hermes_trio.core.outcome import Failure, Outcome, Reason, Status
from hermes_trio.core.sessions import Counters, Session, StoredMessage, build_preview, next_title
from hermes_trio.core.state import CallState
from hermes_trio.core.turn import Turn
from tests.support.session_stream_rules import (
    HEADER,
    Json,
    blocks_of,
    check_whole,
    events_of,
    kinds,
)
from tests.support.strategies import cuts, last_words, scripts
from tests.support.turn_rules import feed, played

DONE = Ended(Outcome(Status.COMPLETED), 2.0)
BEGAN = HEADER.stamp.created_at
HEAD = {"session_id", "run_id", "seq", "ts", "message_id"}


def rendered(*changes: Change) -> list[Json]:
    return check_whole(frames_after(HEADER, changes))


def bare(event: Json) -> Json:
    """What is not in every event."""
    return {key: value for key, value in event.items() if key not in HEAD}


def test_the_opening_is_two_whole_frames() -> None:
    assert SessionStream(HEADER).opening().decode() == (
        "event: run.started\nid: 1\n"
        'data: {"session_id": "s-1", "run_id": "run_1", "seq": 1, "ts": 1700000000.5,'
        ' "user_message": {"role": "user", "content": "Ahoj, kůň"}}\n\n'
        "event: message.started\nid: 2\n"
        'data: {"session_id": "s-1", "run_id": "run_1", "seq": 2, "ts": 1700000000.5,'
        ' "message": {"id": "msg_1", "role": "assistant"}}\n\n'
    )


CALL = {"tool_name": "terminal", "toolCallId": "c1", "preview": "ls", "args": {"command": "ls"}}


def test_every_kind_of_event() -> None:
    events = rendered(
        ReasoningAdded(0, "hm"),
        TextAdded(1, 'a "ü"\n'),
        CallStarted(2, "c1", "terminal", {"command": "ls"}, 0.25),
        ToolOutputAdded(2, "c1", "half"),
        CallEnded(2, "c1", "terminal", CallState.COMPLETED, "whole", False, 1.23456),
        TextAdded(3, "b"),
        TextAdded(3, "c"),
        Ended(Outcome(Status.COMPLETED, usage=Usage(3, 4)), 2.0),
    )
    assert [bare(event) for event in events[2:-2]] == [
        {"event": "tool.progress", "tool_name": "_thinking", "delta": "hm"},
        {"event": "assistant.delta", "delta": 'a "ü"\n'},
        {"event": "tool.started", **CALL},
        {"event": "tool.output", "tool_name": "terminal", "toolCallId": "c1", "delta": "half"},
        {
            "event": "tool.completed",
            **CALL,
            "duration": 1.235,
            "error": False,
            "result": "whole",
            "status": "completed",
        },
        {"event": "assistant.delta", "delta": "b"},
        {"event": "assistant.delta", "delta": "c"},
        {
            "event": "assistant.completed",
            "content": "bc",
            "completed": True,
            "partial": False,
            "interrupted": False,
        },
    ]
    done = bare(events[-2])
    assert (done["completed"], done["usage"]["total_tokens"]) == (True, 7)
    nothing = {"tool_call_id": None, "tool_calls": None, "tool_name": None, "reasoning": None}
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "terminal", "arguments": '{"command": "ls"}'},
    }
    asked = {"role": "assistant", "content": 'a "ü"\n', "tool_calls": [call], "reasoning": "hm"}
    result = {"role": "tool", "content": "whole", "tool_call_id": "c1", "tool_name": "terminal"}
    said = {"role": "assistant", "content": "bc"}
    assert done["messages"] == [{**nothing, **asked}, {**nothing, **result}, {**nothing, **said}]
    assert bare(events[-1]) == {"event": "done", "status": "completed"}
    assert [event["ts"] - BEGAN for event in events] == [0] * 4 + [0.25] * 2 + [
        pytest.approx(1.48456)
    ] * 3 + [2] * 3


def test_alphabets_stay_and_nothing_breaks_a_line() -> None:
    text = "é \u2028 \u2029 \x85 \r\n \ud800 \U0001f600"
    stream = frames_after(HEADER, [TextAdded(0, text), DONE])
    assert "é".encode() in stream
    assert "\U0001f600".encode() in stream
    assert b"\\ud800" in stream
    lines = stream.decode().splitlines()
    assert all(line == "" or line.startswith(("event: ", "id: ", "data: ")) for line in lines)
    assert check_whole(stream)[2]["delta"] == text


@pytest.mark.parametrize(
    ("messages", "content"),
    [
        ((), ""),
        ((Message("user", "x" * 50_000),), None),
        (
            (
                Message(
                    "user",
                    ({"type": "image_url", "image_url": {"url": "data:image/png;base64,eA=="}},),
                ),
            ),
            [{"type": "image_url", "image_url": {"url": "data:image/png;base64,eA=="}}],
        ),
    ],
)
def test_the_question_is_repeated_unless_it_is_long(messages: Any, content: Any) -> None:
    header = evolve(HEADER, messages=messages)
    event = check_whole(frames_after(header, [DONE]))[0]
    shown = event["user_message"]["content"]
    assert len(shown) == 16_000 if content is None else shown == content


def test_a_call_that_was_cut() -> None:
    cut = CallEnded(0, "c", "t", CallState.CANCELLED, "so far", True, 0.0)
    end = Ended(Outcome.from_cancellation(Reason.STOP_REQUESTED), 1.0)
    events = rendered(
        CallStarted(0, "c", "t", {}, 0.0), ToolOutputAdded(0, "c", "so far"), cut, end
    )
    over = events[4]
    assert (over["status"], over["error"], over["result"], over["preview"]) == (
        "cancelled",
        True,
        "so far",
        None,
    )
    [_, result] = events[-2]["messages"]
    assert result["content"] == "so far\n[cancelled before it ended]"


def test_long_values_are_shortened_so_that_every_line_can_be_read() -> None:
    huge = "\U0001f600" * 100_000
    ended = CallEnded(0, "c", "t", CallState.COMPLETED, huge, False, 0.0)
    stream = frames_after(
        evolve(HEADER, messages=(Message("user", huge),)),
        [
            CallStarted(0, "c", "t", {"command": huge}, 0.0),
            ToolOutputAdded(0, "c", huge),
            ended,
            DONE,
        ],
    )
    check_whole(stream)
    assert max(map(len, stream.split(b"\n"))) < 100 * 1024


def flags(completed: bool = False, interrupted: bool = False, reason: str = "") -> Json:
    why = {"reason": reason} if reason else {}
    return {"completed": completed, "partial": not completed, "interrupted": interrupted, **why}


OUTCOMES = [
    (Outcome(Status.COMPLETED), "completed", flags(completed=True)),
    (Outcome.from_result(Result("a", Verdict.TRUNCATED), is_empty=False), "completed", flags(reason="max_output_tokens")),
    (Outcome.from_result(Result("a", Verdict.INCOMPLETE), is_empty=False), "completed", flags(reason="agent_incomplete")),
    (Outcome.from_cancellation(Reason.STOP_REQUESTED), "cancelled", flags(interrupted=True, reason="stop_requested")),
    (Outcome.from_result(Result("", Verdict.FAILED, "no luck"), is_empty=False), "failed", flags(reason="agent_error")),
    (Outcome.from_cancellation(Reason.TIMEOUT), "failed", flags(reason="timeout")),
    (Outcome(Status.FAILED, Reason.SERVER_ERROR, Failure("", "x")), "failed", flags(reason="server_error")),
]  # fmt: skip


@pytest.mark.parametrize(("outcome", "status", "told"), OUTCOMES)
def test_every_outcome_is_told_honestly(outcome: Outcome, status: str, told: Json) -> None:
    call = (
        CallStarted(1, "c", "t", {}, 0.0),
        CallEnded(1, "c", "t", CallState.COMPLETED, "", False, 0.0),
    )
    events = rendered(TextAdded(0, "a"), *call, TextAdded(2, "b"), Ended(outcome, 1.0))
    assert bare(events[-1]) == {"event": "done", "status": status}
    if status == "failed":
        message = outcome.failure.message or "The run failed."
        assert bare(events[-2]) == {"event": "error", "message": message, **told}
    else:
        content = "b" if told["completed"] else "ab"
        assert bare(events[-3]) == {"event": "assistant.completed", "content": content, **told}
        assert told.items() <= events[-2].items()


def test_an_agent_that_moved_on() -> None:
    events = rendered(TextAdded(0, "a"), Ended(Outcome(Status.COMPLETED, session_id="s-2"), 1.0))
    assert [event["session_id"] for event in events] == ["s-1"] * 3 + ["s-2"] * 3


@given(scripts, cuts)
@settings(max_examples=60)
def test_a_run_cut_after_every_prefix_keeps_the_promises(
    script: list[Event], reason: Reason
) -> None:
    for length in range(len(script) + 1):
        check(*played(script[:length], reason))


@given(scripts, last_words)
def test_a_run_that_ended_by_itself_keeps_the_promises(script: list[Event], last: Event) -> None:
    turn = Turn()
    check(turn, feed(turn, [*script, last]))


def check(turn: Turn, changes: list[Change]) -> None:
    """Text and reasoning are neither lost nor doubled, and what is told at the end is what the transcript has."""
    stream = frames_after(HEADER, changes)
    events = check_whole(stream)
    said = "".join(event["delta"] for event in events if event["event"] == "assistant.delta")
    assert said == turn.text
    assert b"_secret" not in stream
    messages = [without_arguments(message_fields(message)) for message in transcript(turn.items)]
    for event in events:
        if event["event"] == "run.completed":
            assert [*map(without_arguments, event["messages"])] == json.loads(json.dumps(messages))
            assert event["completed"] is (turn.outcome.status is Status.COMPLETED)


def without_arguments(message: Json) -> Json:
    """Arguments are made fit to be shown: odd numbers and texts become others."""
    return {**message, "tool_calls": [call["id"] for call in message["tool_calls"] or ()]}


@given(scripts, st.one_of(last_words, cuts))
@settings(max_examples=60)
def test_a_stream_can_be_picked_up_after_every_event(script: list[Event], last: Any) -> None:
    turn = Turn()
    changes = feed(turn, script)
    changes += turn.cancel(last, 5.0) if isinstance(last, Reason) else turn.take(last)
    whole = frames_after(HEADER, changes)
    frames = [f"{block}\n\n".encode() for block in blocks_of(whole)]
    for number in range(len(frames) + 1):
        assert b"".join(frames[:number]) + frames_after(HEADER, changes, number) == whole


@given(scripts, cuts, st.integers(1, 9))
def test_a_client_that_is_ahead_of_the_log_is_told_the_end(
    script: list[Event], reason: Reason, ahead: int
) -> None:
    """It had events that died with a process; the rest of the log was written by another."""
    _, changes = played(script, reason)
    events = events_of(frames_after(HEADER, changes))
    told = events_of(frames_after(HEADER, changes, len(events) + ahead))
    assert kinds(told) in (["error", "done"], ["assistant.completed", "run.completed", "done"])
    assert told == events[-len(told) :]


@given(scripts, st.integers(0, 60), st.integers(0, 25))
def test_rendering_in_pieces_or_at_once_is_the_same(
    script: list[Event], after: int, cut: int
) -> None:
    _, changes = played(script)
    stream = SessionStream(HEADER, after)
    pieces = stream.opening() + stream.render(changes[:cut])
    assert pieces + b"".join(stream.render([change]) for change in changes[cut:]) == frames_after(
        HEADER, changes, after
    )


@given(scripts, last_words)
def test_the_reply_says_what_the_stream_says(script: list[Event], last: Event) -> None:
    changes = feed(Turn(), [*script, last])
    collector = SessionCollector(HEADER)
    collector.take(changes)
    events = check_whole(frames_after(HEADER, changes))
    try:
        body = collector.reply(collector.answer).body
    except ApiError as error:
        assert error.status == AGENT_FAILED
        assert events[-2]["event"] == "error" or not collector.answer
        return
    assert (body["object"], body["session_id"]) == ("hermes.session.chat.completion", "s-1")
    if events[-2]["event"] == "run.completed":
        assert body["message"] == {
            "id": events[-3]["message_id"],
            "role": "assistant",
            "content": events[-3]["content"],
        }
        assert body["usage"] == events[-2]["usage"]
    names = {"completed", "partial", "interrupted", "reason"}
    assert names & body.keys() == names & events[-2].keys()
    assert all(body[name] == events[-2][name] for name in names & body.keys())


def test_a_session_tells_all_but_its_prompt() -> None:
    made = Session("ann", "s", "chat", 1.0, 2.0)
    shown = session_object(made)
    empty = ("model", "title", "ended_at", "end_reason", "parent_session_id", "user_id")
    assert [shown[name] for name in empty] == [None] * 6
    assert (shown["id"], shown["source"], shown["kind"]) == ("s", "api_server", "chat")
    assert (shown["started_at"], shown["last_active"], shown["has_system_prompt"]) == (
        1.0,
        2.0,
        False,
    )
    full = evolve(
        made, model="m", title="T", system_prompt="secret", ended_at=3.0, end_reason="done", parent="p",
        counters=Counters(1, 2, 3, 4, 5, 6, 7, 8),
    )  # fmt: skip
    shown = session_object(full)
    assert [shown[name] for name in empty] == ["m", "T", 3.0, "done", "p", None]
    assert shown["has_system_prompt"] is True
    assert (shown["message_count"], shown["reasoning_tokens"]) == (1, 8)
    assert "secret" not in str(shown)


def test_a_message_tells_who_called_what() -> None:
    parts = ({"type": "text", "text": "x"},)
    message = Message("assistant", parts, (ToolCall("c", "t", "{}"),), reasoning="hm")
    shown = message_object(StoredMessage(3, message, 5.0, "run"), "s")
    assert shown == {
        "id": 3,
        "session_id": "s",
        "role": "assistant",
        "content": [{"type": "text", "text": "x"}],
        "tool_call_id": None,
        "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "t", "arguments": "{}"}}
        ],
        "tool_name": None,
        "reasoning": "hm",
        "timestamp": 5.0,
        "token_count": None,
        "finish_reason": None,
        "run_id": "run",
    }


@pytest.mark.parametrize(("title", "shown"), [("T", "T"), ("", "hello")])
def test_a_match_names_its_session(title: str, shown: str) -> None:
    session = Session("ann", "s", "sessions", 1.0, 2.0, title=title, preview="hello")
    stored = StoredMessage(3, Message("user", "two plums"), 5.0, "run")
    assert match_object(session, stored, ("plums",)) == {
        "object": "hermes.message.match",
        "session_id": "s",
        "title": shown,
        "message_id": 3,
        "run_id": "run",
        "role": "user",
        "timestamp": 5.0,
        "excerpt": "two plums",
    }


@given(st.text(max_size=120), st.integers(0, 5))
def test_the_next_title_is_free_and_fits(title: str, taken: int) -> None:
    titles = {title}
    for _ in range(taken + 1):
        following = next_title(title, titles)
        assert following not in titles - {""}
        assert len(following) <= 100
        titles.add(following)


@given(st.text())
def test_a_preview_is_short_and_one_line(text: str) -> None:
    shown = build_preview([Message("assistant", "no"), Message("user", ""), Message("user", text)])
    assert len(shown) <= 60
    assert shown == " ".join(shown.split())
