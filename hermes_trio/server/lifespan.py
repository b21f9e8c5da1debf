"""The application for Hypercorn's own command line, which opens and closes the server in its lifespan.

A shutdown takes the same steps as under ``hermes-trio serve``, within Hypercorn's
``--graceful-timeout``.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from functools import partial
from typing import Any

import structlog
import trio
from attrs import evolve

from hermes_trio import logs
from hermes_trio.bootstrap import Server, make_server_app, open_in_lifespan
from hermes_trio.core.errors import ConfigurationError
from hermes_trio.keys import check_keys, refuse_weak_keys
from hermes_trio.preparation import key_sources, prepare
from hermes_trio.server.guards import Guards, install
from hermes_trio.server.shutdown import Shutdown, ShutdownTimeouts, start_watchdog
from hermes_trio.server.tuning import tune_process
from hermes_trio.server.versions import check_versions
from hermes_trio.settings import Settings, load
from hermes_trio.web import app as web_app

log = structlog.get_logger(__name__)

NEEDS_TRIO = "hermes_trio.asgi runs on Trio: start it with `hypercorn --worker-class trio hermes_trio.asgi:app`"

STOP_SECONDS = 2.0
"""How much of Hypercorn's graceful timeout is kept for stopping runs and for their last frames."""


class LifespanApp:
    """Opens the server when the worker starts and closes it when the worker ends.

    Args:
        settings: Those of the server.
        guards: Installed in Hypercorn.
        watchdog: Called with the seconds after which the process must have ended.
    """

    def __init__(
        self,
        settings: Settings,
        guards: Guards,
        watchdog: Callable[[float], None] = start_watchdog,
    ) -> None:
        self._settings, self._guards, self._watchdog = settings, guards, watchdog
        self._app = make_server_app(settings)
        open_in_lifespan(self._app, partial(prepare, settings), self._end_runs_on_termination)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve a request, or run for as long as the worker does."""
        if scope["type"] == "lifespan" and not trio.lowlevel.in_trio_run():
            await receive()
            await send({"type": "lifespan.startup.failed", "message": NEEDS_TRIO})
        elif scope["type"] == "lifespan" or web_app.has_state(self._app):
            await self._app(scope, receive, send)

    async def _end_runs_on_termination(
        self, server: Server, *, task_status: trio.TaskStatus[None]
    ) -> None:
        """End the runs before Hypercorn cancels their connections, so that each sends its last frames."""
        tune_process()
        task_status.started()
        seconds = await self._guards.wait_terminated()
        wanted = ShutdownTimeouts.from_settings(self._settings)
        drain = min(wanted.drain, max(seconds - STOP_SECONDS, seconds / 2))
        shutdown = Shutdown(
            server, evolve(wanted, drain=drain), self._guards.limit_writes, self._watchdog
        )
        shutdown.request("hypercorn")
        await shutdown.run()


def make_app() -> LifespanApp:
    """Load the settings and install the guards, before the worker looks their names up.

    Raises:
        ConfigurationError: The server cannot start as it is configured.
    """
    check_versions()
    loaded = load({}, os.environ, None)
    settings = loaded.settings
    # The address is Hypercorn's to choose and not known here, so it may be open to the world.
    keys = check_keys(key_sources(settings))
    if keys.is_empty:
        raise ConfigurationError("api_key: under hypercorn a key is needed: set API_SERVER_KEY")
    refuse_weak_keys(keys.keys)
    logs.configure(settings.log_level, settings.log_format)
    for warning in loaded.warnings:
        log.warning(warning)
    guards = Guards(settings.write_seconds)
    install(guards)
    if multiprocessing.parent_process() is not None:
        # SIGTERM to the process group would kill the worker. Its master tells it to stop by an
        # event.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    return LifespanApp(settings, guards)
