"""``hermes-trio serve``.

Hypercorn's Trio worker under our own `trio.run`, with our own signal handling.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import hypercorn.trio
import structlog
import trio

from hermes_trio import logs, preparation
from hermes_trio.agent.interface import AgentFactory, AgentProvider
from hermes_trio.bootstrap import (
    Server,
    create_app,
    open_server,
    prepared_of,
    reload_keys,
    unwrap_group,
)
from hermes_trio.core.errors import ConfigurationError
from hermes_trio.keys import Credentials
from hermes_trio.preparation import Prepared, prepare
from hermes_trio.server import workers
from hermes_trio.server.config import ServerConfig, hypercorn_config
from hermes_trio.server.greeting import greet, local_url
from hermes_trio.server.guards import Guards, installed
from hermes_trio.server.process_secrets import hide_secrets
from hermes_trio.server.shutdown import Shutdown, ShutdownTimeouts
from hermes_trio.server.signals import ReloadHandlers, SignalCallback, handle_signals
from hermes_trio.server.sockets import CannotListen, close_all, listening
from hermes_trio.server.telemetry import exported_traces
from hermes_trio.server.tuning import tune_process
from hermes_trio.server.versions import check_versions
from hermes_trio.settings import LoadedSettings, Settings
from hermes_trio.stores.base import StoreError
from hermes_trio.web.app import Application

log = structlog.get_logger(__name__)


def check(loaded: LoadedSettings) -> None:
    """Check everything that can be checked without serving.

    Raises:
        ConfigurationError: The server could not start.
    """
    check_versions()
    preparation.check(loaded.settings)


def main(loaded: LoadedSettings) -> int:
    """Serve until a signal. Return the exit code.

    Raises:
        ConfigurationError: The server cannot start as it is configured.
    """
    settings = loaded.settings
    logs.configure(settings.log_level, settings.log_format)
    check_versions()
    prepared = prepare(settings)
    hide_secrets(loaded)
    _run(prepared)
    return 0


def serve(
    app: Application | None = None,
    *,
    settings: Settings | None = None,
    agent: str | AgentFactory | AgentProvider = "",
    **options: Any,
) -> None:
    """Serve until SIGINT or SIGTERM, as ``hermes-trio serve`` does. Blocks the main thread.

    A signal drains the server: new runs are refused, running ones have ``drain_seconds`` to finish.

    Args:
        app: an application from :func:`create_app`. Without one, it is made of the other arguments.
        settings: as for :func:`create_app`.
        agent: as for :func:`create_app`.
        options: as for :func:`create_app`.

    Raises:
        ConfigurationError: the server cannot start as it is configured. The text is one line.
    """
    check_versions()
    is_made_here = app is None
    if app is None:
        app = create_app(settings, agent=agent, **options)
    elif settings is not None or agent or options:
        raise TypeError("an application has its settings already")
    prepared = prepared_of(app)
    has_workers = prepared.settings.workers > 1
    if has_workers and not (is_made_here and isinstance(agent, str)):
        raise ConfigurationError(
            "workers: worker processes cannot share an application or agent object; "
            "name the agent as module:factory, or use one worker"
        )
    logs.configure(prepared.settings.log_level, prepared.settings.log_format)
    if not has_workers:
        _run(prepared, app)
        return
    if workers.supervise(prepared.settings, Credentials(prepared.keys, prepared.token_secret)):
        raise SystemExit(1)


def _run(prepared: Prepared, app: Application | None = None) -> None:
    settings = prepared.settings
    try:
        with listening(settings.host, settings.port, settings.unix_socket) as sockets:
            run_trio(partial(_serve, prepared, sockets, app))
    except CannotListen as error:
        raise ConfigurationError(str(error)) from error


def run_trio(serve: Callable[[], Awaitable[None]]) -> None:
    """Run a server under Trio.

    Raises:
        ConfigurationError: the server cannot start as it is configured, or its store cannot be
            opened.
    """
    try:
        with exported_traces():
            trio.run(serve, strict_exception_groups=True)
    except Exception as error:
        match unwrap_group(error):
            case StoreError() as trouble:
                raise ConfigurationError(f"store: {trouble}") from None
            case ConfigurationError() as trouble:
                raise trouble from None
        raise


async def _serve(
    prepared: Prepared, sockets: Sequence[socket.socket], app: Application | None
) -> None:
    """Serve until a signal; one that arrives before the server listens cancels the start."""
    starting = trio.CancelScope()
    callback, reloads = SignalCallback(partial(cancel_start, starting)), ReloadHandlers()
    async with handle_signals(callback, reloads.request):
        with starting:
            async with open_server(prepared, app) as server:
                await serve_requests(
                    prepared.settings,
                    sockets,
                    server,
                    callback,
                    reloads,
                    lambda url: greet(prepared.settings, prepared.keys, local_url(url)),
                )


def cancel_start(starting: trio.CancelScope, source: str) -> None:
    """Cancel a start because of a signal or an order."""
    log.info("stopping before the start", by=source)
    starting.cancel(reason=source)


async def serve_requests(
    settings: Settings,
    sockets: Sequence[socket.socket],
    server: Server,
    callback: SignalCallback,
    reloads: ReloadHandlers,
    on_ready: Callable[[str], None],
) -> None:
    """Serve on listening sockets until `callback` is called, then drain.

    `on_ready` is called once, with the address. From then on, reloads are carried out.
    """
    guards = Guards(settings.write_seconds)
    shutdown = Shutdown(server, ShutdownTimeouts.from_settings(settings), guards.limit_writes)
    config = hypercorn_config(
        None if settings.certfile is None else str(settings.certfile),
        None if settings.keyfile is None else str(settings.keyfile),
    )
    if config.ssl_enabled:
        reloads.add("certificate", config.reload_certificate)
    if settings.api_key_file is not None:
        reloads.add("keys", partial(reload_keys, settings, server.state))
    tune_process()
    callback.call = shutdown.request
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reloads.run)
        async with trio.open_nursery() as serving:
            urls = await serving.start(
                serve_sockets, server.app, sockets, config, shutdown.run, guards
            )
            server.readiness.not_ready = ""
            on_ready(urls[0])
        nursery.cancel_scope.cancel()


async def serve_sockets(
    app: Any,
    sockets: Sequence[socket.socket],
    config: ServerConfig,
    shutdown_trigger: Callable[[], Awaitable[None]],
    guards: Guards,
    task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run Hypercorn's Trio worker with the guards until `shutdown_trigger` returns.

    Connections then have `config.graceful_timeout` seconds to finish. The sockets must be listening
    and are closed at the end. `task_status` receives their addresses as URLs.
    """

    async def end() -> None:
        await shutdown_trigger()
        # No write may outlast the moment when Hypercorn cancels the connections: it shields them.
        guards.limit_writes(trio.current_time() + config.graceful_timeout)
        # Hypercorn closes its duplicates next. While ours are open, the kernel would go on
        # accepting connections.
        close_all(sockets)

    config.sockets = sockets
    try:
        with installed(guards):
            await hypercorn.trio.serve(
                app, config, shutdown_trigger=end, task_status=task_status, mode="asgi"
            )
    finally:
        close_all(sockets)
