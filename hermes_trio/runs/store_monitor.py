"""Notices within a second that the store does not work, and that it works again."""

from __future__ import annotations

import structlog
import trio

from hermes_trio.stores.base import Heartbeat, Store, StoreError

log = structlog.get_logger(__name__)

HEARTBEAT_SECONDS = 1.0
HEARTBEAT_TIMEOUT = 10.0
REMINDER_SECONDS = 60.0


class StoreMonitor:
    """Calls the heartbeat of a store once a second, and remembers why it failed.

    While it fails, the server is not ready. The log says so when it begins, once a minute, and when
    it is over.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.problem = ""  # why the store does not work; "" if it does
        self._logged_at = 0.0

    async def run(self) -> None:
        """Check the store until cancelled. Returns at once if the store has no heartbeat."""
        store = self._store
        while isinstance(store, Heartbeat):
            self._note(await self._check(store))
            await trio.sleep(HEARTBEAT_SECONDS)

    async def _check(self, store: Heartbeat) -> str:
        with trio.move_on_after(HEARTBEAT_TIMEOUT):
            try:
                await store.heartbeat()
            except StoreError as error:
                return str(error)
            except Exception as error:
                # A bug in our code: the server is not ready then, either.
                log.exception("the heartbeat of the store failed")
                return repr(error)
            return ""
        return f"no answer within {HEARTBEAT_TIMEOUT:g} s"

    def _note(self, problem: str) -> None:
        now = trio.current_time()
        if problem and (not self.problem or now >= self._logged_at + REMINDER_SECONDS):
            log.critical("the store does not work; nothing can be saved", error=problem)
            self._logged_at = now
        if self.problem and not problem:
            log.warning("the store works again")
        self.problem = problem
