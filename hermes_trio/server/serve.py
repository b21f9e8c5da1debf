"""``hermes-trio serve``: Hypercorn's connections under our own ``trio.run``, with our own hands on the signals."""

from __future__ import annotations

import shlex
import socket
import sys
from collections.abc import Sequence
from functools import partial
from typing import cast
from urllib.parse import quote

import structlog
import trio
from hypercorn.typing import Framework

from hermes_trio import compose, logs
from hermes_trio.compose import Parts, Running, open_server, prepare
from hermes_trio.core.errors import ConfigurationError
from hermes_trio.keys import Kept, Made
from hermes_trio.server import worker
from hermes_trio.server.configure import hypercorn_config
from hermes_trio.server.keeping import Guards
from hermes_trio.server.selfcheck import check_stack
from hermes_trio.server.shutdown import Patience, Shutdown
from hermes_trio.server.signals import Bell, hearing_signals
from hermes_trio.server.sockets import CannotListen, open_listening_sockets
from hermes_trio.server.tuning import tune_process
from hermes_trio.settings import Loaded, Settings
from hermes_trio.stores.contract import StoreError

log = structlog.get_logger(__name__)


def check(loaded: Loaded) -> None:
    """Everything that can be checked without serving.

    Raises:
        ConfigurationError: in one line.
    """
    check_stack()
    compose.check(loaded.settings)


def main(loaded: Loaded) -> int:
    """Serve until told to stop; returns the exit code.

    Raises:
        ConfigurationError: it cannot start as it is configured, in one line.
    """
    settings = loaded.settings
    logs.configure(settings.log_level, settings.log_format)
    check_stack()
    parts = prepare(settings)
    try:
        sockets = open_listening_sockets(settings.host, settings.port)
    except CannotListen as error:
        raise ConfigurationError(str(error)) from error
    try:
        trio.run(partial(_serve, parts, sockets), strict_exception_groups=True)
    except Exception as error:
        match _only(error):
            case StoreError() as trouble:
                raise ConfigurationError(f"store: {trouble}") from None
            case ConfigurationError() as trouble:
                raise trouble from None
        raise
    return 0


def _only(error: BaseException) -> BaseException:
    """The one exception inside groups of one, which is how nurseries pass on what went wrong in their own block."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


async def _serve(parts: Parts, sockets: Sequence[socket.socket]) -> None:
    """Serve until a signal asks for the end; one that comes before there is a server ends the start."""
    starting = trio.CancelScope()
    bell = Bell(partial(_leave_early, starting))
    async with hearing_signals(bell):
        with starting:
            async with open_server(parts) as running:
                await _serve_requests(parts, sockets, running, bell)


def _leave_early(starting: trio.CancelScope, who: str) -> None:
    log.info("stopping before the start", by=who)
    starting.cancel(reason=who)


async def _serve_requests(
    parts: Parts, sockets: Sequence[socket.socket], running: Running, bell: Bell
) -> None:
    settings = parts.settings
    guards = Guards(settings.write_seconds)
    shutdown = Shutdown(running, patience_of(settings), guards.connections.limit_writes)
    config = hypercorn_config(_text(settings.certfile), _text(settings.keyfile))
    tune_process()
    bell.ring = shutdown.ask
    serve = partial(worker.serve, cast("Framework", running.app), sockets, config, shutdown.run, guards)
    async with trio.open_nursery() as serving:
        urls = await serving.start(serve)
        running.state.not_ready = ""
        greet(parts, local_url(urls[0]))


def patience_of(settings: Settings) -> Patience:
    """How long a shutdown may take with these settings."""
    return Patience(drain=settings.drain_seconds, stop=settings.grace_seconds + 11)


def local_url(url: str) -> str:
    """An address that works from this machine: nobody can connect to 0.0.0.0."""
    return url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")


def _text(path: object) -> str | None:
    return None if path is None else str(path)


def greet(parts: Parts, url: str) -> None:
    """Tell the person at the terminal what there is and how to try it."""
    settings = parts.settings
    lines = [
        f"hermes-trio serves {settings.agent_name} at {url}",
        *(f"  model  {name}" for name in served_names(settings)),
        f"  data   {settings.data_dir}",
        *_key_lines(parts),
        f"  page   {page_link(parts, url, sys.stdout.isatty())}",
        "",
        "Try it:",
        f"  {_curl(parts, url)}",
        "",
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def served_names(settings: Settings) -> list[str]:
    """The model ids that clients may ask for."""
    return [settings.model_name, *(profile.model_name for profile in settings.profiles.values())]


def page_link(parts: Parts, url: str, is_terminal: bool) -> str:
    """The address of the page. A click on it signs in, if a person sees it; a log is no place for a key that is not new."""
    origin = parts.keys.origin
    if isinstance(origin, Made) or (isinstance(origin, Kept) and is_terminal):
        [named] = parts.keys.keyring.keys
        return f"{url}/#key={quote(named.key, safe='')}"
    return f"{url}/"


def _key_lines(parts: Parts) -> list[str]:
    origin = parts.keys.origin
    if isinstance(origin, Made):
        return [f"  key    {origin.key}", f"         (made now, kept in {origin.path})"]
    return []


def _curl(parts: Parts, url: str) -> str:
    body = f'{{"model": "{parts.settings.model_name}", "stream": true, "messages": [{{"role": "user", "content": "/terminal date"}}]}}'
    key = _key_expression(parts)
    return f"curl -N {url}/v1/chat/completions -H {key} -H 'Content-Type: application/json' -d {shlex.quote(body)}"


def _key_expression(parts: Parts) -> str:
    """The header with the key, without showing a key that is not new."""
    match parts.keys.origin:
        case Made(path) | Kept(path):
            return f'"Authorization: Bearer $(cat {shlex.quote(str(path))})"'
        case _:
            return '"Authorization: Bearer YOUR_KEY"'
