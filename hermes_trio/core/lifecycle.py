"""The life of a tool call and of a turn: two small machines, each one table.

A call::

    (new) --start--> running --finish--> completed
                        |
                        +-----abandon--> cancelled

A turn::

    open --end--> ended

Everything that may happen stands in a table. A move that does not raises ``IllegalMove`` and changes nothing,
because the machines hold no state themselves: they map a state and a move to the next state.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import TypeVar


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


S = TypeVar("S", bound=StrEnum)
M = TypeVar("M", bound=StrEnum)


def move_call(state: CallState, move: CallMove) -> CallState:
    """The state of a call after a move.

    Raises:
        IllegalMove: the table has no such move.
    """
    return _moved(CALL_MOVES, state, move)


def move_turn(state: TurnState, move: TurnMove) -> TurnState:
    """The state of a turn after a move.

    Raises:
        IllegalMove: the table has no such move.
    """
    return _moved(TURN_MOVES, state, move)


def _moved(table: Mapping[tuple[S, M], S], state: S, move: M) -> S:
    try:
        return table[state, move]
    except KeyError:
        raise IllegalMove(f"what is {state} cannot {move}") from None
