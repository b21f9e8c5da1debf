"""What a run is made of and what it is to do: values that others hand to it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from attrs import define, field, frozen

from hermes_trio.agent.interface import TurnRequest
from hermes_trio.agent.runner import AgentRuntime
from hermes_trio.core.outcome import Outcome
from hermes_trio.core.records import EndedRun, RunHeader
from hermes_trio.runs.admission import Slot
from hermes_trio.runs.flusher import Flusher
from hermes_trio.runs.presence import DETACH, DisconnectPolicy
from hermes_trio.runs.registry import Registry
from hermes_trio.runs.tracker import DEFAULT_LIMITS, Limits
from hermes_trio.stores.base import Store

if TYPE_CHECKING:
    from hermes_trio.runs.run import Run

Items = tuple[Mapping[str, Any], ...]


class Persistence(Enum):
    """What the store keeps of a run."""

    NONE = "none"
    FINAL = "final"  # the record, once it has ended
    FULL = "full"  # that it began, its log, and the record


@frozen
class AgentEnvironment:
    """Where the agents of one profile work."""

    host: AgentRuntime
    workspace: Path


NO_ENVIRONMENTS: Mapping[str, AgentEnvironment] = MappingProxyType({})


@define
class RunStats:
    """Counters for metrics. Written in the Trio thread only, and never once per token."""

    events: int = 0  # changes of the runs that have ended
    open_streams: int = 0


@frozen
class Services:
    """What every run of a server shares."""

    host: AgentRuntime
    store: Store
    registry: Registry[Run]
    flusher: Flusher
    workspace: Path
    limits: Limits = DEFAULT_LIMITS
    owner: str = "server"
    wall_clock: Callable[[], float] = time.time
    clock: Callable[[], float] = time.monotonic
    on_end: Callable[[Outcome, float], None] = lambda outcome, seconds: None  # noqa: ARG005 - told of every end
    environments: Mapping[str, AgentEnvironment] = (
        NO_ENVIRONMENTS  # of the profiles, by name; those above are for everybody else
    )
    on_first_text: Callable[[float], None] = lambda seconds: None  # noqa: ARG005 - seconds after the run began
    stats: RunStats = field(factory=RunStats)
    _default_environment: AgentEnvironment = field(init=False)

    def environment(self, profile: str) -> AgentEnvironment:
        """Where a turn is done."""
        return self.environments[profile] if profile else self._default_environment

    @_default_environment.default
    def _make_default_environment(self) -> AgentEnvironment:
        return AgentEnvironment(self.host, self.workspace)


@frozen
class RunSpec:
    """One run to be made."""

    header: RunHeader
    turn: TurnRequest
    slot: Slot  # free when nothing of the agent is left
    turnstile: Slot | None = None  # free when the run is saved, or has ended without
    keep: Persistence = Persistence.FINAL
    policy: DisconnectPolicy = DETACH
    can_ask: bool = False  # somebody sees the agent's questions in time to answer them
    to_items: Callable[[EndedRun], Items] = lambda ended: ()  # noqa: ARG005 - what its conversation gains
