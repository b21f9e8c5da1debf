from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from hermes_trio.agents.hermes.conversion import to_result, usage_of, verdict_of
from hermes_trio.core.events import Result, Verdict
from hermes_trio.core.messages import NO_USAGE, Usage

CUT = "Response truncated due to output length limit"

# Each row: the flags that Hermes returns, and what they mean.
VERDICTS: list[tuple[dict[str, Any], Verdict]] = [
    (
        {"completed": True, "failed": False, "partial": False, "interrupted": False},
        Verdict.COMPLETED,
    ),
    ({"completed": True, "interrupted": True}, Verdict.INTERRUPTED),
    ({"completed": False, "interrupted": True, "failed": True}, Verdict.INTERRUPTED),
    ({"completed": False, "failed": True, "error": "HTTP 401"}, Verdict.FAILED),
    ({"completed": False, "failed": True, "partial": True, "error": CUT}, Verdict.FAILED),
    ({"completed": False, "partial": True, "error": CUT}, Verdict.TRUNCATED),
    ({"partial": True, "error": "Response remained TRUNCATED after 4 attempts"}, Verdict.TRUNCATED),
    ({"partial": True, "error": "Incomplete REASONING_SCRATCHPAD"}, Verdict.INCOMPLETE),
    ({"partial": True, "error": None}, Verdict.INCOMPLETE),
    ({"completed": True, "partial": True}, Verdict.INCOMPLETE),
    ({"completed": False}, Verdict.INCOMPLETE),
    ({}, Verdict.INCOMPLETE),
]


@pytest.mark.parametrize(("raw", "verdict"), VERDICTS)
def test_the_first_rule_that_matches_counts(raw: dict[str, Any], verdict: Verdict) -> None:
    assert verdict_of(raw) is verdict


def result(**raw: Any) -> Result:
    return to_result(raw, NO_USAGE)


def test_the_answer_of_a_good_turn_is_kept_and_nothing_is_complained_about() -> None:
    raw = {"final_response": "Hi", "completed": True, "turn_exit_reason": "text_response"}
    assert to_result(raw, Usage(1, 2), "next") == Result("Hi", usage=Usage(1, 2), session_id="next")


def test_a_turn_without_an_answer_has_none() -> None:
    assert result(final_response=None, completed=True).text == ""


def test_an_error_is_not_an_answer() -> None:
    assert result(final_response=CUT, error=CUT, partial=True) == Result("", Verdict.TRUNCATED, CUT)


def test_an_answer_that_was_cut_short_stays_one() -> None:
    assert result(final_response="Once upon", error=CUT, partial=True) == Result(
        "Once upon", Verdict.TRUNCATED, CUT
    )


def test_a_note_about_an_interrupt_is_not_an_answer() -> None:
    raw = {
        "final_response": "Operation interrupted.",
        "interrupted": True,
        "interrupt_message": "stop",
    }
    assert result(**raw) == Result("", Verdict.INTERRUPTED, "stop")


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        ({"failed": True, "error": "a", "failure_reason": "b"}, "a"),
        ({"failed": True, "error": None, "failure_reason": "b"}, "b"),
        ({"turn_exit_reason": "max_iterations_reached(3/3)"}, "max_iterations_reached(3/3)"),
        ({"interrupted": True, "turn_exit_reason": "interrupted_by_user"}, "interrupted_by_user"),
        ({"failed": True, "error": ValueError("odd")}, "odd"),
        ({"failed": True}, ""),
    ],
)
def test_the_best_reason_is_reported(raw: dict[str, Any], error: str) -> None:
    assert result(**raw).error == error


def test_tokens_are_counted_by_the_agent() -> None:
    agent = SimpleNamespace(
        session_prompt_tokens=11,
        session_completion_tokens=7,
        session_cache_read_tokens=3,
        session_cache_write_tokens=None,
        session_reasoning_tokens=-1,
    )
    assert usage_of(agent) == Usage(11, 7, cached_tokens=3)
    assert usage_of(object()) == NO_USAGE
