"""The tables of moves: what they allow, and that everything else raises and changes nothing."""

from __future__ import annotations

from itertools import product

import pytest

from hermes_trio.core.calls import Call
from hermes_trio.core.lifecycle import (
    CALL_MOVES,
    RUN_ENDS,
    RUN_MOVES,
    TURN_MOVES,
    CallMove,
    CallState,
    IllegalMove,
    RunMove,
    RunState,
    TurnMove,
    TurnState,
    move_call,
    move_run,
    move_turn,
)


@pytest.mark.parametrize(("state", "move"), list(product(CallState, CallMove)))
def test_calls_move_by_the_table_only(state: CallState, move: CallMove) -> None:
    if (state, move) in CALL_MOVES:
        assert move_call(state, move) is CALL_MOVES[state, move]
    else:
        with pytest.raises(IllegalMove, match=f"what is {state} cannot {move}"):
            move_call(state, move)


@pytest.mark.parametrize(("state", "move"), list(product(TurnState, TurnMove)))
def test_turns_move_by_the_table_only(state: TurnState, move: TurnMove) -> None:
    if (state, move) in TURN_MOVES:
        assert move_turn(state, move) is TURN_MOVES[state, move]
    else:
        with pytest.raises(IllegalMove, match="what is ended cannot end"):
            move_turn(state, move)


@pytest.mark.parametrize(("state", "move"), list(product(RunState, RunMove)))
def test_runs_move_by_the_table_only(state: RunState, move: RunMove) -> None:
    if (state, move) in RUN_MOVES:
        assert move_run(state, move) is RUN_MOVES[state, move]
    else:
        with pytest.raises(IllegalMove, match=f"what is {state} cannot {move}"):
            move_run(state, move)


def test_an_illegal_move_leaves_the_call_as_it_was() -> None:
    call = Call(0, "x", "t", {}, 0.0, has_end=True)
    call.start()
    call.finish("r", is_error=False, at=1.0)
    before = call.as_item()
    for move in (call.start, lambda: call.abandon(2.0), lambda: call.finish("other", is_error=True, at=2.0)):
        with pytest.raises(IllegalMove):
            move()
    assert call.as_item() == before


def test_ended_states_have_no_way_out() -> None:
    assert {state for state, _ in CALL_MOVES}.isdisjoint({CallState.COMPLETED, CallState.CANCELLED})
    assert {state for state, _ in RUN_MOVES}.isdisjoint(RUN_ENDS.values())


def test_every_run_can_end_wherever_it_stands() -> None:
    """One that waits has its question answered first, by the end itself."""
    live = set(RunState) - set(RUN_ENDS.values())
    for state in live - {RunState.WAITING}:
        assert {move_run(state, move) for move in RUN_ENDS} == set(RUN_ENDS.values())
    assert move_run(RunState.WAITING, RunMove.ANSWER) is RunState.RUNNING
    assert all(move_run(state, RunMove.STOP) is RunState.STOPPING for state in live)
