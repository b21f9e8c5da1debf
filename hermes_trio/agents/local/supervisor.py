"""Keep the model server running: restart it when it exits, and tell turns its state."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import structlog
import trio
from attrs import evolve, frozen

from hermes_trio.agents.local.child import LaunchSpec, run_child
from hermes_trio.core.errors import ConfigurationError

log = structlog.get_logger(__name__)

STABLE_SECONDS = 60.0  # an exit after this time does not count as a repeated failure
MAX_RESTART_DELAY = 60.0

RunChild = Callable[[LaunchSpec, Callable[[str], None]], Awaitable[str]]


class ModelDown(Exception):
    """The model server is down. The message is one line."""


@frozen
class ModelStarting:
    """The model is being loaded."""


@frozen
class ModelUp:
    """The server accepts requests."""

    address: str


@frozen
class ModelRestarting:
    """The server exited, and will be restarted after a delay."""

    reason: str


ModelState = ModelStarting | ModelUp | ModelRestarting


class ModelSupervisor:
    """Runs one model server and tracks its state."""

    def __init__(self, spec: LaunchSpec, run_child: RunChild = run_child) -> None:
        self._spec, self._run_child = spec, run_child
        self._state: ModelState = ModelStarting()
        self._changed = trio.Event()
        self._failures = 0

    async def address(self) -> str:
        """Return the server's URL, waiting while it starts.

        Raises:
            ModelDown: the server exited repeatedly, and is not restarted at once.
        """
        while True:
            match self._state:
                case ModelUp(address):
                    return address
                case ModelRestarting(reason):
                    raise ModelDown(f"The model server is down: {reason}")
                case _:
                    await self._changed.wait()

    async def run(self) -> None:
        """Run the server until cancelled, restarting it with exponential backoff."""
        while True:
            started = trio.current_time()
            reason = await self._run_child(self._spec, self._on_ready)
            log.error("model server exited", reason=reason)
            was_up = isinstance(self._state, ModelUp)
            was_stable = was_up and trio.current_time() - started > STABLE_SECONDS
            self._failures = 0 if was_stable else self._failures + 1
            if not was_up or self._failures > 1:
                self._set_state(ModelRestarting(reason))
                await trio.sleep(min(2.0**self._failures, MAX_RESTART_DELAY))
            self._set_state(ModelStarting())

    def _on_ready(self, address: str) -> None:
        log.info("model loaded", model=str(self._spec.model))
        # Turns keep the address, so the next child must use the same port.
        self._spec = evolve(self._spec, port=urlsplit(address).port or 0)
        self._set_state(ModelUp(address))

    def _set_state(self, state: ModelState) -> None:
        self._state = state
        self._changed.set()
        self._changed = trio.Event()


@asynccontextmanager
async def supervised(supervisor: ModelSupervisor) -> AsyncIterator[str]:
    """Run the server within a block, and yield its URL once the model is loaded.

    Raises:
        ConfigurationError: the model cannot be loaded.
    """
    errors: list[Exception] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(supervisor.run)
        try:
            try:
                address = await supervisor.address()
            except ModelDown as down:
                raise ConfigurationError(f"model_path: {down}") from down
            yield address
        except Exception as error:  # noqa: BLE001 - raised again below: the nursery would wrap it in a group
            errors.append(error)
        nursery.cancel_scope.cancel()
    for raised in errors:
        raise raised
