"""The lease of this process in a store that several nodes share, and the runs of nodes that died.

A node renews its lease four times in its duration. Every node looks about once a second for the runs
of nodes whose lease has lapsed, takes them over and ends them, so that a dead node loses nothing.

A node that is alive but cannot reach the store stops its own runs after half of its lease, by its
own monotonic clock: before any other node may take them over. One that was suspended for longer finds
out when it renews. The store refuses whatever it tries to write to a run that is not its own any more.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import structlog
import trio
from attrs import define

from hermes_trio.core.records import EndedRun
from hermes_trio.runs.recovery import recover
from hermes_trio.runs.spec import Items, Services
from hermes_trio.stores.base import LeasedStore, StoreError

log = structlog.get_logger(__name__)

RENEWALS = 4  # in the duration of a lease
RETRIES = 16  # the same, while renewals fail
TAKE_OVER_SECONDS = 1.0
LEAVE_SECONDS = 5.0
JITTER = 0.2
"""The part of an interval by which it varies, so that nodes that start together do not stay in step."""

ToItems = Callable[[EndedRun], Items]


@define
class LeaseStatus:
    """Whether this node may start runs."""

    problem: str = ""  # why not, for everyone to read; "" if it may


@asynccontextmanager
async def open_lease(
    services: Services, to_items: ToItems, address: str
) -> AsyncIterator[LeaseStatus]:
    """Hold a lease for the length of the block, and end the runs of dead nodes.

    Where the store is not shared, the runs of earlier processes are ended before the block begins.

    Args:
        services: those of the runs of this node.
        to_items: the items that the conversation of a run gains.
        address: tells people where the node runs.

    Raises:
        StoreError: the store fails before the block begins.
    """
    store, status = services.store, LeaseStatus()
    if not isinstance(store, LeasedStore):
        await recover(services.store, services.owner, to_items)
        yield status
        return
    await store.join(services.owner, address)
    tasks = _LeaseTasks(store, services, to_items, status)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(tasks.run)
            try:
                yield status
            finally:
                tasks.close()
    finally:
        await _leave(store, services.owner)  # noqa: ASYNC102 - it is shielded, and bounds its own time


async def _leave(store: LeasedStore, node: str) -> None:
    with trio.move_on_after(LEAVE_SECONDS, shield=True) as scope:
        try:
            await store.leave(node)
        except StoreError as error:
            log.warning("the lease was not given back", node=node, error=str(error))
    if scope.cancelled_caught:
        log.warning("the lease was not given back", node=node, error="the store took too long")


class _LeaseTasks:
    """The tasks of a node. Create it right after the node has joined."""

    def __init__(
        self, store: LeasedStore, services: Services, to_items: ToItems, status: LeaseStatus
    ) -> None:
        self._store, self._services, self._to_items = store, services, to_items
        self._status = status
        self._seconds = store.lease_seconds
        # What is certain: the store counts from a later moment.
        self._renewed_at = trio.current_time()
        self._renewed = trio.Event()
        self._error = ""  # why the runs of dead nodes could not be ended
        # When the server is cancelled, its runs have yet to be saved.
        self._scope = trio.CancelScope(shield=True)

    def close(self) -> None:
        """End the tasks."""
        self._scope.cancel()

    async def run(self) -> None:
        """Renew the lease and take over runs until closed."""
        with self._scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._renew)
                nursery.start_soon(self._stop_when_silent)
                nursery.start_soon(self._take_over)

    # -- the lease --

    async def _renew(self) -> None:
        attempts = RENEWALS
        while True:
            await trio.sleep(self._seconds / attempts * random.uniform(1 - JITTER, 1))  # noqa: S311 - no secret
            attempts = RENEWALS if await self._try_to_renew() else RETRIES

    async def _try_to_renew(self) -> bool:
        began = trio.current_time()
        with trio.move_on_after(self._seconds / 2):
            try:
                had_lease = await self._store.renew_lease(self._services.owner)
            except StoreError as error:
                log.warning("the lease could not be renewed", error=str(error))
                return False
            except Exception:
                log.exception(
                    "the lease could not be renewed"
                )  # a bug of ours; the runs are stopped in time
                return False
            self._note_renewal(began, had_lease)
            return True
        log.warning("the lease could not be renewed", error="the store took too long")
        return False

    def _note_renewal(self, began: float, had_lease: bool) -> None:
        self._renewed_at = began
        if not had_lease:
            log.critical("the lease had lapsed; the runs of this node are stopped")
            self._stop_runs()
        elif self._status.problem:
            log.warning("the lease is renewed again")
        self._status.problem = ""
        self._renewed.set()
        self._renewed = trio.Event()

    async def _stop_when_silent(self) -> None:
        """Stop the runs of this node whenever half of a lease has passed without a renewal."""
        while True:
            await trio.sleep_until(self._renewed_at + self._seconds / 2)
            if trio.current_time() < self._renewed_at + self._seconds / 2:
                continue
            log.critical("the lease is not renewed; the runs of this node are stopped")
            self._status.problem = "the lease of this node is not renewed"
            self._stop_runs()
            await self._renewed.wait()

    def _stop_runs(self) -> None:
        for run in self._services.registry:
            run.fence()

    # -- the runs of others --

    async def _take_over(self) -> None:
        while True:
            if not self._status.problem:
                self._note_take_over(await self._try_to_take_over())
            await trio.sleep(TAKE_OVER_SECONDS * random.uniform(1 - JITTER, 1 + JITTER))  # noqa: S311 - no secret

    async def _try_to_take_over(self) -> str:
        """Take over the runs of dead nodes and end them. Return why that failed, "" if it did not."""
        try:
            await recover(self._services.store, self._services.owner, self._to_items)
        except StoreError as error:
            return str(error)
        except Exception as error:
            if not self._error:
                log.exception("a run of a dead node cannot be ended")
            return repr(error)
        return ""

    def _note_take_over(self, error: str) -> None:
        if error and not self._error:
            log.error("the runs of dead nodes cannot be ended", error=error)
        self._error = error
