"""What a run needs: the services that all runs of a server share, and the specification of one run."""

from __future__ import annotations

import hashlib
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from attrs import define, field, frozen

from hermes_trio.agent.interface import TurnRequest
from hermes_trio.agent.runner import AgentRuntime
from hermes_trio.core.events import Choice
from hermes_trio.core.jobs import Job
from hermes_trio.core.outcome import Outcome
from hermes_trio.core.records import EndedRun, Ownership, RunHeader
from hermes_trio.runs.admission import Slot
from hermes_trio.runs.disconnects import DETACH, DisconnectPolicy
from hermes_trio.runs.persistence import LogFlusher
from hermes_trio.runs.registry import RunRegistry
from hermes_trio.runs.suspension import SuspendedRun, SuspendedRuns
from hermes_trio.runs.tracker import DEFAULT_LIMITS, RunLimits
from hermes_trio.stores.base import Store

if TYPE_CHECKING:
    from hermes_trio.runs.cluster import Cluster
    from hermes_trio.runs.run import Run

Items = tuple[Mapping[str, Any], ...]
_MAX_FOLDER_CHARS = 100


class Persistence(Enum):
    """What the store keeps of a run."""

    NONE = "none"
    FINAL = "final"  # the record, once it has ended
    FULL = "full"  # that it began, its log, and the record


@frozen
class AgentEnvironment:
    """The runtime and the workspace of the agents of one profile."""

    runtime: AgentRuntime
    workspace: Path


NO_ENVIRONMENTS: Mapping[str, AgentEnvironment] = MappingProxyType({})


@define
class RunStats:
    """Counters for metrics. Written in the Trio thread only, and never once per token."""

    events: int = 0  # changes of the runs that have ended
    tool_calls: Counter[str] = field(factory=Counter)  # of the runs that have ended, by status
    open_streams: int = 0


@frozen
class Services:
    """What every run of a server shares."""

    runtime: AgentRuntime
    store: Store
    registry: RunRegistry[Run]
    flusher: LogFlusher
    workspace: Path
    limits: RunLimits = DEFAULT_LIMITS
    owner: str = "server"  # the name of this node
    wall_clock: Callable[[], float] = time.time
    clock: Callable[[], float] = time.monotonic
    on_end: Callable[[Outcome, float], None] = lambda outcome, seconds: None  # noqa: ARG005 - called at the end of every run
    # by profile; the default has its own above
    environments: Mapping[str, AgentEnvironment] = NO_ENVIRONMENTS
    on_first_text: Callable[[float], None] = lambda seconds: None  # noqa: ARG005 - seconds after the run began
    stats: RunStats = field(factory=RunStats)
    suspended: SuspendedRuns = field(factory=SuspendedRuns)
    # the principal that works in the workspace itself, while others have one beside it; "" if all
    # share it
    workspace_owner: str = ""
    # the other nodes, if the store is shared
    cluster: Cluster | None = None
    ownership: Ownership = field(init=False)  # of the runs that begin here
    _default_environment: AgentEnvironment = field(init=False)

    def environment(self, profile: str) -> AgentEnvironment:
        """Return the environment of a profile, "" for the default."""
        return self.environments[profile] if profile else self._default_environment

    def workspace_of(self, profile: str, principal: str) -> Path:
        """Return the workspace of a principal in a profile. It need not exist."""
        workspace = self.environment(profile).workspace
        if self.workspace_owner in ("", principal):
            return workspace
        # Quoted names are unique, even where the file system ignores case.
        name = re.sub(r"[^a-z0-9_-]", lambda found: f"%{found[0].encode().hex()}", principal)
        if len(name) > _MAX_FOLDER_CHARS:
            name = hashlib.sha256(principal.encode()).hexdigest()
        return workspace.with_name("workspaces") / name

    @ownership.default
    def _make_ownership(self) -> Ownership:
        return Ownership(self.owner)

    @_default_environment.default
    def _make_default_environment(self) -> AgentEnvironment:
        return AgentEnvironment(self.runtime, self.workspace)


@frozen
class ContinuedRun:
    """The suspended run that a new run continues, and the answers to its approval requests."""

    run: SuspendedRun
    choices: Mapping[str, Choice]  # by the id of the request; the others are asked again


@frozen
class RunSpec:
    """Everything that is needed to start one run."""

    header: RunHeader
    turn: TurnRequest
    slot: Slot  # released when nothing of the agent is left
    session_lock: Slot | None = None  # released when the run is saved, or has ended without
    persistence: Persistence = Persistence.FINAL
    on_disconnect: DisconnectPolicy = DETACH
    can_ask: bool = False  # a client sees approval requests in time to answer them
    # the items that its conversation gains; None: it has no conversation
    to_items: Callable[[EndedRun], Items] | None = None
    # who uses the principal's key, "" if unknown; approvals are remembered for them
    end_user: str = ""
    # an approval request ends the reply, and the next message answers it
    asks_in_chat: bool = False
    # Ends with approval requests instead of waiting for the answers; for runs in the server's nursery
    can_suspend: bool = False
    continues: ContinuedRun | None = None  # instead of starting an agent
    job: Job | None = None  # that starts it: what becomes of the job when the run begins
