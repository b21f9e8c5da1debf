"""Build a server from settings: open its agents and its store, and make its application.

This is the only module that knows all parts by name.
"""

from __future__ import annotations

import os
import resource
import secrets
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache, partial
from typing import Any

import structlog
import trio
from attrs import define, evolve, field, frozen

from hermes_trio.agent.interface import AgentFactory, AgentProvider
from hermes_trio.agent.runner import AgentRuntime
from hermes_trio.agents.registry import open_agent
from hermes_trio.channels import whatsapp
from hermes_trio.core.access import Principal, Quota
from hermes_trio.core.errors import ConfigurationError
from hermes_trio.core.gateway import GatewayStatus, normalize_gateway_url
from hermes_trio.core.outcome import Reason
from hermes_trio.core.records import Ownership, Retention
from hermes_trio.gateway_probe import Gateway, probe
from hermes_trio.jobs.scheduler import JobRules, MissedJobs, Scheduler
from hermes_trio.jobs.zones import find_zone
from hermes_trio.keys import (
    DEFAULT_PRINCIPAL,
    ActiveKeys,
    check_keys,
    log_doubtful_keys,
)
from hermes_trio.log_tail import PROCESS_TAIL
from hermes_trio.preparation import (
    DEFAULT_PROFILE,
    Agents,
    ConfiguredAgent,
    Prepared,
    key_sources,
    prepare,
)
from hermes_trio.runs.admission import Admission, BodyBudget, SessionLocks
from hermes_trio.runs.cluster import Cluster
from hermes_trio.runs.cluster_runs import ClusterRuns
from hermes_trio.runs.disconnects import parse_policy
from hermes_trio.runs.leases import LeaseStatus, open_lease
from hermes_trio.runs.persistence import LogFlusher, StoreMonitor, enforce_retention
from hermes_trio.runs.registry import RunRegistry
from hermes_trio.runs.run import Run
from hermes_trio.runs.session_locks import SharedSessionLocks
from hermes_trio.runs.spec import AgentEnvironment, Services
from hermes_trio.runs.supervisor import RunSupervisor, open_supervisor
from hermes_trio.runs.tracker import RunLimits
from hermes_trio.schema.replies import ShownSetting
from hermes_trio.server.tuning import return_memory
from hermes_trio.settings import Settings, load
from hermes_trio.settings import options as known_options
from hermes_trio.settings.display import display_settings
from hermes_trio.stores.base import SharedStore, Store, StoreError
from hermes_trio.stores.factory import InMemory, PostgresUrl, SqliteFile, open_store
from hermes_trio.tokens import Purpose, TokenSigner
from hermes_trio.tools.sandbox import open_sandbox
from hermes_trio.web.api.metric_history import record_history
from hermes_trio.web.api.responses import to_items
from hermes_trio.web.app import Application, attach_state, detach_state, has_state, make_app
from hermes_trio.web.metrics import Metrics
from hermes_trio.web.start_job import start_job
from hermes_trio.web.state import (
    AppState,
    HealthCallbacks,
    IdentifyToken,
    LogFeed,
    ServedProfile,
    WebOptions,
)

log = structlog.get_logger(__name__)

# Interrupts return at once; should one hang, the others must not wait for it.
INTERRUPT_THREADS = 1_000


# -- the server --


@define
class ReadinessFlag:
    """Whether the server is ready, which requires a working store."""

    monitor: StoreMonitor
    lease: LeaseStatus = field(factory=LeaseStatus)
    not_ready: str = "starting"  # or why else the server is not ready; "" if it is
    store_fallback: str = ""  # why records are kept in memory instead; "" if they are not

    def explain(self) -> str:
        """Return why the server is not ready, for everyone to read; "" if it is."""
        store_problem = "the store does not work" if self.monitor.problem else ""
        return self.not_ready or store_problem or self.lease.problem


@frozen
class Server:
    """A server that can take requests. Its application is a plain Quart application."""

    app: Application
    state: AppState
    admission: Admission
    registry: RunRegistry[Run]
    readiness: ReadinessFlag


@asynccontextmanager
async def open_server(prepared: Prepared, app: Application | None = None) -> AsyncIterator[Server]:
    """Open the store and the agents, recover the runs of a crashed server, and build the application.

    An application that was made before is given the state that its requests need. The store
    outlives the agents, these outlive the runs, and the runs outlive the requests.

    Raises:
        ConfigurationError: an agent cannot be opened as it is configured, or its workspace cannot
            be made.
        StoreError: the store cannot be opened.
    """
    settings = prepared.settings
    thread_limits = ThreadLimits(
        # With thousands of threads, those that wait for the interpreter wake at every switch
        # interval and starve its holder.
        trio.CapacityLimiter(settings.max_agent_threads),
        trio.CapacityLimiter(INTERRUPT_THREADS),
        settings.interrupt_grace_seconds,
    )
    async with (
        _open_store(settings) as (store, fallback),
        open_agents(prepared.agents, thread_limits) as environments,
    ):
        metrics = Metrics()
        services = _services(settings, store, environments, metrics)
        address = f"{socket.gethostname()}:{settings.port}"
        async with (
            open_lease(services, to_items, address) as lease,
            open_supervisor(services) as supervisor,
        ):
            supervisor.nursery.start_soon(enforce_retention, store, _retention(settings))
            readiness = ReadinessFlag(
                StoreMonitor(store, metrics.store_answered), lease, store_fallback=fallback
            )
            supervisor.nursery.start_soon(readiness.monitor.run)
            if services.cluster is not None:
                supervisor.nursery.start_soon(services.cluster.run)
            app = app or make_server_app(settings)
            try:
                server = _attach(app, prepared, services, supervisor, metrics, readiness)
                supervisor.nursery.start_soon(record_history, server.state)
                scheduler = server.state.scheduler
                start = partial(start_job, server.state, scheduler.zone)
                supervisor.nursery.start_soon(scheduler.run, start)
                async with _open_channels(app, settings, server.state):
                    yield server
            finally:
                detach_state(app)


@asynccontextmanager
async def _open_store(settings: Settings) -> AsyncIterator[tuple[Store, str]]:
    """Open the store, or one in memory if the settings allow that.

    Also yield why the store could not be opened, "" if it could.

    Raises:
        StoreError: it cannot be opened, and must be.
    """
    opening = open_store(settings.store_location, settings.check_database, settings.lease_seconds)
    async with AsyncExitStack() as stack:
        problem = ""
        try:
            store = await stack.enter_async_context(opening)
        except StoreError as error:
            if settings.store_fallback != "memory":
                raise
            problem = str(error)
            log.critical(
                "the store cannot be opened; all records will be lost when the server stops",
                error=problem,
            )
            store = await stack.enter_async_context(open_store(InMemory()))
        yield store, problem


def make_server_app(settings: Settings) -> Application:
    """Make the application of a server. ``open_server`` gives it what its requests need."""
    app = make_app(web_options(settings))
    if settings.channels.whatsapp is not None:
        app.register_blueprint(whatsapp.blueprint)
    return app


def _services(
    settings: Settings, store: Store, environments: Mapping[str, AgentEnvironment], metrics: Metrics
) -> Services:
    node = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
    is_strict = settings.stream_durability == "strict"
    registry: RunRegistry[Run] = RunRegistry()
    return Services(
        runtime=environments[DEFAULT_PROFILE].runtime,
        store=store,
        registry=registry,
        flusher=LogFlusher(store, is_strict=is_strict, ownership=Ownership(node)),
        workspace=environments[DEFAULT_PROFILE].workspace,
        environments=environments,
        workspace_owner="" if settings.shared_workspace else DEFAULT_PRINCIPAL,
        limits=RunLimits(
            run=settings.run_seconds,
            stall=settings.stall_seconds,
            approval=settings.approval_seconds,
            ahead=settings.max_buffered_chars,
        ),
        owner=node,
        on_end=metrics.run_ended,
        on_first_text=metrics.first_text,
        cluster=Cluster(store, store, node, registry) if isinstance(store, SharedStore) else None,
    )


def _session_locks(
    settings: Settings, services: Services, supervisor: RunSupervisor
) -> SessionLocks:
    wait_seconds = settings.busy_wait_seconds if settings.busy_session == "wait" else 0.0
    if not isinstance(services.store, SharedStore):
        return SessionLocks(wait_seconds)
    locks = SharedSessionLocks(wait_seconds, services.store, services.owner)
    supervisor.nursery.start_soon(locks.run)
    return locks


def _attach(
    app: Application,
    prepared: Prepared,
    services: Services,
    supervisor: RunSupervisor,
    metrics: Metrics,
    readiness: ReadinessFlag,
) -> Server:
    """Give the application the state that its requests share."""
    settings = prepared.settings
    secret, keys = prepared.token_secret, ActiveKeys(prepared.keys.keyring)
    principals = keys.keyring.principal_count
    admission = _admission(settings, principals)
    admission.cluster = _cluster_runs(settings, services, supervisor)
    state = AppState(
        web_options(settings),
        keys,
        _open_verifier(keys),
        TokenSigner(Purpose.STREAM_TICKET, secret, keys),
        TokenSigner(Purpose.PAGE_SESSION, secret, keys),
        admission,
        BodyBudget(settings.max_total_body_bytes, principals, settings.body_seconds, return_memory),
        _session_locks(settings, services, supervisor),
        services,
        supervisor,
        HealthCallbacks(
            readiness.explain,
            lambda: {"pid": os.getpid(), "updated_at": time.time()},
            lambda: readiness.monitor.problem,
            prepared.workers,
            readiness.store_fallback,
            _store_kind(settings, readiness),
            services.clock(),
            _gateway_probe(settings),
        ),
        metrics,
        Scheduler(
            services.store,
            services.wall_clock,
            JobRules(find_zone(settings.timezone), MissedJobs(settings.missed_jobs)),
        ),
        log_feed=LogFeed(PROCESS_TAIL),
    )
    attach_state(app, state)
    return Server(app, state, admission, services.registry, readiness)


def _store_kind(settings: Settings, readiness: ReadinessFlag) -> str:
    match settings.store_location:
        case _ if readiness.store_fallback:
            return "memory"
        case SqliteFile():
            return "sqlite"
        case PostgresUrl():
            return "postgresql"
        case InMemory():
            return "memory"


def _gateway_probe(settings: Settings) -> Callable[[], Awaitable[GatewayStatus]] | None:
    """Return what asks the gateway that the settings name, None if they name none."""
    if not settings.gateway_health_url:
        return None
    gateway = Gateway(
        normalize_gateway_url(settings.gateway_health_url),
        settings.gateway_health_seconds,
        settings.gateway_health_key,
    )
    return partial(probe, gateway)


def _open_verifier(keys: ActiveKeys) -> IdentifyToken:
    """Return what identifies the tokens of an issuer, also of one that a reload adds."""

    @cache
    def load_verifier() -> IdentifyToken:
        from hermes_trio.oidc import OidcVerifier  # noqa: PLC0415  # needs an extra

        return OidcVerifier(keys).identify

    async def identify(token: str) -> Principal | None:
        return None if keys.keyring.oidc is None else await load_verifier()(token)

    return identify


def _cluster_runs(
    settings: Settings, services: Services, supervisor: RunSupervisor
) -> ClusterRuns | None:
    limit = settings.max_cluster_runs_per_principal
    if not limit or not isinstance(services.store, SharedStore):
        return None
    runs = ClusterRuns(services.store, services.owner, limit)
    supervisor.nursery.start_soon(runs.run)
    return runs


def _admission(settings: Settings, principals: int) -> Admission:
    quota = Quota(
        runs=settings.max_runs_per_principal,
        runs_per_minute=settings.max_runs_per_minute,
        requests=settings.max_requests_per_principal,
    )
    return Admission(settings.max_runs, _shared_requests(principals), principals, quota)


def _shared_requests(principals: int) -> int:
    """Return how many open requests the principals divide among themselves; 0 means any number."""
    # A connection needs a descriptor. A single principal may use all of them.
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(0, descriptors) if principals > 1 else 0


async def reload_keys(settings: Settings, state: AppState) -> None:
    """Read the key file again, and accept its keys and no others from now on.

    Tickets and page sessions of keys that are gone are invalid at once. Requests that have begun
    are not affected.

    Raises:
        KeysError: the file cannot be used; the former keys remain in force.
    """
    keyring = await trio.to_thread.run_sync(check_keys, key_sources(settings))
    log_doubtful_keys(keyring, settings.profiles)
    state.keys.keyring = keyring
    principals = keyring.principal_count
    state.admission.set_principals(principals, _shared_requests(principals))
    state.bodies.set_principals(principals)


def _retention(settings: Settings) -> Retention:
    return Retention(
        log_seconds=settings.replay_seconds,
        idempotency_seconds=settings.idempotency_seconds,
        max_runs=settings.max_stored_runs,
        max_bytes=settings.max_stored_bytes,
    )


def web_options(settings: Settings) -> WebOptions:
    """Return the settings of the web layer."""
    return WebOptions(
        model_name=settings.model_name,
        cors_origins=settings.cors_origins,
        allowed_hosts=settings.allowed_hosts,
        own_hosts=(settings.host, socket.gethostname()),
        root_path=settings.root_path,
        keepalive_seconds=settings.keepalive_seconds,
        body_seconds=settings.body_seconds,
        max_body_bytes=settings.max_body_bytes,
        open_webui_status=settings.open_webui_status,
        open_webui_tasks=settings.open_webui_tasks,
        task_profile=settings.task_profile,
        approval_replies=settings.approval_replies,
        tool_items=settings.tool_items,
        agent_failure_status=settings.agent_failure_status,
        on_disconnect=parse_policy(settings.on_disconnect),
        access_log=settings.access_log,
        write_through=settings.write_through,
        ticket_seconds=settings.ticket_seconds,
        page_session_seconds=settings.page_session_seconds,
        profiles=tuple(
            ServedProfile(profile.name, profile.model_name, profile.keys)
            for profile in settings.profiles.values()
        ),
        settings=tuple(
            ShownSetting(option.name, option.value, option.help)
            for option in display_settings(settings)
        ),
    )


# -- its resources --


@frozen
class ThreadLimits:
    """What the runtimes of all agents share."""

    threads: trio.CapacityLimiter
    interrupts: trio.CapacityLimiter
    grace_seconds: float


@asynccontextmanager
async def open_agents(
    agents: Agents, limits: ThreadLimits
) -> AsyncIterator[Mapping[str, AgentEnvironment]]:
    """Open all agents in order; at the end of the block they are closed in reverse order.

    Raises:
        ConfigurationError: an agent cannot be opened as it is configured.
    """
    async with AsyncExitStack() as stack:
        yield {name: await _open_agent(agent, limits, stack) for name, agent in agents.items()}


async def _open_agent(
    configured: ConfiguredAgent, limits: ThreadLimits, stack: AsyncExitStack
) -> AgentEnvironment:
    workspace, config = configured.workspace, configured.config
    try:
        workspace.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(
            f"data_dir: {workspace} cannot be made: {error.strerror}"
        ) from None
    # The result is remembered, so that agents need not wait for it.
    await trio.to_thread.run_sync(open_sandbox, config.sandbox)
    try:
        factory = await stack.enter_async_context(open_agent(configured.agent, config, workspace))
    except ConfigurationError as error:
        prefix = f"profiles.{config.profile}: " if config.profile else ""
        raise ConfigurationError(f"{prefix}{error}") from error
    runtime = AgentRuntime(factory, limits.threads, limits.interrupts, limits.grace_seconds, config)
    return AgentEnvironment(runtime, workspace)


@asynccontextmanager
async def _open_channels(
    app: Application, settings: Settings, state: AppState
) -> AsyncIterator[None]:
    """Open the channels that are configured, for the length of the block."""
    async with AsyncExitStack() as stack:
        if settings.channels.whatsapp is not None:
            await stack.enter_async_context(
                whatsapp.open_whatsapp(app, settings.channels.whatsapp, state)
            )
        yield


# -- the application for programs that embed it --

_PREPARED_KEY = "hermes_trio.prepared"  # in ``app.extensions``

WhileOpen = Callable[..., Awaitable[None]]  # takes the server, and ``task_status`` as in Trio


def create_app(
    settings: Settings | None = None,
    *,
    agent: str | AgentFactory | AgentProvider = "",
    **options: Any,
) -> Application:
    """Make the server's Quart application, with a lifespan that opens and closes the server.

    Hooks and routes can be added until the first request. Serve it with :func:`hermes_trio.serve`,
    mount it in another ASGI application that passes on the lifespan, or call it with
    ``app.test_app()``.

    Args:
        settings: all settings. Without them, options, environment and configuration file are read
            as the command line
            reads them.
        agent: the server's agent: a factory, a provider, or the name of one.
        options: settings by name, as in the configuration file: ``port=8000``, ``store="memory:"``,
            …

    Raises:
        ConfigurationError: the server cannot start as it is configured. The text is one line.
    """
    if isinstance(agent, str):
        given, found = agent, None
    else:  # the name is only displayed
        named = agent if hasattr(agent, "__qualname__") else type(agent)
        given, found = f"{named.__module__}:{named.__qualname__}", agent
    if settings is None:
        flags = {**options, "agent": given} if given else options
        if unknown := sorted(options.keys() - known_options().keys()):
            raise ConfigurationError(f"there is no option {unknown[0]!r}")
        loaded = load(flags, os.environ, None)
        for warning in loaded.warnings:
            log.warning(warning)
        settings = loaded.settings
    elif options:
        raise TypeError("give either settings or options")
    elif given:
        settings = evolve(settings, agent=given)
    prepared = prepare(settings, found)
    app = make_server_app(prepared.settings)
    app.extensions[_PREPARED_KEY] = prepared
    open_in_lifespan(app, lambda: prepared)
    return app


def prepared_of(app: Application) -> Prepared:
    """Return the prepared server of an application from ``create_app``.

    Raises:
        TypeError: it is another application.
    """
    try:
        prepared: Prepared = app.extensions[_PREPARED_KEY]
    except KeyError:
        raise TypeError("the application was not made by create_app()") from None
    return prepared


def open_in_lifespan(
    app: Application, prepare: Callable[[], Prepared], while_open: WhileOpen | None = None
) -> None:
    """Open the server of an application when its lifespan starts, and close it at the end.

    A server that is open already stays as it is.

    Args:
        app: the application.
        prepare: called at the start of the lifespan.
        while_open: runs for as long as the server is open; the lifespan waits until it has started.
    """
    app.asgi_app = LifespanMiddleware(app, prepare, while_open)  # type: ignore[method-assign]  # Quart's documented place for middleware


class LifespanMiddleware:
    """ASGI middleware that opens the server when the lifespan starts, unless it is open, and closes it at the end."""

    def __init__(
        self, app: Application, prepare: Callable[[], Prepared], while_open: WhileOpen | None
    ) -> None:
        self._app, self._inner = app, app.asgi_app
        self._prepare, self._while_open = prepare, while_open

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle one connection scope."""
        if scope["type"] == "lifespan" and not has_state(self._app):
            await self._run(scope, receive, send)
        else:
            await self._inner(scope, receive, send)

    async def _run(self, scope: Any, receive: Any, send: Any) -> None:
        last: list[Any] = []
        phase = "startup"

        async def hold_back_end(message: Any) -> None:
            # After "shutdown complete" the lifespan may be cancelled, so it is sent when everything
            # is closed.
            if message["type"] == "lifespan.shutdown.complete":
                last.append(message)
            else:
                await send(message)

        try:
            async with open_server(self._prepare(), self._app) as server:
                async with trio.open_nursery() as nursery:
                    if self._while_open is not None:
                        await nursery.start(self._while_open, server)
                    phase = "shutdown"
                    server.readiness.not_ready = ""
                    await self._inner(scope, receive, hold_back_end)
                    nursery.cancel_scope.cancel()
                server.registry.stop_all(Reason.SERVER_SHUTDOWN)
                await server.registry.wait_empty()
        except Exception as error:
            log.exception("the server cannot run")
            if phase == "startup":
                await receive()
            last = [{"type": f"lifespan.{phase}.failed", "message": str(unwrap_group(error))}]
        for message in last:
            await send(message)


def unwrap_group(error: BaseException) -> BaseException:
    """Return the one exception inside groups of one, as nurseries wrap what their block raises."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
