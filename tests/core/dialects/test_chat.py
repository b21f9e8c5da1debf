"""The Chat Completions dialect: streams and whole replies from the same changes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from hermes_trio.core.changes import (
    CallEnded,
    CallStarted,
    Change,
    Ended,
    ReasoningAdded,
    TextAdded,
    ToolOutputAdded,
)
from hermes_trio.core.dialects.chat import (
    AGENT_FAILED,
    PROGRESS,
    ChatCollector,
    ChatOptions,
    ChatStream,
)
from hermes_trio.core.errors import ApiError
from hermes_trio.core.events import (
    AgentFailed,
    ClientCall,
    Event,
    Finished,
    Result,
    Text,
    ToolAnnounced,
    Verdict,
)
from hermes_trio.core.messages import MessageItem, Usage
from hermes_trio.core.outcome import Outcome, Reason, Status
from hermes_trio.core.records import Stamp
from hermes_trio.core.state import CallState
from hermes_trio.core.turn import Turn
from tests.support.dialect_frames import Frame, parse
from tests.support.strategies import cuts, last_words, scripts
from tests.support.turn_rules import feed, played

STAMP = Stamp("chatcmpl-1", 1_700_000_000.5, "hermes-agent")
HEAD = {
    "id": "chatcmpl-1",
    "object": "chat.completion.chunk",
    "created": 1_700_000_000,
    "model": "hermes-agent",
}
DONE = Outcome(Status.COMPLETED, usage=Usage(5, 7, 1, 2, 3))
USAGE = {
    "prompt_tokens": 5,
    "completion_tokens": 7,
    "total_tokens": 12,
    "prompt_tokens_details": {"cached_tokens": 1, "cache_write_tokens": 2},
    "completion_tokens_details": {"reasoning_tokens": 3},
}


def render(*changes: Change, options: ChatOptions = ChatOptions()) -> list[Frame]:  # noqa: B008
    return parse(ChatStream(STAMP, options).render(changes))


def choice(delta: dict[str, Any], finish: str | None = None) -> list[dict[str, Any]]:
    return [{"index": 0, "delta": delta, "finish_reason": finish}]


def test_the_role_comes_first() -> None:
    [frame] = parse(ChatStream(STAMP).opening())
    assert frame == Frame("", {**HEAD, "choices": choice({"role": "assistant"})})


def test_text_and_reasoning_are_separate_deltas() -> None:
    assert render(TextAdded(0, 'a "ü"\n'), ReasoningAdded(1, "hm")) == [
        Frame("", {**HEAD, "choices": choice({"content": 'a "ü"\n'})}),
        Frame("", {**HEAD, "choices": choice({"reasoning_content": "hm"})}),
    ]


def test_a_tool_call_is_one_running_and_one_ending_event() -> None:
    started = CallStarted(0, "c1", "terminal", {"command": "ls -l"}, 0.0)
    said = ToolOutputAdded(0, "c1", "half")
    ended = CallEnded(0, "c1", "terminal", CallState.COMPLETED, "files", False, 0.12345)
    running, ending = render(started, said, ended)
    noop = {**HEAD, "choices": choice({})}
    args = {"command": "ls -l"}
    assert running == Frame(
        PROGRESS,
        {
            **noop, "tool": "terminal", "name": "terminal", "emoji": "💻", "label": "ls -l",
            "toolCallId": "c1", "status": "running", "args": args, "input": args,
        },
    )  # fmt: skip
    assert ending == Frame(
        PROGRESS,
        {
            **noop, "tool": "terminal", "name": "terminal", "toolCallId": "c1", "status": "completed",
            "result": "files", "output": "files", "duration": 0.123, "isError": False,
        },
    )  # fmt: skip


def test_substrings_that_clients_match_are_there() -> None:
    frame = ChatStream(STAMP).render([CallStarted(0, "call_1", "terminal", {}, 0.0)])
    for piece in (b'"status": "running"', b'"tool": "terminal"', b'"toolCallId": "call_1"'):
        assert piece in frame


def test_open_webui_gets_a_status_line_when_asked() -> None:
    started = CallStarted(0, "c1", "terminal", {"command": "ls"}, 0.0)
    ended = CallEnded(0, "c1", "terminal", CallState.CANCELLED, "", True, 0.0)
    running, ending = render(started, ended, options=ChatOptions(status_line=True))
    line = {"description": "💻 terminal: ls", "done": False}
    assert running.data["event"] == {"type": "status", "data": line}
    assert ending.data["event"] == {"type": "status", "data": {**line, "done": True}}
    assert ending.data["status"] == "cancelled"


def test_a_reply_that_ends_within_a_call_settles_its_status_line() -> None:
    started = CallStarted(0, "c1", "terminal", {"command": "ls"}, 0.0)
    frames = render(started, Ended(DONE), options=ChatOptions(status_line=True))
    settled = {"type": "status", "data": {"description": "💻 terminal: ls", "done": True}}
    assert frames[1] == Frame("", {**HEAD, "choices": choice({}), "event": settled})
    assert len(frames) == 4
    assert len(render(started, Ended(DONE))) == 3


def test_the_end_of_a_call_that_began_in_an_earlier_reply() -> None:
    ended = CallEnded(0, "c1", "terminal", CallState.COMPLETED, "x", False, 0.0)
    (ending,) = render(ended, options=ChatOptions(status_line=True))
    assert ending.data["event"]["data"] == {"description": "💻 terminal", "done": True}


def test_no_event_comes_near_the_line_limit_of_front_ends() -> None:
    huge = "\U0001f600" * 300_000
    started = CallStarted(0, "c1", "terminal", {"command": huge, "list": [huge] * 50}, 0.0)
    ended = CallEnded(0, "c1", "terminal", CallState.COMPLETED, huge, False, 0.0)
    stream = ChatStream(STAMP, ChatOptions(status_line=True))
    for change in (started, ended):
        assert len(stream.render([change])) < 110 * 1024


def test_a_completed_run_ends_with_usage_and_done() -> None:
    finish, done = render(Ended(DONE))
    assert finish == Frame("", {**HEAD, "choices": choice({}, "stop"), "usage": USAGE})
    assert done == Frame("", "[DONE]")


def test_usage_comes_in_its_own_chunk_when_asked_for() -> None:
    options = ChatOptions(include_usage=True)
    text, finish, usage, done = render(TextAdded(0, "a"), Ended(DONE), options=options)
    [role] = parse(ChatStream(STAMP, options).opening())
    assert all(frame.data["usage"] is None for frame in (role, text, finish))
    assert usage.data == {**HEAD, "choices": [], "usage": USAGE}
    assert done.data == "[DONE]"


@pytest.mark.parametrize(
    ("outcome", "finish", "code", "has_error"),
    [
        (
            Outcome.from_result(Result("x", Verdict.TRUNCATED, "output truncated"), False),
            "length",
            "output_truncated",
            False,
        ),
        (
            Outcome.from_result(Result("x", Verdict.INTERRUPTED), False),
            "stop",
            "stop_requested",
            False,
        ),
        (Outcome.from_cancellation(Reason.STOP_REQUESTED), "stop", "stop_requested", False),
        (
            Outcome.from_result(Result("x", Verdict.FAILED, "no"), False),
            "error",
            "agent_error",
            True,
        ),
        (Outcome.from_failure(AgentFailed("boom", "RuntimeError")), "error", "agent_error", True),
        (Outcome.from_cancellation(Reason.TIMEOUT), "error", "timeout", True),
        (Outcome.from_cancellation(Reason.SERVER_SHUTDOWN), "error", "server_shutdown", True),
    ],
)
def test_other_ends_say_so(outcome: Outcome, finish: str, code: str, has_error: bool) -> None:
    *failures, last, _ = [frame.data for frame in render(Ended(outcome))]
    assert last["choices"][0]["finish_reason"] == finish
    assert last["hermes"]["error_code"] == code
    assert last["hermes"]["completed"] is False
    assert "error" not in last
    error = {"message": outcome.failure.message, "type": outcome.failure.kind, "code": code}
    assert failures == ([{"error": {**error, "param": None}}] if has_error else [])


@given(scripts, cuts)
def test_streams_of_all_scripts_keep_the_promises(script: list[Event], reason: Reason) -> None:
    turn, changes = played(script, reason)
    stream = ChatStream(STAMP)
    frames = parse(stream.opening() + stream.render(changes))
    assert frames[-1].data == "[DONE]"
    chunks = [frame for frame in frames[:-1] if "choices" in frame.data]
    failures = [frame.data for frame in frames[:-1] if frame not in chunks]
    assert [list(failure) for failure in failures] == [["error"]] * len(failures)
    assert "".join(_delta(frame).get("content", "") for frame in chunks) == turn.text
    assert [frame.data["choices"][0]["finish_reason"] for frame in chunks].count(None) == len(
        chunks
    ) - 1
    _check_lifecycle([frame.data for frame in chunks if frame.name == PROGRESS])
    assert not any({"content", "reasoning_content"} <= set(_delta(frame)) for frame in chunks)
    assert "_secret" not in json.dumps([frame.data for frame in chunks])


@given(scripts, last_words)
def test_rendering_in_pieces_or_at_once_is_the_same(script: list[Event], last: Event) -> None:
    changes = feed(Turn(), [*script, last])
    whole, pieces = ChatStream(STAMP), ChatStream(STAMP)
    assert whole.render(changes) == b"".join(pieces.render([change]) for change in changes)


def _delta(frame: Frame) -> dict[str, Any]:
    delta = frame.data["choices"][0]["delta"]
    assert isinstance(delta, dict)
    return delta


def _check_lifecycle(progress: list[dict[str, Any]]) -> None:
    seen: dict[str, list[str]] = {}
    for data in progress:
        assert not data["tool"].startswith("_")
        seen.setdefault(data["toolCallId"], []).append(data["status"])
    for statuses in seen.values():
        assert statuses in (["running", "completed"], ["running", "cancelled"])


def collected(*events: Event, failure_status: int = AGENT_FAILED) -> ChatCollector:
    collector = ChatCollector(STAMP, failure_status)
    collector.take(feed(Turn(), events))
    return collector


def test_a_reply_holds_the_answer_after_the_last_tool_round() -> None:
    collector = collected(
        Text("Let me see. "), ToolAnnounced("t"), Text("Hello."), Finished(Result(usage=DONE.usage))
    )
    reply = collector.reply(collector.answer)
    assert reply.body == {
        **HEAD,
        "object": "chat.completion",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hello."},
                "finish_reason": "stop",
            }
        ],
        "usage": USAGE,
    }
    assert reply.headers == {}
    assert collector.outcome.status is Status.COMPLETED


def test_a_reply_that_was_cut_holds_all_text_and_says_so() -> None:
    result = Result(verdict=Verdict.INCOMPLETE, error="gave\nup")
    collector = collected(Text("one "), ToolAnnounced("t"), Text("two"), Finished(result))
    reply = collector.reply(collector.answer)
    assert reply.body["choices"][0]["message"]["content"] == "one two"
    assert reply.body["hermes"]["partial"] is True
    assert reply.headers["X-Hermes-Completed"] == "false"
    assert reply.headers["X-Hermes-Partial"] == "true"
    assert "\n" not in reply.headers["X-Hermes-Error"]


def test_a_stopped_reply_without_an_error_text_has_no_error_header() -> None:
    collector = collected(Text("a"), Finished(Result(verdict=Verdict.INTERRUPTED)))
    assert "X-Hermes-Error" not in collector.reply("a").headers


def test_reasoning_is_part_of_the_reply() -> None:
    collector = ChatCollector(STAMP)
    collector.take(
        [ReasoningAdded(0, "hm "), ReasoningAdded(0, "so"), TextAdded(1, "a"), Ended(DONE)]
    )
    assert collector.reply("a").body["choices"][0]["message"]["reasoning_content"] == "hm so"


@pytest.mark.parametrize(
    ("events", "status", "code"),
    [
        ([AgentFailed("boom")], 500, "agent_error"),
        ([Text("half"), AgentFailed("boom")], 500, "agent_error"),
        ([Finished(Result("HTTP 401", Verdict.FAILED))], 502, "agent_incomplete"),
        ([Finished()], 502, "agent_incomplete"),
    ],
)
def test_failures_are_never_successes(events: list[Event], status: int, code: str) -> None:
    for configured, shown in ((424, 424), (422, 422), (500, status)):
        collector = collected(*events, failure_status=configured)
        with pytest.raises(ApiError) as caught:
            collector.reply(collector.answer)
        assert (caught.value.status, caught.value.code) == (shown, code)
        assert caught.value.headers["x-should-retry"] == "false"


def test_an_end_that_never_came_is_a_failure() -> None:
    with pytest.raises(ApiError) as caught:
        ChatCollector(STAMP).reply("")
    assert caught.value.status == AGENT_FAILED


def test_a_stop_without_text_still_has_a_message() -> None:
    collector = ChatCollector(STAMP)
    collector.take([Ended(Outcome.from_cancellation(Reason.STOP_REQUESTED))])
    with pytest.raises(ApiError, match=r"ended without an answer"):
        collector.reply(collector.answer)


@given(scripts, last_words)
def test_stream_and_reply_agree(script: list[Event], last: Event) -> None:
    turn = Turn()
    changes = feed(turn, [*script, last])
    collector = ChatCollector(STAMP)
    collector.take(changes)
    texts = [item.text for item in turn.items if isinstance(item, MessageItem)]
    expected = "".join(texts[-1:]) if turn.outcome.status is Status.COMPLETED else turn.text
    assert collector.answer == expected


def test_calls_of_the_clients_tools_are_the_answer() -> None:
    body = collected(ClientCall("a", "get_weather", "{}"), Finished()).reply("").body
    (choice,) = body["choices"]
    call = {"id": "a", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}
    assert choice["message"] == {"role": "assistant", "content": None, "tool_calls": [call]}
    assert choice["finish_reason"] == "tool_calls"
