"""Putting the parts together: the one place that knows them all by name."""

from __future__ import annotations

import math
import os
import secrets
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio
from attrs import define, frozen

from hermes_trio.agent.bridge import AgentHost
from hermes_trio.agent.contract import AgentFactory
from hermes_trio.agents.lookup import AgentNotFound, find_agent
from hermes_trio.core.errors import ConfigurationError
from hermes_trio.core.outcome import Outcome
from hermes_trio.core.record import Retention
from hermes_trio.keys import KeyPlaces, OpenedKeys, check_keys, open_keys
from hermes_trio.runs.admission import Admission, Turnstile
from hermes_trio.runs.flusher import Flusher
from hermes_trio.runs.hosting import Hosting, open_hosting
from hermes_trio.runs.presence import parse_policy
from hermes_trio.runs.recovery import recover
from hermes_trio.runs.registry import Registry
from hermes_trio.runs.run import Run, Services
from hermes_trio.runs.tidying import keep_tidy
from hermes_trio.runs.tracker import Limits
from hermes_trio.settings import Settings
from hermes_trio.settings.place import SqliteFile
from hermes_trio.stores.contract import Store
from hermes_trio.stores.opening import open_store
from hermes_trio.web.app import make_app
from hermes_trio.web.gate import Gate
from hermes_trio.web.metrics import Metrics
from hermes_trio.web.options import Health, Site, WebOptions
from hermes_trio.web.responses import to_items

# Interrupts return at once; should one hang, the others must not wait for it.
INTERRUPT_THREADS = 1_000


@frozen
class Parts:
    """What can be made, and can go wrong, before anything runs."""

    settings: Settings
    keys: OpenedKeys
    factory: AgentFactory

    @property
    def workspace(self) -> Path:
        """Where tools may write."""
        return self.settings.data_dir / "workspace"


@define
class State:
    """Where the server stands; "" means ready."""

    not_ready: str = "starting"


@frozen
class Running:
    """A server that can take requests."""

    app: Gate
    admission: Admission
    registry: Registry[Run]
    state: State


def prepare(settings: Settings) -> Parts:
    """Resolve the agent and the keys.

    Raises:
        ConfigurationError: in one line.
    """
    return Parts(settings, open_keys(key_places(settings)), _factory(settings))


def check(settings: Settings) -> None:
    """Find out whether ``prepare`` would work, without making anything.

    Raises:
        ConfigurationError: in one line.
    """
    _factory(settings)
    check_keys(key_places(settings))


def key_places(settings: Settings) -> KeyPlaces:
    """What decides about the keys."""
    return KeyPlaces(settings.host, settings.data_dir, settings.api_key, settings.api_key_file)


def _factory(settings: Settings) -> AgentFactory:
    try:
        return find_agent(settings.agent)
    except AgentNotFound as error:
        raise ConfigurationError(f"agent: {error}") from error


def store_url(settings: Settings) -> str:
    """The address of the store."""
    place = settings.store_place
    return f"sqlite:///{place.path.absolute()}" if isinstance(place, SqliteFile) else "memory:"


@asynccontextmanager
async def open_server(parts: Parts) -> AsyncIterator[Running]:
    """Open the store, end what a crash left behind, and build the application around it.

    The store outlives the runs, and the runs outlive the requests.
    """
    _make_workspace(parts.workspace)
    async with open_store(store_url(parts.settings)) as store:
        metrics = Metrics()
        services = _services(parts, store, metrics)
        await recover(store, services.owner, to_items)
        async with open_hosting(services) as hosting:
            hosting.nursery.start_soon(keep_tidy, store, _retention(parts.settings))
            yield _build(parts, services, hosting, metrics)


def _make_workspace(path: Path) -> None:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(f"data_dir: {path} cannot be made: {error.strerror}") from None


def _services(parts: Parts, store: Store, metrics: Metrics) -> Services:
    settings = parts.settings
    return Services(
        host=_host(parts),
        store=store,
        registry=Registry(),
        flusher=Flusher(store),
        workspace=parts.workspace,
        limits=Limits(
            run=settings.run_seconds, stall=settings.stall_seconds, approval=settings.approval_seconds
        ),
        owner=f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}",
        on_end=_counting(metrics),
    )


def _build(parts: Parts, services: Services, hosting: Hosting, metrics: Metrics) -> Running:
    state, admission = State(), Admission(parts.settings.max_runs)
    health = Health(lambda: state.not_ready, _details)
    options, keyring = _web_options(parts.settings), parts.keys.keyring
    site = Site(options, keyring, admission, Turnstile(), services, hosting, health)
    return Running(make_app(site, metrics), admission, services.registry, state)


def _retention(settings: Settings) -> Retention:
    return Retention(
        log_seconds=settings.log_keep_seconds,
        claim_seconds=settings.idempotency_seconds,
        max_runs=settings.max_stored_runs,
        max_bytes=settings.max_stored_bytes,
    )


def _host(parts: Parts) -> AgentHost:
    # A run holds its slot until its thread is gone, so threads never wait for each other here.
    threads = trio.CapacityLimiter(parts.settings.max_runs or math.inf)
    interrupts = trio.CapacityLimiter(INTERRUPT_THREADS)
    return AgentHost(parts.factory, threads, interrupts, parts.settings.grace_seconds)


def _web_options(settings: Settings) -> WebOptions:
    return WebOptions(
        model_name=settings.model_name,
        cors_origins=settings.cors_origins,
        keepalive_seconds=settings.keepalive_seconds,
        body_seconds=settings.body_seconds,
        max_body_bytes=settings.max_body_bytes,
        open_webui_status=settings.open_webui_status,
        on_disconnect=parse_policy(settings.on_disconnect),
    )


def _counting(metrics: Metrics) -> Any:
    def count(outcome: Outcome, seconds: float) -> None:
        metrics.run_ended(str(outcome.status), str(outcome.reason), seconds)

    return count


def _details() -> dict[str, Any]:
    return {"pid": os.getpid(), "updated_at": time.time()}
