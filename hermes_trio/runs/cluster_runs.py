"""A limit on the concurrent runs of a principal that all nodes of a shared store obey together.

Each run takes a slot in the store, and gives it back in the background. The slots of a node that died
count for nothing, as soon as its lease has lapsed.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from functools import partial

import structlog
import trio
from attrs import define, field

from hermes_trio.runs.admission import too_many
from hermes_trio.stores.base import SharedStore, StoreError

log = structlog.get_logger(__name__)

RETRY_SECONDS = 1.0
WAIT_SECONDS = 1.0  # how long a run waits for slots of its principal that are being given back


@define(eq=False)
class ClusterRuns:
    """The slots that the runs of this node take. :meth:`run` is its task.

    Args:
        shared: the store that all nodes share.
        node: the name of this node.
        limit: how many slots a principal may have on all nodes.
    """

    shared: SharedStore
    node: str
    limit: int
    _to_give_back: dict[str, str] = field(factory=dict)  # principals by the names of their slots
    _has_work: trio.Event = field(factory=trio.Event)
    _given_back: trio.Event = field(factory=trio.Event)

    async def take(self, principal: str) -> Callable[[], None]:
        """Take a slot, and return what gives it back.

        Raises:
            ApiError: 429 if the principal has all of its slots.
            StoreError: the store fails.
        """
        while not (slot := await self._try(principal)):
            if not await self._wait_given_back(principal):
                message = (
                    f"Too many concurrent runs with this API key on all nodes (max {self.limit})."
                )
                raise too_many(message)
        return partial(self._give_back, principal, slot)

    async def _try(self, principal: str) -> str:
        slot = f"slot_{secrets.token_hex(16)}"
        try:
            is_taken = await self.shared.take_run_slot(principal, slot, self.node, self.limit)
        except BaseException:
            self._give_back(principal, slot)  # it may be taken
            raise
        return slot if is_taken else ""

    async def _wait_given_back(self, principal: str) -> bool:
        """Wait for slots of a principal that are being given back; return False if there are none."""
        if principal in self._to_give_back.values():
            with trio.move_on_after(WAIT_SECONDS):
                await self._given_back.wait()
                return True
        return False

    def _give_back(self, principal: str, slot: str) -> None:
        self._to_give_back[slot] = principal
        self._has_work.set()

    async def run(self) -> None:
        """Give slots back until cancelled. What the store does not accept now is tried again."""
        while True:
            await self._has_work.wait()
            self._has_work = trio.Event()
            slots = tuple(self._to_give_back)
            try:
                await self.shared.give_back_run_slots(slots)
            except StoreError as error:
                log.warning("slots could not be given back yet", error=str(error))
                await trio.sleep(RETRY_SECONDS)
                self._has_work.set()
                continue
            for slot in slots:
                del self._to_give_back[slot]
            self._given_back.set()
            self._given_back = trio.Event()
