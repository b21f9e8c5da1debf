"""One turn at a time per session, on all nodes of a shared store.

A turn locks its session in this process first, which costs nothing and keeps the order of waiting
turns, and then in the store.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import structlog
import trio

from hermes_trio.core.errors import ApiError
from hermes_trio.runs.admission import SessionLocks, Slot
from hermes_trio.stores.base import SharedStore, StoreError

log = structlog.get_logger(__name__)

POLL_SECONDS = 0.1  # how often a turn that waits looks whether another node is done
UNLOCK_SECONDS = 2.0  # how long the end of a run waits for its session to be unlocked
RETRY_SECONDS = 1.0

_Key = tuple[str, str]  # principal, session id


class SharedSlot(Slot):
    """The lock of a session on all nodes."""

    def __init__(
        self, on_release: Callable[[], None], unlock: Callable[[], Awaitable[bool]]
    ) -> None:
        super().__init__(on_release)
        self._unlock = unlock

    async def release_and_wait(self) -> None:
        """Release the slot, and return when other nodes can lock the session."""
        if not self.is_released and await self._unlock():
            self.release()


class SharedSessionLocks(SessionLocks):
    """Session locks that count on all nodes. :meth:`run` is the task that unlocks in the background."""

    def __init__(self, wait_seconds: float, shared: SharedStore, node: str) -> None:
        super().__init__(wait_seconds)
        self._shared, self._node = shared, node
        self._in_store: set[_Key] = set()  # locked in the store by this node
        self._to_unlock: list[tuple[_Key, Slot]] = []
        self._has_work = trio.Event()

    async def acquire(self, principal: str, session_id: str, busy: ApiError) -> Slot:
        """Lock a session, waiting for it if configured to.

        Raises:
            ApiError: ``busy``, if another turn is still under way after ``wait_seconds``.
            StoreError: the store fails.
        """
        deadline = trio.current_time() + self._wait_seconds
        local = await super().acquire(principal, session_id, busy)
        try:
            while not await self._shared.lock_session(principal, session_id, self._node):
                if trio.current_time() + POLL_SECONDS > deadline:
                    raise busy
                await trio.sleep(POLL_SECONDS)
        except BaseException as error:
            if isinstance(error, ApiError):
                local.release()
            else:  # it may be locked
                self._unlock_later((principal, session_id), local)
            raise
        key = (principal, session_id)
        self._in_store.add(key)
        return SharedSlot(lambda: self._release(key, local), lambda: self._unlock_in_store(key))

    async def run(self) -> None:
        """Unlock sessions until cancelled. What cannot be unlocked now is tried again."""
        while True:
            await self._has_work.wait()
            self._has_work = trio.Event()
            work, self._to_unlock = self._to_unlock, []
            for key, local in work:
                if await self._unlock_in_store(key):
                    local.release()
                else:
                    self._to_unlock.append((key, local))
            if self._to_unlock:
                await trio.sleep(RETRY_SECONDS)
                self._has_work.set()

    def _release(self, key: _Key, local: Slot) -> None:
        if key in self._in_store:
            self._unlock_later(key, local)
        else:
            local.release()

    def _unlock_later(self, key: _Key, local: Slot) -> None:
        self._in_store.add(key)
        self._to_unlock.append((key, local))
        self._has_work.set()

    async def _unlock_in_store(self, key: _Key) -> bool:
        """Unlock a session in the store. Return False if that has to be tried again."""
        try:
            with trio.fail_after(UNLOCK_SECONDS):
                await self._shared.unlock_session(*key, self._node)
        except (StoreError, trio.TooSlowError) as error:
            log.warning("a session could not be unlocked yet", error=repr(error))
            return False
        self._in_store.discard(key)
        return True
