"""Keeps the model's server up: starts it again when it dies, and tells turns how things stand."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import structlog
import trio
from attrs import evolve, frozen

from hermes_trio.agents.local.child import Wish, live
from hermes_trio.core.errors import ConfigurationError

log = structlog.get_logger(__name__)

LONG_LIFE = 60.0  # seconds; who lived so long may die once in a while
LONGEST_PAUSE = 60.0

Live = Callable[[Wish, Callable[[str], None]], Awaitable[str]]


class ModelDown(Exception):
    """The model's server is down. The text is one line."""


@frozen
class Starting:
    """The model is being loaded."""


@frozen
class Up:
    """It answers."""

    address: str


@frozen
class Down:
    """It died, and will be started again later."""

    why: str


class Keeper:
    """One server of a model, and its state."""

    def __init__(self, wish: Wish, live: Live = live) -> None:
        self._wish, self._live = wish, live
        self._state: Starting | Up | Down = Starting()
        self._changed = trio.Event()
        self._short_lives = 0

    async def address(self) -> str:
        """Where it answers; waits while it is being started.

        Raises:
            ModelDown: it died too often, and is not tried again at once.
        """
        while True:
            match self._state:
                case Up(address):
                    return address
                case Down(why):
                    raise ModelDown(f"The model's server is down: {why}")
                case _:
                    await self._changed.wait()

    async def keep_up(self) -> None:
        """Until cancelled."""
        while True:
            began = trio.current_time()
            why = await self._live(self._wish, self._is_up)
            log.error("the model's server ended", why=why)
            was_up = isinstance(self._state, Up)
            is_forgiven = was_up and trio.current_time() - began > LONG_LIFE
            self._short_lives = 0 if is_forgiven else self._short_lives + 1
            if not was_up or self._short_lives > 1:
                await self._rest(why)
            self._become(Starting())

    async def _rest(self, why: str) -> None:
        """One that dies again and again has to wait longer and longer."""
        self._become(Down(why))
        await trio.sleep(min(2.0**self._short_lives, LONGEST_PAUSE))

    def _is_up(self, address: str) -> None:
        log.info("the model is loaded", model=str(self._wish.model))
        # Turns know the address: the next life must have the same.
        self._wish = evolve(self._wish, port=urlsplit(address).port or 0)
        self._become(Up(address))

    def _become(self, state: Starting | Up | Down) -> None:
        self._state = state
        self._changed.set()
        self._changed = trio.Event()


@asynccontextmanager
async def kept_up(keeper: Keeper) -> AsyncIterator[str]:
    """The address, once the model is loaded; at the end of the block the server is gone.

    Raises:
        ConfigurationError: it cannot be loaded.
    """
    problems: list[Exception] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keeper.keep_up)
        try:
            yield await _first_address(keeper)
        except Exception as error:  # noqa: BLE001 - raised again below: a nursery would wrap it
            problems.append(error)
        nursery.cancel_scope.cancel()
    for problem in problems:
        raise problem


async def _first_address(keeper: Keeper) -> str:
    try:
        return await keeper.address()
    except ModelDown as down:
        raise ConfigurationError(f"model_path: {down}") from down
