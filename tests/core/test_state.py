"""The tables of moves: what they allow, and that everything else raises and changes nothing."""

from __future__ import annotations

from itertools import product

import pytest

from hermes_trio.core.state import (
    CALL_TRANSITIONS,
    RUN_ENDS,
    RUN_TRANSITIONS,
    TURN_TRANSITIONS,
    CallState,
    CallTransition,
    InvalidTransition,
    RunState,
    RunTransition,
    TurnState,
    TurnTransition,
    next_call_state,
    next_run_state,
    next_turn_state,
)
from hermes_trio.core.tool_calls import Call


@pytest.mark.parametrize(("state", "move"), list(product(CallState, CallTransition)))
def test_calls_move_by_the_table_only(state: CallState, move: CallTransition) -> None:
    if (state, move) in CALL_TRANSITIONS:
        assert next_call_state(state, move) is CALL_TRANSITIONS[state, move]
    else:
        with pytest.raises(InvalidTransition, match=f"cannot {move} in state {state}"):
            next_call_state(state, move)


@pytest.mark.parametrize(("state", "move"), list(product(TurnState, TurnTransition)))
def test_turns_move_by_the_table_only(state: TurnState, move: TurnTransition) -> None:
    if (state, move) in TURN_TRANSITIONS:
        assert next_turn_state(state, move) is TURN_TRANSITIONS[state, move]
    else:
        with pytest.raises(InvalidTransition, match="cannot end in state ended"):
            next_turn_state(state, move)


@pytest.mark.parametrize(("state", "move"), list(product(RunState, RunTransition)))
def test_runs_move_by_the_table_only(state: RunState, move: RunTransition) -> None:
    if (state, move) in RUN_TRANSITIONS:
        assert next_run_state(state, move) is RUN_TRANSITIONS[state, move]
    else:
        with pytest.raises(InvalidTransition, match=f"cannot {move} in state {state}"):
            next_run_state(state, move)


def test_an_illegal_move_leaves_the_call_as_it_was() -> None:
    call = Call(0, "x", "t", {}, 0.0, reports_end=True)
    call.start()
    call.finish("r", is_error=False, at=1.0)
    before = call.as_item()
    for move in (
        call.start,
        lambda: call.abandon(2.0),
        lambda: call.finish("other", is_error=True, at=2.0),
    ):
        with pytest.raises(InvalidTransition):
            move()
    assert call.as_item() == before


def test_ended_states_have_no_way_out() -> None:
    assert {state for state, _ in CALL_TRANSITIONS}.isdisjoint(
        {CallState.COMPLETED, CallState.CANCELLED}
    )
    assert {state for state, _ in RUN_TRANSITIONS}.isdisjoint(RUN_ENDS.values())


def test_every_run_can_end_wherever_it_stands() -> None:
    """The end resolves open approval requests first."""
    live = set(RunState) - set(RUN_ENDS.values())
    for state in live - {RunState.WAITING}:
        assert {next_run_state(state, move) for move in RUN_ENDS} == set(RUN_ENDS.values())
    assert next_run_state(RunState.WAITING, RunTransition.ANSWER) is RunState.RUNNING
    assert all(next_run_state(state, RunTransition.STOP) is RunState.STOPPING for state in live)
