"""The turn: filtering, ending, and the invariants under every script and every cut."""

from __future__ import annotations

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from hermes_trio.core.changes import (
    ApprovalResolved,
    CallEnded,
    CallStarted,
    Change,
    Ended,
    ReasoningAdded,
    TextAdded,
    ToolOutputAdded,
)
from hermes_trio.core.events import (
    AgentFailed,
    AnsweredBy,
    ApprovalAnswered,
    ApprovalRequest,
    Choice,
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
from hermes_trio.core.messages import CallItem, MessageItem, ReasoningItem, Usage, transcript
from hermes_trio.core.outcome import Outcome, Reason, Status
from hermes_trio.core.state import CallState
from hermes_trio.core.turn import Continuation, NotEnded, Turn
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


# -- suspension --

STARTED = ToolStarted("a", "terminal", {"command": "rm"}, 1.0)
WANTED = ApprovalRequest("q", "a", "rm", "It deletes.", ("rm",), True, 60.0, 2.0)


def suspended(*events: Event) -> tuple[Turn, list[Change], Continuation]:
    turn = Turn()
    changes = feed(turn, events)
    assert turn.is_waiting
    more, continuation = turn.suspend(5.0)
    return turn, [*changes, *more], continuation


def test_a_turn_waits_when_every_running_call_does() -> None:
    events = (
        STARTED,
        ToolStarted("b", "read_file"),
        WANTED,  # the other call goes on
        ToolCompleted("b", "read"),
        ApprovalAnswered("q", Choice.ONCE, AnsweredBy.CLIENT),
    )
    turn = Turn()
    waiting = []
    for event in events:
        feed(turn, [event])
        waiting.append(turn.is_waiting)
    assert waiting == [False, False, False, True, False]


def test_a_suspended_turn_leaves_its_call_to_the_next_one() -> None:
    turn, changes, continuation = suspended(Text("Let me."), STARTED, WANTED)
    assert turn.outcome == Outcome(Status.COMPLETED)
    check_invariants(turn, changes)
    assert changes[-3] == ApprovalResolved("q", "a", Choice.DENY, AnsweredBy.DEFERRED, 5.0)
    text, call = turn.items
    assert isinstance(call, CallItem)
    assert (call.approval_id, call.is_deferred) == ("q", True)
    assert transcript(turn.items) == transcript((text,)), "the next turn has the call"
    assert continuation.calls == (evolve(STARTED, at=0.0),)
    assert continuation.requests == (evolve(WANTED, at=0.0),)

    following = Turn()
    feed(following, [*continuation.calls, *continuation.requests])
    assert following.is_waiting
    feed(following, [ApprovalAnswered("q", Choice.ONCE, AnsweredBy.CLIENT)])
    feed(following, [ToolCompleted("a", "gone", at=3.0), Finished()])
    [done] = following.items
    assert done == CallItem(
        "a", "terminal", {"command": "rm"}, CallState.COMPLETED, "gone", False, 3.0, 1, 0, "q"
    )


def test_a_request_that_names_no_call_is_about_the_oldest_that_does_not_wait() -> None:
    unnamed = evolve(WANTED, approval_id="q2", call_id="")
    started = (STARTED, ToolStarted("b", "read_file"))
    turn, changes, continuation = suspended(*started, unnamed, WANTED)
    check_invariants(turn, changes)
    assert [request.call_id for request in continuation.requests] == ["b", "a"]
    resolved = [change for change in changes if isinstance(change, ApprovalResolved)]
    assert [(each.approval_id, each.call_id) for each in resolved] == [("q", "a"), ("q2", "b")]


@pytest.mark.parametrize("script", [[], [ToolAnnounced("terminal", {})], [STARTED, WANTED]])
def test_a_request_without_a_call_gets_one(script: list[Event]) -> None:
    alone = evolve(WANTED, approval_id="q2", call_id="")
    turn, changes, continuation = suspended(*script, alone)
    check_invariants(turn, changes)
    call = turn.items[-1]
    assert isinstance(call, CallItem)
    assert (call.name, call.approval_id, call.is_deferred) == ("approval", "q2", True)
    assert call.args == {"command": "rm", "description": "It deletes."}
    assert len(continuation.calls) == len(script) // 2
    assert continuation.requests[-1] == evolve(alone, at=0.0)


@given(scripts)
def test_every_turn_that_waits_can_be_suspended_and_continued(script: list[Event]) -> None:
    turn = Turn()
    changes = feed(turn, script)
    if not turn.is_waiting:
        return
    more, continuation = turn.suspend(2000.0)
    check_invariants(turn, [*changes, *more])
    following = Turn()
    feed(following, [*continuation.calls, *continuation.requests])
    assert following.is_waiting
    assert [request.approval_id for request in following.suspend(1.0)[1].requests] == [
        request.approval_id for request in continuation.requests
    ]
