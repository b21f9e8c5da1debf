"""Approval requests in a turn: opened once, resolved once."""

from __future__ import annotations

import pytest
from attrs import evolve

from hermes_trio.core.approvals import Decision, offered_choices, parse_reply, question_text
from hermes_trio.core.changes import ApprovalRequested, ApprovalResolved, CallStarted, Ended
from hermes_trio.core.events import (
    AnsweredBy,
    ApprovalAnswered,
    ApprovalRequest,
    Choice,
    Text,
    ToolStarted,
)
from hermes_trio.core.outcome import Reason
from hermes_trio.core.turn import Turn
from tests.support.turn_rules import feed

EVENT = ApprovalRequest(
    "q1", "c1", "rm -r build", "deletes files", ("recursive delete", "rm"), True, 60.0, 1.5
)


YES = ApprovalAnswered("q1", Choice.SESSION, AnsweredBy.CLIENT, 2.5)


REQUEST = ApprovalRequested(
    "q1", "", "rm -r build", "deletes files", ("recursive delete", "rm"), True, 60.0, 1.5
)


RESOLVED = ApprovalResolved("q1", "", Choice.SESSION, AnsweredBy.CLIENT, 2.5)


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("yes", Choice.ONCE),
        ("Y", Choice.ONCE),
        (" OK!\n", Choice.ONCE),
        ("no.", Choice.DENY),
        ("session", Choice.SESSION),
        ("always", Choice.ALWAYS),
        ("yes please", None),
        ("", None),
        ("nothing", None),
    ],
)
def test_plain_replies(text: str, choice: Choice | None) -> None:
    assert parse_reply(text) is choice


def test_the_question_of_a_chat() -> None:
    assert question_text(REQUEST) == (
        "**Approval needed.** deletes files\n\n```\nrm -r build\n```\n\n"
        "Reply **yes** or **no** (session, always: yes, and do not ask again)."
    )


def test_a_command_cannot_leave_its_block() -> None:
    sly = evolve(REQUEST, command="a\n```\n**Harmless**", description="", allow_permanent=False)
    assert question_text(sly) == (
        "**Approval needed.**\n\n````\na\n```\n**Harmless**\n````\n\n"
        "Reply **yes** or **no** (session: yes, and do not ask again)."
    )
    long = question_text(evolve(REQUEST, command="x" * 100_000))
    assert len(long) < 5_000


def test_a_request_is_opened_and_resolved_once() -> None:
    assert feed(Turn(), [EVENT, EVENT, YES, YES]) == [REQUEST, RESOLVED]


def test_an_answer_without_a_request_is_ignored() -> None:
    assert feed(Turn(), [YES, Text("a")])[0] != RESOLVED


def test_a_request_names_the_visible_call() -> None:
    again = [ToolStarted("c1", "t"), ToolStarted("c1", "t")]
    first, asked = feed(Turn(), [again[0], EVENT])
    assert isinstance(first, CallStarted)
    assert isinstance(asked, ApprovalRequested)
    assert asked.call_id == first.call_id == "c1"


def test_the_end_denies_open_requests() -> None:
    turn = Turn()
    asked = feed(turn, [EVENT, ApprovalRequest("q2", "", "x")])
    closing = turn.cancel(Reason.STOP_REQUESTED, 9.0)
    assert [type(change) for change in closing] == [ApprovalResolved, ApprovalResolved, Ended]
    denied = [change for change in closing if isinstance(change, ApprovalResolved)]
    assert [change.approval_id for change in denied] == ["q1", "q2"]
    assert {(change.choice, change.by, change.at) for change in denied} == {
        (Choice.DENY, AnsweredBy.RUN_ENDED, 9.0)
    }
    assert len(asked) == 2


@pytest.mark.parametrize("permanent", [True, False])
def test_offered_choices(permanent: bool) -> None:
    request = ApprovalRequested("q", "", "x", "", (), permanent, 1.0, 0.0)
    assert (Choice.ALWAYS in offered_choices(request)) is permanent
    assert {Choice.ONCE, Choice.SESSION, Choice.DENY} <= set(offered_choices(request))


def test_only_a_denial_stops_the_agent() -> None:
    decisions = {choice: Decision(choice, AnsweredBy.CLIENT).approved for choice in Choice}
    assert decisions == {
        Choice.ONCE: True,
        Choice.SESSION: True,
        Choice.ALWAYS: True,
        Choice.DENY: False,
    }
