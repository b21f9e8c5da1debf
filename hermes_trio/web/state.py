"""Options and shared state of the web application."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from attrs import field, frozen

from hermes_trio.core.access import Principal
from hermes_trio.core.dialects.chat import AGENT_FAILED
from hermes_trio.core.gateway import GatewayStatus
from hermes_trio.core.metric_history import MetricHistory
from hermes_trio.jobs.scheduler import Scheduler
from hermes_trio.keys import ActiveKeys
from hermes_trio.log_tail import LogTail
from hermes_trio.runs.admission import Admission, BodyBudget, SessionLocks
from hermes_trio.runs.disconnects import INTERRUPT, DisconnectPolicy
from hermes_trio.runs.spec import Services
from hermes_trio.runs.supervisor import RunSupervisor
from hermes_trio.schema.replies import ShownSetting
from hermes_trio.tokens import TokenSigner
from hermes_trio.web.metrics import Metrics
from hermes_trio.web.workers import Workers


@frozen
class ServedProfile:
    """A profile as clients see it."""

    name: str
    model_name: str
    principals: tuple[str, ...] = ()  # who may use it; () for all

    def admits(self, principal: str) -> bool:
        """Return whether a principal may use the profile, or learn that it exists."""
        return not self.principals or principal in self.principals


@frozen
class WebOptions:
    """Settings of the web layer, already validated."""

    model_name: str = "hermes-agent"
    cors_origins: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()  # () for the local names on loopback addresses, else all
    own_hosts: tuple[str, ...] = ()  # names of this machine, in addition to localhost
    root_path: str = ""  # below which a proxy serves the application; a proxy may strip it or not
    keepalive_seconds: float = 10.0
    body_seconds: float = 20.0
    max_body_bytes: int = 10_000_000
    open_webui_status: str = "auto"  # auto, on or off
    open_webui_tasks: str = "auto"  # auto, on or off
    approval_replies: bool = False  # unless a request says otherwise
    task_profile: str = ""  # the profile that handles background tasks of front ends
    tool_items: str = "auto"  # auto, or a value of ToolItems
    # of a batch reply whose agent failed after it had begun
    agent_failure_status: int = AGENT_FAILED
    on_disconnect: DisconnectPolicy = INTERRUPT  # unless a request says otherwise
    access_log: bool = True
    write_through: bool = True  # where the server offers it
    ticket_seconds: int = 60
    page_session_seconds: int = 43_200
    profiles: tuple[ServedProfile, ...] = ()
    settings: tuple[ShownSetting, ...] = ()


# Takes a bearer token and returns its principal, None if it is for nobody here, or raises ApiError.
IdentifyToken = Callable[[str], Awaitable[Principal | None]]


@frozen
class HealthCallbacks:
    """The callbacks of the health routes."""

    is_ready: Callable[[], str]  # "" when ready, else the reason
    details: Callable[[], Mapping[str, Any]]
    # why the store cannot be written to, "" if nothing is known against it
    store_problem: Callable[[], str] = lambda: ""
    workers: Workers | None = None  # if several processes serve together
    # why records are kept in memory instead of the store, "" if they are not
    store_fallback: str = ""
    store_kind: str = "memory"  # sqlite, postgresql or memory
    started: float = 0.0  # by the clock of the services
    # asks another gateway, whose status is then shown instead of this server's
    probe_gateway: Callable[[], Awaitable[GatewayStatus]] | None = None


class LogFeed:
    """The log of this process for the clients of one server. Trio thread only, except for the tail."""

    def __init__(self, tail: LogTail) -> None:
        self.tail = tail
        self.is_closed = False
        self._wakes: set[Callable[[], None]] = set()

    @contextmanager
    def open_stream(self, wake: Callable[[], None]) -> Iterator[None]:
        """Have `wake` called when the feed is closed while the block runs."""
        self._wakes.add(wake)
        try:
            yield
        finally:
            self._wakes.discard(wake)

    def close(self) -> None:
        """End all streams; they would go on for as long as their clients listen."""
        self.is_closed = True
        for wake in self._wakes:
            wake()


@frozen
class AppState:
    """What all requests of an application share."""

    options: WebOptions
    keys: ActiveKeys
    identify_token: IdentifyToken
    tickets: TokenSigner  # each for the event stream of one run
    page_sessions: TokenSigner  # cookies of the web page
    admission: Admission
    bodies: BodyBudget
    session_locks: SessionLocks
    services: Services
    supervisor: RunSupervisor
    health: HealthCallbacks
    metrics: Metrics
    scheduler: Scheduler
    history: MetricHistory = field(factory=MetricHistory)
    log_feed: LogFeed = field(factory=lambda: LogFeed(LogTail()))
