"""The rules of records themselves: each violation is found. Needs no database."""

from __future__ import annotations

import pytest

from hermes_trio.core.changes import Change, Ended, TextAdded
from hermes_trio.core.log_codec import encode_changes
from hermes_trio.core.outcome import Outcome, Status
from tests.cluster.records import check_log, check_messages

TEXT, END = TextAdded(0, "hello"), Ended(Outcome(Status.COMPLETED))


def batch(first: int, *changes: Change) -> tuple[int, int, bytes]:
    return first, len(changes), encode_changes(changes)


@pytest.mark.parametrize(
    "batches",
    [
        [batch(0, TEXT, END), batch(2, END)],
        [batch(0, TEXT, END), batch(2, TEXT)],
        [batch(0, TEXT), batch(2, END)],
        [batch(0, TEXT, TEXT), batch(1, TEXT, END)],
        [batch(0, TEXT)],
    ],
    ids=["two ends", "text after the end", "gap", "overlap", "no end"],
)
def test_a_log_of_an_ended_run_has_one_end(batches: list[tuple[int, int, bytes]]) -> None:
    assert [*check_log("run", batches, {"run": "completed"})]


def test_correct_logs_are_accepted() -> None:
    assert [*check_log("run", [batch(0, TEXT), batch(1, TEXT, END)], {"run": "completed"})] == []
    assert [*check_log("run", [batch(0, TEXT)], {"run": "in_progress"})] == []


def test_a_log_with_an_end_belongs_to_a_run_that_has_ended() -> None:
    assert [*check_log("run", [batch(0, END)], {"run": "in_progress"})]


def test_the_messages_of_a_run_are_together() -> None:
    assert [*check_messages([("s", 0, "a"), ("s", 1, "a"), ("s", 2, "b")])] == []
    assert [*check_messages([("s", 0, "a"), ("s", 1, "b"), ("s", 2, "a")])]
    assert [*check_messages([("s", 0, "a"), ("s", 2, "a")])]
