"""A turn replayed from its own changes is the same turn."""

from __future__ import annotations

from hypothesis import given

from hermes_trio.core.events import Event
from hermes_trio.core.outcome import Reason
from hermes_trio.core.state import TurnState
from hermes_trio.core.turn import ReplayedTurn, Turn
from tests.support.strategies import last_words, scripts
from tests.support.turn_rules import check_invariants, feed


@given(scripts)
def test_after_every_prefix_the_replayed_turn_is_the_same(script: list[Event]) -> None:
    for length in range(len(script) + 1):
        turn = Turn()
        changes = feed(turn, script[:length])
        replayed = ReplayedTurn(changes)
        assert replayed.turn.state is TurnState.OPEN
        assert [_without_time(item) for item in replayed.turn.items] == [
            _without_time(item) for item in turn.items
        ]
        check_invariants(
            replayed.turn, changes + list(replayed.turn.cancel(Reason.PROCESS_DIED, replayed.at))
        )
        assert replayed.turn.outcome.reason is Reason.PROCESS_DIED


@given(scripts, last_words)
def test_a_log_with_an_end_can_be_ended_again(script: list[Event], last: Event) -> None:
    turn = Turn()
    replayed = ReplayedTurn(feed(turn, [*script, last]))
    replayed.turn.cancel(Reason.PROCESS_DIED, replayed.at)
    assert replayed.turn.text == turn.text


def _without_time(item: object) -> object:
    """Adding up floats may move the last digit of a duration."""
    return repr(item).split("duration=", maxsplit=1)[0]
