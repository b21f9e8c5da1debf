"""The Response object: every field, for every outcome, from changes and from records."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve
from hypothesis import given, settings
from openai.types.responses import Response

from hermes_trio.core.changes import CallStarted, TextAdded
from hermes_trio.core.dialects.responses import (
    ResponsesCollector,
    response_item_ids,
    response_items,
    response_object,
)
from hermes_trio.core.dialects.responses_items import ResultForm, item_id, output_items
from hermes_trio.core.events import (
    AgentFailed,
    Event,
    Finished,
    Result,
    Text,
    ToolCompleted,
    ToolStarted,
    Verdict,
)
from hermes_trio.core.messages import CallItem, MessageItem, Usage
from hermes_trio.core.outcome import Failure, Outcome, Reason, Status
from hermes_trio.core.records import EndedRun
from hermes_trio.core.state import CallState
from hermes_trio.core.turn import Turn
from tests.support.responses_stream_rules import HEADER
from tests.support.strategies import last_words, scripts
from tests.support.turn_rules import feed

# What the Open Responses suite looks for.
FIELDS = {
    "id", "object", "created_at", "completed_at", "status", "incomplete_details", "model", "previous_response_id",
    "instructions", "output", "error", "tools", "tool_choice", "truncation", "parallel_tool_calls", "text", "top_p",
    "presence_penalty", "frequency_penalty", "top_logprobs", "temperature", "reasoning", "usage", "max_output_tokens",
    "max_tool_calls", "store", "background", "service_tier", "metadata", "safety_identifier", "prompt_cache_key",
}  # fmt: skip
DONE = Outcome(Status.COMPLETED, usage=Usage(5, 7, 1, 2, 3))


def test_a_run_in_progress_says_so_in_all_fields() -> None:
    assert response_object(HEADER, ()) == {
        "id": "resp_1",
        "object": "response",
        "created_at": 1_700_000_000,
        "status": "in_progress",
        "background": False,
        "completed_at": None,
        "error": None,
        "incomplete_details": None,
        "model": "hermes-agent",
        "output": [],
        "conversation": None,
        "frequency_penalty": 0.0,
        "instructions": None,
        "max_output_tokens": None,
        "max_tool_calls": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "presence_penalty": 0.0,
        "previous_response_id": None,
        "prompt_cache_key": None,
        "reasoning": None,
        "safety_identifier": None,
        "service_tier": "default",
        "store": True,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_logprobs": 0,
        "top_p": 1.0,
        "truncation": "disabled",
        "user": None,
        "usage": None,
    }
    assert len(FIELDS) == 31
    assert set(response_object(HEADER, ())) >= FIELDS


def test_a_completed_run_has_its_time_and_its_usage() -> None:
    shown = response_object(HEADER, (MessageItem("hi"),), DONE, 2.6)
    assert shown["completed_at"] == 1_700_000_003
    assert shown["usage"] == {
        "input_tokens": 5,
        "input_tokens_details": {"cached_tokens": 1, "cache_write_tokens": 2},
        "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 3},
        "total_tokens": 12,
    }
    assert "hermes" not in shown


def test_the_request_is_repeated() -> None:
    request = {"metadata": {"a": "b"}, "temperature": 0.5, "store": False, "user": None, "other": 1}
    header = evolve(
        HEADER, request=request, conversation="conv_1", background=True, instructions="be brief"
    )
    shown = response_object(header, ())
    assert shown["metadata"] == {"a": "b"}
    assert (shown["temperature"], shown["store"], shown["user"]) == (0.5, False, None)
    assert (shown["conversation"], shown["background"]) == ({"id": "conv_1"}, True)
    assert shown["instructions"] == "be brief"
    assert "other" not in shown


@pytest.mark.parametrize(
    ("outcome", "status", "details", "reason"),
    [
        (
            Outcome.from_result(Result("x", Verdict.TRUNCATED), False),
            "incomplete",
            {"reason": "max_output_tokens"},
            "max_output_tokens",
        ),
        (
            Outcome.from_cancellation(Reason.CLIENT_DISCONNECTED),
            "incomplete",
            None,
            "client_disconnected",
        ),
        (Outcome.from_cancellation(Reason.PROCESS_DIED), "incomplete", None, "process_died"),
        (Outcome.from_cancellation(Reason.STOP_REQUESTED), "cancelled", None, "stop_requested"),
        (Outcome.from_failure(AgentFailed("boom")), "failed", None, "agent_error"),
    ],
)
def test_other_ends_say_so(outcome: Outcome, status: str, details: Any, reason: str) -> None:
    shown = response_object(HEADER, (), outcome, 1.23456)
    assert (shown["status"], shown["incomplete_details"], shown["completed_at"]) == (
        status,
        details,
        None,
    )
    assert shown["hermes"]["reason"] == reason
    assert (shown["hermes"]["session_id"], shown["hermes"]["duration"]) == ("s-1", 1.235)
    assert (shown["error"] is not None) is (status == "failed")


def test_a_failure_has_a_code_that_sdks_know_and_always_a_message() -> None:
    told = response_object(HEADER, (), Outcome.from_failure(AgentFailed("boom")))
    silent = response_object(
        HEADER, (), Outcome(Status.FAILED, Reason.AGENT_ERROR, Failure("", "x"))
    )
    assert told["error"] == {"code": "server_error", "type": "server_error", "message": "boom"}
    assert silent["error"] == {
        "code": "server_error",
        "type": "server_error",
        "message": "The agent failed.",
    }


def test_a_session_that_moved_is_told_even_of_a_completed_run() -> None:
    shown = response_object(HEADER, (), evolve(DONE, session_id="s-2"))
    assert shown["hermes"]["session_id"] == "s-2"
    assert shown["hermes"]["completed"] is True


def test_ids_depend_on_the_run_the_kind_and_the_place() -> None:
    ids = {
        item_id(*key) for key in (("msg", "a", 0), ("msg", "b", 0), ("msg", "a", 1), ("fc", "a", 0))
    }
    assert len(ids) == 4
    assert all(len(made.partition("_")[2]) == 24 for made in ids)


def test_a_running_call_has_no_result_yet() -> None:
    call = CallItem("c", "t", {}, CallState.RUNNING, "half", False, 0.0)
    [shown] = output_items("r", [call])
    assert (shown["type"], shown["status"]) == ("function_call", "in_progress")


@given(scripts, last_words)
def test_a_record_shows_the_items_that_the_run_had(script: list[Event], last: Event) -> None:
    turn, collector = Turn(), ResponsesCollector(HEADER)
    collector.take(feed(turn, [*script, last]))
    shown = response_object(HEADER, turn.items, turn.outcome, getattr(last, "at", 0.0))
    assert shown == collector.snapshot()


@given(scripts)
def test_a_snapshot_shows_the_items_that_a_running_turn_has(script: list[Event]) -> None:
    turn, collector = Turn(), ResponsesCollector(HEADER)
    collector.take(feed(turn, script))
    live = collector.snapshot()
    assert live["status"] == "in_progress"
    assert output_items(HEADER.run_id, turn.items) == live["output"]


def test_results_stand_where_the_calls_ended() -> None:
    script: list[Event] = [
        ToolStarted("a", "t"),
        ToolStarted("b", "t"),
        ToolCompleted("b", "2"),
        Text("x"),
        ToolCompleted("a", "1"),
    ]
    shown = output_items("resp_1", _items(script))
    order = [(item["type"], item.get("call_id")) for item in shown]
    calls = [("function_call", "a"), ("function_call", "b"), ("function_call_output", "b")]
    assert order == [*calls, ("message", None), ("function_call_output", "a")]


def test_the_result_of_an_old_record_follows_its_call() -> None:
    calls = [CallItem(name, "t", {}, CallState.COMPLETED, name, False, 0.0) for name in ("a", "b")]
    assert [item["call_id"] for item in output_items("resp_1", calls)] == ["a", "a", "b", "b"]


@given(scripts, last_words)
@settings(max_examples=40, deadline=None)  # the SDK builds its classes when they are first used
def test_the_sdk_takes_every_response(script: list[Event], last: Event) -> None:
    turn = Turn()
    feed(turn, [*script, last])
    Response.model_validate(response_object(HEADER, turn.items, turn.outcome, 1.0), strict=True)


def test_a_reply_tells_of_a_failure_as_a_response() -> None:
    collector = ResponsesCollector(HEADER)
    collector.take(feed(Turn(), [Text("a"), AgentFailed("boom")]))
    reply = collector.reply()
    assert reply.body["status"] == "failed"
    assert reply.headers["X-Hermes-Completed"] == "false"
    assert collector.outcome.raised


def test_a_plain_reply_has_results_as_text() -> None:
    collector = ResponsesCollector(HEADER)
    script: list[Event] = [ToolStarted("c", "t"), ToolCompleted("c", "r"), Finished(Result("a"))]
    collector.take(feed(Turn(), script))
    reply = collector.reply()
    assert reply.headers == {}
    assert reply.body["output"][1]["output"] == "r"
    [_, shown, _] = output_items("resp_1", _items(script), DONE, ResultForm.PARTS)
    assert shown["output"] == [{"type": "input_text", "text": "r"}]


def _items(script: list[Event]) -> Any:
    turn = Turn()
    feed(turn, script)
    return turn.items


def test_a_reply_whose_end_never_came_is_our_failure() -> None:
    collector = ResponsesCollector(HEADER)
    collector.take([TextAdded(0, "a"), CallStarted(1, "c", "t", {}, 0.0)])
    body = collector.reply().body
    assert body["status"] == "failed"
    assert [item["status"] for item in body["output"]] == ["completed", "incomplete", "incomplete"]
    assert collector.outcome == Outcome.from_cancellation(Reason.SERVER_ERROR)


def test_only_a_stored_response_has_items_that_can_be_referred_to() -> None:
    asked = {"id": "msg_in", "type": "message"}
    header = evolve(HEADER, input_items=(asked,))
    ended = EndedRun(header, (MessageItem("Hello"),), DONE, 1.0)
    output = response_object(header, ended.items, DONE)["output"]
    assert response_items(ended) == (asked, *output)
    assert response_item_ids(ended) == ("msg_in", output[0]["id"])
    for other in (evolve(header, kind="chat"), evolve(header, request={"store": False})):
        assert response_items(evolve(ended, header=other)) == ()
        assert response_item_ids(evolve(ended, header=other)) == ()
