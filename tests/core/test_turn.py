"""The turn: filtering, ending, and the invariants under every script and every cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_trio.core.changes import (
    CallEnded,
    CallStarted,
    Ended,
    ReasoningAdded,
    TextAdded,
    ToolOutputAdded,
)
from hermes_trio.core.events import (
    AgentFailed,
    Event,
    Finished,
    Reasoning,
    Result,
    Text,
    ToolAnnounced,
    ToolCompleted,
    ToolOutput,
    ToolStarted,
    Verdict,
    coalesce,
)
from hermes_trio.core.messages import CallItem, MessageItem, ReasoningItem, Usage
from hermes_trio.core.outcome import Reason, Status
from hermes_trio.core.state import CallState
from hermes_trio.core.turn import NotEnded, Turn
from tests.support.strategies import cuts, last_words, said, scripts
from tests.support.turn_rules import check_invariants, feed, played


@given(scripts, cuts)
def test_invariants_hold_after_every_prefix(script: list[Event], reason: Reason) -> None:
    for length in range(len(script) + 1):
        turn, changes = played(script[:length], reason)
        check_invariants(turn, changes)
        assert turn.outcome.reason is reason


@given(scripts, last_words, st.lists(said, max_size=4), cuts)
def test_nothing_changes_an_ended_turn(
    script: list[Event], last: Event, late: list[Event], reason: Reason
) -> None:
    turn = Turn()
    changes = feed(turn, [*script, last])
    check_invariants(turn, changes)
    ended = (turn.items, turn.outcome)
    assert feed(turn, [*late, last]) == []
    assert turn.cancel(reason) == ()
    assert (turn.items, turn.outcome) == ended


@given(scripts, last_words)
def test_merging_text_changes_no_item(script: list[Event], last: Event) -> None:
    one, other = Turn(), Turn()
    feed(one, [*script, last])
    feed(other, coalesce([*script, last]))
    assert one.items == other.items
    assert one.outcome == other.outcome


@given(scripts)
def test_bare_words_are_heard_as_texts(script: list[Event]) -> None:
    bare = [event.text if isinstance(event, Text) else event for event in script]
    assert coalesce(bare) == coalesce(script)


@given(scripts)
def test_no_internal_name_is_kept(script: list[Event]) -> None:
    turn, _ = played(script)
    assert not any(isinstance(item, CallItem) and item.name.startswith("_") for item in turn.items)


def test_an_open_turn_has_no_outcome() -> None:
    with pytest.raises(NotEnded):
        _ = Turn().outcome


def test_a_new_message_begins_after_a_tool_round() -> None:
    turn, _ = played(
        [
            Text("a"),
            Text("b"),
            ToolStarted("c", "terminal"),
            ToolCompleted("c", "ok"),
            Text("d"),
            Reasoning("e"),
        ]
    )
    call = CallItem("c", "terminal", {}, CallState.COMPLETED, "ok", False, 0.0, after=2)
    assert turn.items == (MessageItem("ab"), call, MessageItem("d"), ReasoningItem("e"))


def test_items_know_in_which_order_their_results_came() -> None:
    turn, _ = played(
        [
            ToolStarted("a", "t"),
            ToolStarted("b", "t"),
            ToolCompleted("b"),
            Text("between"),
            ToolCompleted("a"),
            ToolStarted("c", "t"),
        ]
    )
    calls = [item for item in turn.items if isinstance(item, CallItem)]
    assert [(call.call_id, call.after, call.rank) for call in calls] == [
        ("a", 3, 1),
        ("b", 2, 0),
        ("c", 4, 2),
    ]


def test_a_running_call_shows_what_it_printed() -> None:
    turn = Turn()
    feed(turn, [ToolStarted("c", "terminal"), ToolOutput("c", "one "), ToolOutput("c", "two")])
    assert isinstance(turn.items[0], CallItem)
    assert (turn.items[0].state, turn.items[0].result) == (CallState.RUNNING, "one two")


def test_a_cut_call_keeps_what_it_printed() -> None:
    _, changes = played([ToolStarted("c", "terminal", at=1.0), ToolOutput("c", "half")])
    assert changes[:2] == [
        CallStarted(0, "c", "terminal", {}, 1.0),
        ToolOutputAdded(0, "c", "half"),
    ]
    assert changes[2] == CallEnded(0, "c", "terminal", CallState.CANCELLED, "half", True, 4.0)


@pytest.mark.parametrize(
    ("script", "ids"),
    [
        pytest.param([ToolStarted("x", "t"), ToolStarted("x", "t")], ["x"], id="told twice"),
        pytest.param([ToolCompleted("x", "r"), ToolOutput("x", "r")], [], id="orphans"),
        pytest.param([ToolStarted("x", "_t"), ToolCompleted("x", "r")], [], id="internal"),
        pytest.param([ToolAnnounced("_t")], [], id="internal without an id"),
        pytest.param(
            [ToolAnnounced("t"), ToolStarted("x", "t")], ["call"], id="announced, then started"
        ),
        pytest.param(
            [ToolStarted("x", "t"), ToolAnnounced("t")], ["x"], id="started, then announced"
        ),
        pytest.param([ToolStarted("", "t"), ToolStarted("", "t")], ["call", "call-2"], id="no ids"),
        pytest.param(
            [ToolStarted("x", "t"), ToolCompleted("x"), ToolStarted("x", "t")],
            ["x", "x-2"],
            id="id used again",
        ),
        pytest.param(
            [
                ToolStarted("x-2", "t"),
                ToolStarted("x", "t"),
                ToolCompleted("x"),
                ToolStarted("x", "t"),
            ],
            ["x-2", "x", "x-3"],
            id="made-up id is taken",
        ),
    ],
)
def test_every_start_is_shown_once_under_its_own_id(script: list[Event], ids: list[str]) -> None:
    _, changes = played(script)
    assert [change.call_id for change in changes if isinstance(change, CallStarted)] == ids


def test_an_announced_call_ends_with_the_id_it_got_later() -> None:
    _, changes = played(
        [ToolAnnounced("t"), ToolStarted("x", "t"), ToolCompleted("x", "r", at=2.0)]
    )
    assert changes[1] == CallEnded(0, "call", "t", CallState.COMPLETED, "r", False, 2.0)


def test_a_call_without_an_end_completes_with_its_run() -> None:
    turn = Turn()
    changes = feed(
        turn, [ToolAnnounced("t"), ToolStarted("x", "u"), Text("done"), Finished(at=3.0)]
    )
    states = {change.call_id: change.state for change in changes if isinstance(change, CallEnded)}
    assert states == {"call": CallState.COMPLETED, "x": CallState.CANCELLED}


@pytest.mark.parametrize(
    ("streamed", "final", "added"),
    [
        ([], "whole", "whole"),
        ([Text("whole")], "whole", ""),
        ([Text("\n\nwhole ")], "whole", ""),
        ([Text("who")], "whole", "le"),
        ([Text("first. "), ToolAnnounced("t"), Text("whole")], "whole", ""),
        ([Text("first. "), ToolAnnounced("t")], "whole", "whole"),
        ([Text("whole"), Reasoning("hm")], "whole", ""),
        ([Text("one thing")], "another", "\n\nanother"),
        ([Text("kept")], "  ", ""),
    ],
)
def test_the_unsent_part_of_the_final_text_is_sent(
    streamed: list[Event], final: str, added: str
) -> None:
    turn = Turn()
    feed(turn, streamed)
    changes = turn.take(Finished(Result(final)))
    assert "".join(change.text for change in changes if isinstance(change, TextAdded)) == added


def test_the_text_of_a_failure_is_no_answer() -> None:
    turn = Turn()
    changes = turn.take(
        Finished(Result("HTTP 401: bad key sk-abcdefghijklmnopqrstuvwxyz", Verdict.FAILED))
    )
    assert turn.text == ""
    assert len(changes) == 1
    assert turn.outcome.status is Status.FAILED
    assert "HTTP 401" in turn.outcome.failure.message
    assert "abcdefghijklmnop" not in turn.outcome.failure.message


@pytest.mark.parametrize(
    ("verdict", "status", "reason"),
    [
        (Verdict.COMPLETED, Status.COMPLETED, Reason.NONE),
        (Verdict.TRUNCATED, Status.INCOMPLETE, Reason.MAX_OUTPUT_TOKENS),
        (Verdict.INCOMPLETE, Status.INCOMPLETE, Reason.AGENT_INCOMPLETE),
        (Verdict.INTERRUPTED, Status.CANCELLED, Reason.STOP_REQUESTED),
        (Verdict.FAILED, Status.FAILED, Reason.AGENT_ERROR),
    ],
)
def test_the_verdict_decides_the_outcome(verdict: Verdict, status: Status, reason: Reason) -> None:
    turn = Turn()
    usage = Usage(3, 4)
    feed(turn, [Text("a"), Finished(Result("a", verdict, usage=usage, session_id="moved"))])
    assert (turn.outcome.status, turn.outcome.reason) == (status, reason)
    assert (turn.outcome.usage, turn.outcome.session_id) == (usage, "moved")


@pytest.mark.parametrize("script", [[], [Reasoning("hm")]])
def test_an_empty_answer_is_a_failure(script: list[Event]) -> None:
    turn = Turn()
    feed(turn, [*script, Finished()])
    assert turn.outcome.status is Status.FAILED
    assert turn.outcome.failure.message == "The agent gave no answer."


def test_a_turn_that_only_used_tools_is_complete() -> None:
    turn = Turn()
    feed(turn, [ToolStarted("x", "t"), ToolCompleted("x"), Finished()])
    assert turn.outcome.status is Status.COMPLETED


def test_a_crash_is_a_failure_with_its_class() -> None:
    turn = Turn()
    changes = turn.take(AgentFailed("boom", "RuntimeError"))
    assert changes == (Ended(turn.outcome),)
    assert (turn.outcome.failure.kind, turn.outcome.raised) == ("RuntimeError", True)


def test_empty_pieces_are_no_changes() -> None:
    turn = Turn()
    assert feed(turn, [Text(""), Reasoning(""), ToolStarted("x", "t")])[:1] != []
    assert feed(turn, [ToolOutput("x", "")]) == []
    assert feed(turn, [Reasoning("r")]) == [ReasoningAdded(1, "r")]
