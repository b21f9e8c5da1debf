"""Build a server from settings: its agents, keys, store and application.

This is the only module that knows all parts by name.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import trio
from attrs import define, frozen

from hermes_trio.agent.interface import AgentConfig, AgentFactory, AgentProvider, UpstreamLimits
from hermes_trio.agent.runner import AgentRuntime
from hermes_trio.agents.registry import AgentNotFound, find_agent, open_agent
from hermes_trio.core.errors import ConfigurationError
from hermes_trio.core.outcome import Outcome
from hermes_trio.core.records import Retention
from hermes_trio.keys import DEFAULT_PRINCIPAL, KeySources, OpenedKeys, check_keys, open_keys
from hermes_trio.runs.admission import Admission, SessionLocks
from hermes_trio.runs.disconnects import parse_policy
from hermes_trio.runs.persistence import LogFlusher, enforce_retention
from hermes_trio.runs.recovery import recover
from hermes_trio.runs.registry import RunRegistry
from hermes_trio.runs.run import Run
from hermes_trio.runs.spec import AgentEnvironment, Services
from hermes_trio.runs.supervisor import RunSupervisor, open_supervisor
from hermes_trio.runs.tracker import RunLimits
from hermes_trio.schema.replies import ShownSetting
from hermes_trio.settings import Profile, Settings
from hermes_trio.settings.display import display_settings
from hermes_trio.stores.base import Store
from hermes_trio.stores.factory import open_store
from hermes_trio.web.api.responses import to_items
from hermes_trio.web.app import Application, make_app
from hermes_trio.web.metrics import Metrics
from hermes_trio.web.state import AppState, HealthCallbacks, ServedProfile, WebOptions

DEFAULT_PROFILE = ""  # the profile that the server's own settings describe

# Interrupts return at once; should one hang, the others must not wait for it.
INTERRUPT_THREADS = 1_000


# -- what can fail before anything runs --


@frozen
class ConfiguredAgent:
    """An agent with its configuration, found but not yet opened."""

    agent: AgentFactory | AgentProvider
    config: AgentConfig
    workspace: Path


Agents = Mapping[str, ConfiguredAgent]  # by profile


@frozen
class Prepared:
    """The agents and keys of a server that has not been opened."""

    settings: Settings
    keys: OpenedKeys
    agents: Agents


def prepare(settings: Settings) -> Prepared:
    """Find the agents and open the keys. Generates a key if none is configured and the host is loopback.

    Raises:
        ConfigurationError: the server cannot start as it is configured. The text is one line.
    """
    check(settings)
    return Prepared(settings, open_keys(key_sources(settings)), find_agents(settings))


def check(settings: Settings) -> None:
    """Check whether ``prepare`` would succeed, without writing anything.

    Raises:
        ConfigurationError: it would not. The text is one line.
    """
    find_agents(settings)
    principals = {named.principal for named in check_keys(key_sources(settings))} or {DEFAULT_PRINCIPAL}
    for profile in settings.profiles.values():
        for unknown in sorted({*profile.keys} - principals):
            raise ConfigurationError(f"profiles.{profile.name}.keys: there is no key of {unknown!r}")


def key_sources(settings: Settings) -> KeySources:
    """Return the settings that decide about the keys."""
    return KeySources(settings.host, settings.data_dir, settings.api_key, settings.api_key_file)


def find_agents(settings: Settings) -> Agents:
    """Import every agent that the settings name.

    Raises:
        ConfigurationError: there is no such agent. The text is one line, which names the option.
    """
    agents = {
        DEFAULT_PROFILE: ConfiguredAgent(
            _find_agent(settings.agent_name, "agent"),
            server_agent_config(settings),
            settings.data_dir / "workspace",
        )
    }
    for name, profile in settings.profiles.items():
        agents[name] = ConfiguredAgent(
            _find_agent(profile.agent_name, f"profiles.{name}.agent"),
            profile_agent_config(settings, profile),
            settings.data_dir / "profiles" / name / "workspace",
        )
    return agents


def _find_agent(name: str, option: str) -> AgentFactory | AgentProvider:
    try:
        return find_agent(name)
    except AgentNotFound as error:
        raise ConfigurationError(f"{option}: {error}") from error


def server_agent_config(settings: Settings) -> AgentConfig:
    """Return the configuration of the server's own agent, from the top level of the settings."""
    return AgentConfig(
        model=settings.upstream_model,
        base_url=settings.base_url,
        api_key=settings.upstream_api_key,
        model_path=settings.model_path,
        system_prompt=settings.system_prompt,
        tools=settings.tools,
        max_iterations=settings.max_iterations,
        limits=_upstream_limits(settings),
        mcp=settings.mcp,
        options=settings.agent_options,
    )


def profile_agent_config(settings: Settings, profile: Profile) -> AgentConfig:
    """Return the configuration of the agent of a profile."""
    return AgentConfig(
        profile=profile.name,
        model=profile.model,
        base_url=profile.base_url,
        api_key=profile.api_key,
        model_path=profile.model_path,
        system_prompt=profile.system_prompt,
        tools=profile.tools,
        max_iterations=profile.max_iterations,
        limits=_upstream_limits(settings),
        mcp={name: settings.mcp[name] for name in profile.mcp},
        options=profile.options,
    )


def _upstream_limits(settings: Settings) -> UpstreamLimits:
    return UpstreamLimits(
        connect=settings.upstream_connect_seconds,
        read=settings.upstream_read_seconds,
        write=settings.upstream_write_seconds,
        pool=settings.upstream_pool_seconds,
        retries=settings.upstream_retries,
    )


# -- the server --


@define
class Readiness:
    """Why the server is not ready; "" if it is."""

    not_ready: str = "starting"


@frozen
class Server:
    """A server that can take requests. Its application is a plain Quart application."""

    app: Application
    admission: Admission
    registry: RunRegistry[Run]
    readiness: Readiness


@asynccontextmanager
async def open_server(prepared: Prepared) -> AsyncIterator[Server]:
    """Open the store and the agents, recover the runs of a crashed server, and build the application.

    The store outlives the agents, these outlive the runs, and the runs outlive the requests.

    Raises:
        ConfigurationError: an agent cannot be opened as it is configured, or its workspace cannot be made.
        StoreError: the store cannot be opened.
    """
    settings = prepared.settings
    thread_limits = ThreadLimits(
        # With thousands of threads, those that wait for the interpreter wake at every switch interval and starve its
        # holder.
        trio.CapacityLimiter(settings.max_agent_threads),
        trio.CapacityLimiter(INTERRUPT_THREADS),
        settings.interrupt_grace_seconds,
    )
    async with (
        open_store(settings.store_location) as store,
        open_agents(prepared.agents, thread_limits) as environments,
    ):
        metrics = Metrics()
        services = _services(settings, store, environments, metrics)
        await recover(store, services.owner, to_items)
        async with open_supervisor(services) as supervisor:
            supervisor.nursery.start_soon(enforce_retention, store, _retention(settings))
            yield _build(prepared, services, supervisor, metrics)


def _services(
    settings: Settings, store: Store, environments: Mapping[str, AgentEnvironment], metrics: Metrics
) -> Services:
    def count(outcome: Outcome, seconds: float) -> None:
        metrics.run_ended(str(outcome.status), str(outcome.reason), seconds, outcome.usage.output_tokens)

    return Services(
        runtime=environments[DEFAULT_PROFILE].runtime,
        store=store,
        registry=RunRegistry(),
        flusher=LogFlusher(store),
        workspace=environments[DEFAULT_PROFILE].workspace,
        environments=environments,
        limits=RunLimits(
            run=settings.run_seconds,
            stall=settings.stall_seconds,
            approval=settings.approval_seconds,
            ahead=settings.max_buffered_chars,
        ),
        owner=f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}",
        on_end=count,
        on_first_text=metrics.first_text,
    )


def _build(prepared: Prepared, services: Services, supervisor: RunSupervisor, metrics: Metrics) -> Server:
    settings, readiness = prepared.settings, Readiness()
    admission = Admission(settings.max_runs)
    state = AppState(
        _web_options(settings),
        prepared.keys.keyring,
        admission,
        SessionLocks(settings.busy_wait_seconds if settings.busy_session == "wait" else 0.0),
        services,
        supervisor,
        HealthCallbacks(lambda: readiness.not_ready, lambda: {"pid": os.getpid(), "updated_at": time.time()}),
        metrics,
    )
    return Server(make_app(state), admission, services.registry, readiness)


def _retention(settings: Settings) -> Retention:
    return Retention(
        log_seconds=settings.replay_seconds,
        idempotency_seconds=settings.idempotency_seconds,
        max_runs=settings.max_stored_runs,
        max_bytes=settings.max_stored_bytes,
    )


def _web_options(settings: Settings) -> WebOptions:
    return WebOptions(
        model_name=settings.model_name,
        cors_origins=settings.cors_origins,
        keepalive_seconds=settings.keepalive_seconds,
        body_seconds=settings.body_seconds,
        max_body_bytes=settings.max_body_bytes,
        open_webui_status=settings.open_webui_status,
        on_disconnect=parse_policy(settings.on_disconnect),
        access_log=settings.access_log,
        write_through=settings.write_through,
        profiles=tuple(
            ServedProfile(profile.name, profile.model_name, profile.keys)
            for profile in settings.profiles.values()
        ),
        settings=tuple(
            ShownSetting(option.name, option.value, option.help) for option in display_settings(settings)
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
async def open_agents(agents: Agents, limits: ThreadLimits) -> AsyncIterator[Mapping[str, AgentEnvironment]]:
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
        raise ConfigurationError(f"data_dir: {workspace} cannot be made: {error.strerror}") from None
    try:
        factory = await stack.enter_async_context(open_agent(configured.agent, config, workspace))
    except ConfigurationError as error:
        prefix = f"profiles.{config.profile}: " if config.profile else ""
        raise ConfigurationError(f"{prefix}{error}") from error
    runtime = AgentRuntime(factory, limits.threads, limits.interrupts, limits.grace_seconds, config)
    return AgentEnvironment(runtime, workspace)
