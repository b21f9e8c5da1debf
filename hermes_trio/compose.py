"""Putting the parts together: the one place that knows them all by name."""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import trio
from attrs import define, frozen

from hermes_trio.core.errors import ConfigurationError
from hermes_trio.core.outcome import Outcome
from hermes_trio.core.records import Retention
from hermes_trio.crew import DEFAULT, Crew, Hiring, find_crew, open_crew
from hermes_trio.keys import DEFAULT_PRINCIPAL, KeyPlaces, OpenedKeys, check_keys, open_keys
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
from hermes_trio.settings import Settings
from hermes_trio.settings.shown import shown_settings
from hermes_trio.stores.base import Store
from hermes_trio.stores.factory import open_store
from hermes_trio.web.api.responses import to_items
from hermes_trio.web.app import Application, make_app
from hermes_trio.web.metrics import Metrics
from hermes_trio.web.state import AppState, HealthCallbacks, ServedProfile, WebOptions

# Interrupts return at once; should one hang, the others must not wait for it.
INTERRUPT_THREADS = 1_000


@frozen
class Parts:
    """What can be made, and can go wrong, before anything runs."""

    settings: Settings
    keys: OpenedKeys
    crew: Crew


@define
class State:
    """Where the server stands; "" means ready."""

    not_ready: str = "starting"


@frozen
class Running:
    """A server that can take requests."""

    app: Application
    admission: Admission
    registry: RunRegistry[Run]
    state: State


def prepare(settings: Settings) -> Parts:
    """Resolve the agents and the keys.

    Raises:
        ConfigurationError: in one line.
    """
    check(settings)
    return Parts(settings, open_keys(key_places(settings)), find_crew(settings))


def check(settings: Settings) -> None:
    """Find out whether ``prepare`` would work, without making anything.

    Raises:
        ConfigurationError: in one line.
    """
    find_crew(settings)
    principals = {named.principal for named in check_keys(key_places(settings))} or {DEFAULT_PRINCIPAL}
    for profile in settings.profiles.values():
        for unknown in sorted({*profile.keys} - principals):
            raise ConfigurationError(f"profiles.{profile.name}.keys: there is no key of {unknown!r}")


def key_places(settings: Settings) -> KeyPlaces:
    """What decides about the keys."""
    return KeyPlaces(settings.host, settings.data_dir, settings.api_key, settings.api_key_file)


@asynccontextmanager
async def open_server(parts: Parts) -> AsyncIterator[Running]:
    """Open the store, end what a crash left behind, and build the application around it.

    The store outlives the agents, these outlive the runs, and the runs outlive the requests.

    Raises:
        ConfigurationError: an agent cannot work as it is configured, or there is no place for its workspace.
        StoreError: the store cannot be opened.
    """
    hiring = _hiring(parts.settings)
    async with (
        open_store(parts.settings.store_location) as store,
        open_crew(parts.crew, hiring) as environments,
    ):
        metrics = Metrics()
        services = _services(parts, store, environments, metrics)
        await recover(store, services.owner, to_items)
        async with open_supervisor(services) as supervisor:
            supervisor.nursery.start_soon(enforce_retention, store, _retention(parts.settings))
            yield _build(parts, services, supervisor, metrics)


def _services(
    parts: Parts, store: Store, environments: Mapping[str, AgentEnvironment], metrics: Metrics
) -> Services:
    settings = parts.settings
    return Services(
        runtime=environments[DEFAULT].runtime,
        store=store,
        registry=RunRegistry(),
        flusher=LogFlusher(store),
        workspace=environments[DEFAULT].workspace,
        environments=environments,
        limits=RunLimits(
            run=settings.run_seconds,
            stall=settings.stall_seconds,
            approval=settings.approval_seconds,
            ahead=settings.ahead_characters,
        ),
        owner=f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}",
        on_end=_counting(metrics),
        on_first_text=metrics.first_text,
    )


def _build(parts: Parts, services: Services, supervisor: RunSupervisor, metrics: Metrics) -> Running:
    state, admission = State(), Admission(parts.settings.max_runs)
    health = HealthCallbacks(lambda: state.not_ready, _details)
    options, keyring = _web_options(parts.settings), parts.keys.keyring
    session_locks = _session_locks(parts.settings)
    app = make_app(
        AppState(options, keyring, admission, session_locks, services, supervisor, health, metrics)
    )
    return Running(app, admission, services.registry, state)


def _session_locks(settings: Settings) -> SessionLocks:
    return SessionLocks(settings.busy_wait_seconds if settings.busy_session == "wait" else 0.0)


def _retention(settings: Settings) -> Retention:
    return Retention(
        log_seconds=settings.log_keep_seconds,
        idempotency_seconds=settings.idempotency_seconds,
        max_runs=settings.max_stored_runs,
        max_bytes=settings.max_stored_bytes,
    )


def _hiring(settings: Settings) -> Hiring:
    # With thousands of threads, those that wait for the interpreter wake at every switch interval and starve its holder.
    threads = trio.CapacityLimiter(settings.max_agent_threads)
    return Hiring(threads, trio.CapacityLimiter(INTERRUPT_THREADS), settings.grace_seconds)


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
            ShownSetting(option.name, option.value, option.help) for option in shown_settings(settings)
        ),
    )


def _counting(metrics: Metrics) -> Any:
    def count(outcome: Outcome, seconds: float) -> None:
        metrics.run_ended(str(outcome.status), str(outcome.reason), seconds, outcome.usage.output_tokens)

    return count


def _details() -> dict[str, Any]:
    return {"pid": os.getpid(), "updated_at": time.time()}
