"""``hypercorn -k trio hermes_trio.asgi:app``: the same server under Hypercorn's own command line.

Settings come from the environment and the configuration file. The guards are put into Hypercorn's worker when this
module is imported, because the worker looks up its connection class later. ``hermes-trio serve`` is the better way to
start: Hypercorn's command line owns the signals here, so a drain is only as good as its graceful timeout.
"""

from __future__ import annotations

import os
from typing import Any

import structlog

from hermes_trio import logs
from hermes_trio.compose import Running, key_places, open_server, prepare
from hermes_trio.core.errors import ConfigurationError
from hermes_trio.core.outcome import Reason
from hermes_trio.keys import check_keys
from hermes_trio.server.guards import install_guards
from hermes_trio.server.tuning import tune_process
from hermes_trio.settings import load

log = structlog.get_logger(__name__)


class LifespanApp:
    """Opens the server when the worker starts and closes it when the worker ends."""

    def __init__(self) -> None:
        self._running: Running | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request, or live through the lifespan."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif self._running is not None:
            await self._running.app(scope, receive, send)

    async def _live(self, receive: Any, send: Any) -> None:
        await receive()
        try:
            parts = prepare(load({}, os.environ, None).settings)
            async with open_server(parts) as running:
                self._running = running
                running.state.not_ready = ""
                tune_process()
                await send({"type": "lifespan.startup.complete"})
                await receive()
                running.registry.stop_all(Reason.SERVER_SHUTDOWN)
                await running.registry.wait_empty()
        except Exception as error:
            log.exception("the server cannot run")
            await send({"type": "lifespan.startup.failed", "message": str(error)})
        else:
            await send({"type": "lifespan.shutdown.complete"})


def _make() -> LifespanApp:
    settings = load({}, os.environ, None).settings
    if not check_keys(key_places(settings)):
        # The address is Hypercorn's to choose and not known here, so it may be open to the world.
        raise ConfigurationError("api_key: under hypercorn a key is needed: set API_SERVER_KEY")
    logs.configure(settings.log_level, settings.log_format)
    install_guards(settings.write_seconds)
    return LifespanApp()


app = _make()
