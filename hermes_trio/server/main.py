"""``hermes-trio serve``.

Hypercorn's Trio worker under our own `trio.run`, with our own signal handling.
"""

from __future__ import annotations

import ctypes
import os
import shlex
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import quote

import hypercorn.trio
import structlog
import trio

from hermes_trio import bootstrap, logs
from hermes_trio.agent.interface import AgentFactory, AgentProvider
from hermes_trio.bootstrap import (
    Prepared,
    Server,
    create_app,
    open_server,
    prepare,
    prepared_of,
    unwrap_group,
)
from hermes_trio.core.errors import ConfigurationError
from hermes_trio.keys import GeneratedKey, StoredKey
from hermes_trio.server.config import ServerConfig, hypercorn_config
from hermes_trio.server.guards import Guards, installed
from hermes_trio.server.shutdown import Shutdown, ShutdownTimeouts, SignalCallback, handle_signals
from hermes_trio.server.sockets import CannotListen, close_all, open_listening_sockets
from hermes_trio.server.tuning import tune_process
from hermes_trio.server.versions import check_versions
from hermes_trio.settings import LoadedSettings, Settings, SourceKind, options
from hermes_trio.stores.base import StoreError
from hermes_trio.web.app import Application

log = structlog.get_logger(__name__)

_PR_SET_DUMPABLE = 4
# They get all keys from the settings.
_AGENTS_WITHOUT_ENVIRONMENT = frozenset({"demo", "synthetic", "upstream", "local"})


def check(loaded: LoadedSettings) -> None:
    """Check everything that can be checked without serving.

    Raises:
        ConfigurationError: The server could not start.
    """
    check_versions()
    bootstrap.check(loaded.settings)


def main(loaded: LoadedSettings) -> int:
    """Serve until a signal. Return the exit code.

    Raises:
        ConfigurationError: The server cannot start as it is configured.
    """
    settings = loaded.settings
    logs.configure(settings.log_level, settings.log_format)
    check_versions()
    prepared = prepare(settings)
    if settings.sandbox != "off":
        forbid_inspection()
        for name in secret_variables(loaded):
            os.environ.pop(name, None)
    _run(prepared)
    return 0


def forbid_inspection() -> None:
    """Forbid other processes of this user to read this one's memory and first environment.

    Linux keeps the environment that a process was started with readable in ``/proc/PID/environ``,
    whatever the process removes from it later. Child processes are not affected. Root can still
    read it. There are no core dumps either.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def secret_variables(loaded: LoadedSettings) -> set[str]:
    """Return the environment variables that nothing needs once the settings are read.

    An agent that is not ours may read the key of a model from the environment itself, and commands
    may be given variables on purpose; these stay.
    """
    settings = loaded.settings
    profiles = settings.profiles.values()
    agents = {settings.agent_name, *(profile.agent_name for profile in profiles)}
    found = set()
    for name, source in loaded.sources.items():
        option = options().get(name)
        is_secret = name == "store" or (option.secret if option else name.endswith(".api_key"))
        is_needed = name not in ("api_key", "store") and not agents <= _AGENTS_WITHOUT_ENVIRONMENT
        if is_secret and not is_needed and source.kind is SourceKind.ENVIRONMENT:
            found.add(source.name)
    for table in (settings.agent_options, *(profile.options for profile in profiles)):
        terminal = table.get("terminal")
        if isinstance(terminal, Mapping):
            found -= {*terminal.get("environment", ())}
    return found


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
    if app is None:
        app = create_app(settings, agent=agent, **options)
    elif settings is not None or agent or options:
        raise TypeError("an application has its settings already")
    prepared = prepared_of(app)
    logs.configure(prepared.settings.log_level, prepared.settings.log_format)
    _run(prepared, app)


def _run(prepared: Prepared, app: Application | None = None) -> None:
    settings = prepared.settings
    try:
        sockets = open_listening_sockets(settings.host, settings.port)
    except CannotListen as error:
        raise ConfigurationError(str(error)) from error
    try:
        trio.run(partial(_serve, prepared, sockets, app), strict_exception_groups=True)
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
    callback = SignalCallback(partial(_cancel_start, starting))
    async with handle_signals(callback):
        with starting:
            async with open_server(prepared, app) as server:
                await _serve_requests(prepared, sockets, server, callback)


def _cancel_start(starting: trio.CancelScope, source: str) -> None:
    log.info("stopping before the start", by=source)
    starting.cancel(reason=source)


async def _serve_requests(
    prepared: Prepared, sockets: Sequence[socket.socket], server: Server, callback: SignalCallback
) -> None:
    settings = prepared.settings
    guards = Guards(settings.write_seconds)
    shutdown = Shutdown(server, ShutdownTimeouts.from_settings(settings), guards.limit_writes)
    config = hypercorn_config(
        None if settings.certfile is None else str(settings.certfile),
        None if settings.keyfile is None else str(settings.keyfile),
    )
    tune_process()
    callback.call = shutdown.request
    async with trio.open_nursery() as serving:
        urls = await serving.start(serve_sockets, server.app, sockets, config, shutdown.run, guards)
        server.readiness.not_ready = ""
        greet(prepared, local_url(urls[0]))


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


def local_url(url: str) -> str:
    """Return an address that works from this machine: no client can connect to 0.0.0.0."""
    return url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")


def greet(prepared: Prepared, url: str) -> None:
    """Print what is served, where, and how to try it."""
    settings = prepared.settings
    lines = [
        f"hermes-trio serves {settings.agent_name} at {url}",
        *(f"  model  {name}" for name in served_names(settings)),
        f"  data   {settings.data_dir}",
        *_key_lines(prepared),
        f"  page   {page_link(prepared, url, sys.stdout.isatty())}",
        "",
        "Try it:",
        f"  {_curl(prepared, url)}",
        "",
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def served_names(settings: Settings) -> list[str]:
    """Return the model ids that clients may ask for."""
    return [settings.model_name, *(profile.model_name for profile in settings.profiles.values())]


def page_link(prepared: Prepared, url: str, is_terminal: bool) -> str:
    """Return the address of the page, with the key in it if it is new or if only a terminal shows it."""
    origin = prepared.keys.origin
    if isinstance(origin, GeneratedKey) or (isinstance(origin, StoredKey) and is_terminal):
        [named] = prepared.keys.keyring.keys
        return f"{url}/#key={quote(named.key, safe='')}"
    return f"{url}/"


def _key_lines(prepared: Prepared) -> list[str]:
    origin = prepared.keys.origin
    if isinstance(origin, GeneratedKey):
        return [f"  key    {origin.key}", f"         (made now, kept in {origin.path})"]
    return []


def _curl(prepared: Prepared, url: str) -> str:
    body = f'{{"model": "{prepared.settings.model_name}", "stream": true, "messages": [{{"role": "user", "content": "/terminal date"}}]}}'
    key = _key_expression(prepared)
    return f"curl -N {url}/v1/chat/completions -H {key} -H 'Content-Type: application/json' -d {shlex.quote(body)}"


def _key_expression(prepared: Prepared) -> str:
    """Return the header with the key as a shell expression, which does not show a key that is not new."""
    match prepared.keys.origin:
        case GeneratedKey(path) | StoredKey(path):
            return f'"Authorization: Bearer $(cat {shlex.quote(str(path))})"'
        case _:
            return '"Authorization: Bearer YOUR_KEY"'
