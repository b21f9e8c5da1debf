"""The state machines of a tool call, a turn and a run, each one table.

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

Each machine is a pure function from a state and a transition to the next state. A transition that
the table does not list raises ``InvalidTransition``; the machines hold no state of their own, so
nothing changes then.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import TypeVar

S = TypeVar("S", bound=StrEnum)
T = TypeVar("T", bound=StrEnum)


class InvalidTransition(Exception):
    """A transition that the table does not list.

    A bug in the server, never an error of a client.
    """


class CallState(StrEnum):
    """The state of a tool call."""

    NEW = "new"
    RUNNING = "running"
    COMPLETED = "completed"
    CANCELLED = "cancelled"


class CallTransition(StrEnum):
    """What can happen to a tool call."""

    START = "start"
    FINISH = "finish"
    ABANDON = "abandon"


class TurnState(StrEnum):
    """The state of a turn."""

    OPEN = "open"
    ENDED = "ended"


class TurnTransition(StrEnum):
    """What can happen to a turn."""

    END = "end"


class RunState(StrEnum):
    """The state of a run, in the terms of the Runs API."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting_for_approval"
    STOPPING = "stopping"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class RunTransition(StrEnum):
    """What can happen to a run."""

    BEGIN = "begin"
    ASK = "ask"
    ANSWER = "answer"  # to the last open approval request
    STOP = "stop"
    COMPLETE = "complete"
    FAIL = "fail"
    CANCEL = "cancel"


CALL_TRANSITIONS: Mapping[tuple[CallState, CallTransition], CallState] = MappingProxyType(
    {
        (CallState.NEW, CallTransition.START): CallState.RUNNING,
        (CallState.RUNNING, CallTransition.FINISH): CallState.COMPLETED,
        (CallState.RUNNING, CallTransition.ABANDON): CallState.CANCELLED,
    }
)
TURN_TRANSITIONS: Mapping[tuple[TurnState, TurnTransition], TurnState] = MappingProxyType(
    {(TurnState.OPEN, TurnTransition.END): TurnState.ENDED}
)
RUN_ENDS: Mapping[RunTransition, RunState] = MappingProxyType(
    {
        RunTransition.COMPLETE: RunState.COMPLETED,
        RunTransition.FAIL: RunState.FAILED,
        RunTransition.CANCEL: RunState.CANCELLED,
    }
)
ENDED_STATES = frozenset(RUN_ENDS.values())
# A run that is asked to stop may still complete or fail first; only its end decides.
RUN_TRANSITIONS: Mapping[tuple[RunState, RunTransition], RunState] = MappingProxyType(
    {
        (RunState.QUEUED, RunTransition.BEGIN): RunState.RUNNING,
        (RunState.QUEUED, RunTransition.STOP): RunState.STOPPING,
        (RunState.RUNNING, RunTransition.ASK): RunState.WAITING,
        (RunState.RUNNING, RunTransition.STOP): RunState.STOPPING,
        (RunState.WAITING, RunTransition.ASK): RunState.WAITING,
        (RunState.WAITING, RunTransition.ANSWER): RunState.RUNNING,
        (RunState.WAITING, RunTransition.STOP): RunState.STOPPING,
        (RunState.STOPPING, RunTransition.BEGIN): RunState.STOPPING,
        (RunState.STOPPING, RunTransition.ASK): RunState.STOPPING,
        (RunState.STOPPING, RunTransition.ANSWER): RunState.STOPPING,
        (RunState.STOPPING, RunTransition.STOP): RunState.STOPPING,
        **{(state, transition): end for state in (RunState.QUEUED, RunState.RUNNING, RunState.STOPPING)
           for transition, end in RUN_ENDS.items()},
    }
)  # fmt: skip


def next_call_state(state: CallState, transition: CallTransition) -> CallState:
    """Return the state of a call after a transition.

    Raises:
        InvalidTransition: the table does not list it.
    """
    return _next_state(CALL_TRANSITIONS, state, transition)


def next_turn_state(state: TurnState, transition: TurnTransition) -> TurnState:
    """Return the state of a turn after a transition.

    Raises:
        InvalidTransition: the table does not list it.
    """
    return _next_state(TURN_TRANSITIONS, state, transition)


def next_run_state(state: RunState, transition: RunTransition) -> RunState:
    """Return the state of a run after a transition.

    Raises:
        InvalidTransition: the table does not list it.
    """
    return _next_state(RUN_TRANSITIONS, state, transition)


def _next_state(table: Mapping[tuple[S, T], S], state: S, transition: T) -> S:
    try:
        return table[state, transition]
    except KeyError:
        raise InvalidTransition(f"cannot {transition} in state {state}") from None
