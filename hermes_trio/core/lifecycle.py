"""The life of a tool call, of a turn and of a run: three small machines, each one table.

A call::

    (new) --start--> running --finish--> completed
                        |
                        +-----abandon--> cancelled

A turn::

    open --end--> ended

A run::

    queued --begin--> running <--ask, answer--> waiting_for_approval
       |                 |                            |
       +------stop-------+-----------stop-------------+---> stopping
                         |                                     |
                         +--complete, fail, cancel-------------+---> completed, failed, cancelled

Everything that may happen stands in a table. A move that does not raises ``IllegalMove`` and changes nothing,
because the machines hold no state themselves: they map a state and a move to the next state.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType


class IllegalMove(Exception):
    """A move that the table does not know. It is our own mistake, never a client's."""


class CallState(StrEnum):
    """Where a tool call stands."""

    NEW = "new"
    RUNNING = "running"
    COMPLETED = "completed"
    CANCELLED = "cancelled"


class CallMove(StrEnum):
    """What can happen to a tool call."""

    START = "start"
    FINISH = "finish"
    ABANDON = "abandon"


class TurnState(StrEnum):
    """Where a turn stands."""

    OPEN = "open"
    ENDED = "ended"


class TurnMove(StrEnum):
    """What can happen to a turn."""

    END = "end"


class RunState(StrEnum):
    """Where a run stands, in the words of the Runs API."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting_for_approval"
    STOPPING = "stopping"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class RunMove(StrEnum):
    """What can happen to a run."""

    BEGIN = "begin"
    ASK = "ask"
    ANSWER = "answer"  # the last open question
    STOP = "stop"
    COMPLETE = "complete"
    FAIL = "fail"
    CANCEL = "cancel"


CALL_MOVES: Mapping[tuple[CallState, CallMove], CallState] = MappingProxyType(
    {
        (CallState.NEW, CallMove.START): CallState.RUNNING,
        (CallState.RUNNING, CallMove.FINISH): CallState.COMPLETED,
        (CallState.RUNNING, CallMove.ABANDON): CallState.CANCELLED,
    }
)
TURN_MOVES: Mapping[tuple[TurnState, TurnMove], TurnState] = MappingProxyType(
    {(TurnState.OPEN, TurnMove.END): TurnState.ENDED}
)
RUN_ENDS: Mapping[RunMove, RunState] = MappingProxyType(
    {
        RunMove.COMPLETE: RunState.COMPLETED,
        RunMove.FAIL: RunState.FAILED,
        RunMove.CANCEL: RunState.CANCELLED,
    }
)
ENDED_STATES = frozenset(RUN_ENDS.values())
# A run that is told to stop may still finish first, or fail: what it is in the end, its end tells.
RUN_MOVES: Mapping[tuple[RunState, RunMove], RunState] = MappingProxyType(
    {
        (RunState.QUEUED, RunMove.BEGIN): RunState.RUNNING,
        (RunState.QUEUED, RunMove.STOP): RunState.STOPPING,
        (RunState.RUNNING, RunMove.ASK): RunState.WAITING,
        (RunState.RUNNING, RunMove.STOP): RunState.STOPPING,
        (RunState.WAITING, RunMove.ASK): RunState.WAITING,
        (RunState.WAITING, RunMove.ANSWER): RunState.RUNNING,
        (RunState.WAITING, RunMove.STOP): RunState.STOPPING,
        (RunState.STOPPING, RunMove.BEGIN): RunState.STOPPING,
        (RunState.STOPPING, RunMove.ASK): RunState.STOPPING,
        (RunState.STOPPING, RunMove.ANSWER): RunState.STOPPING,
        (RunState.STOPPING, RunMove.STOP): RunState.STOPPING,
        **{(state, move): end for state in (RunState.QUEUED, RunState.RUNNING, RunState.STOPPING)
           for move, end in RUN_ENDS.items()},
    }
)  # fmt: skip


def move_call(state: CallState, move: CallMove) -> CallState:
    """The state of a call after a move.

    Raises:
        IllegalMove: the table has no such move.
    """
    try:
        return CALL_MOVES[state, move]
    except KeyError:
        raise _illegal(state, move) from None


def move_turn(state: TurnState, move: TurnMove) -> TurnState:
    """The state of a turn after a move.

    Raises:
        IllegalMove: the table has no such move.
    """
    try:
        return TURN_MOVES[state, move]
    except KeyError:
        raise _illegal(state, move) from None


def move_run(state: RunState, move: RunMove) -> RunState:
    """The state of a run after a move.

    Raises:
        IllegalMove: the table has no such move.
    """
    try:
        return RUN_MOVES[state, move]
    except KeyError:
        raise _illegal(state, move) from None


def _illegal(state: StrEnum, move: StrEnum) -> IllegalMove:
    return IllegalMove(f"what is {state} cannot {move}")
