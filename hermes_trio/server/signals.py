"""Signals: SIGTERM and SIGINT stop the server, SIGHUP makes it read its files again."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import structlog
import trio
from attrs import define

from hermes_trio.core.errors import ConfigurationError

log = structlog.get_logger(__name__)

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
RELOAD_SIGNAL = signal.SIGHUP

Reload = Callable[[], Awaitable[None]]


class ReloadHandlers:
    """What a running server reads again when it is asked to: its certificate, its keys.

    A request that arrives before `run` is kept until then, and requests during a reload lead to one
    more.
    """

    def __init__(self) -> None:
        self._handlers: dict[str, Reload] = {}
        self._requested = trio.Event()

    def add(self, what: str, reload: Reload) -> None:
        """Add something to read again.

        `reload` must check what it has read before it uses any of it, and must not block the event
        loop. It raises `ConfigurationError` if the former state remains in use.
        """
        self._handlers[what] = reload

    def request(self, source: str) -> None:
        """Ask for a reload; returns at once."""
        log.info("reloading", by=source)
        self._requested.set()

    async def run(self) -> None:
        """Reload whenever that is requested, until cancelled. A failure is logged."""
        while True:
            await self._requested.wait()
            self._requested = trio.Event()
            for what, reload in self._handlers.items():
                await _reload(what, reload)


async def _reload(what: str, reload: Reload) -> None:
    try:
        await reload()
    except ConfigurationError as error:
        log.error("cannot reload: the former state remains in use", what=what, error=str(error))
    except Exception:
        log.exception("cannot reload: the former state remains in use", what=what)
    else:
        log.info("reloaded", what=what)


@define
class SignalCallback:
    """Called with the name of each signal to stop: by the start at first, then by the server."""

    call: Callable[[str], None]


@asynccontextmanager
async def handle_signals(
    callback: SignalCallback, reload: Callable[[str], None]
) -> AsyncIterator[None]:
    """Pass signals on for the length of the block, and ignore them after it.

    SIGTERM and SIGINT go to `callback`: left alone, one of them kills a server that is starting or
    closing its store, the other ends it with a traceback. SIGHUP goes to `reload`, unless it says
    that the terminal of the server was closed, which is a reason to stop.
    """
    stops_without_terminal = _has_terminal() and (
        signal.getsignal(RELOAD_SIGNAL) is not signal.SIG_IGN  # as under nohup
    )
    with _ignore_on_exit(), trio.open_signal_receiver(*STOP_SIGNALS, RELOAD_SIGNAL) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_deliver, signals, callback, reload, stops_without_terminal)
            yield
            nursery.cancel_scope.cancel()


@contextmanager
def _ignore_on_exit() -> Iterator[None]:
    """Ignore late signals: everything is done, and they must not change the exit code."""
    yield
    for number in (*STOP_SIGNALS, RELOAD_SIGNAL):
        signal.signal(number, signal.SIG_IGN)


async def _deliver(
    signals: AsyncIterable[int],
    callback: SignalCallback,
    reload: Callable[[str], None],
    stops_without_terminal: bool,
) -> None:
    async for number in signals:
        name = signal.Signals(number).name
        if number != RELOAD_SIGNAL or (stops_without_terminal and not _has_terminal()):
            callback.call(name)
        else:
            reload(name)


def _has_terminal() -> bool:
    """Return whether the process has a controlling terminal; a closed one cannot be opened."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True
