"""Ends that the store did not take: tried again until it does.

Otherwise a run would stay in progress for ever because a disk was full for a minute.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import structlog
import trio
from attrs import define

from hermes_trio.core.records import EndedRun, LogBatch
from hermes_trio.stores.base import Store, StoreError

log = structlog.get_logger(__name__)

RETRY_AFTER = 1.0
MAX_TRIES = 600  # then it stays in progress, and the next start of the server ends it
MOST = 1_000  # ends of runs that the store has not heard of; while it takes nothing, there could be any number of them


@define(eq=False)
class UnsavedEnd:
    """The end of a run as its readers were told it."""

    ended: EndedRun
    tail: tuple[LogBatch, ...]
    items: tuple[Mapping[str, Any], ...]
    has_begun: bool = True  # in the store: there must be an end to it
    tries: int = 0


class UnsavedEnds:
    """There are never more of them than runs that the store let begin, and a bounded number of others."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._unsaved: list[UnsavedEnd] = []
        self._wanted = trio.Event()

    def want(self, unsaved: UnsavedEnd) -> None:
        """Save an end as soon as the store can."""
        if not unsaved.has_begun and len(self._unsaved) >= MOST:
            log.error(
                "a turn is lost: the store has taken none for too long", run_id=unsaved.ended.header.run_id
            )
            return
        self._unsaved.append(unsaved)
        self._wanted.set()

    async def run(self) -> None:
        """Try until cancelled."""
        while True:
            await self._wanted.wait()
            await trio.sleep(RETRY_AFTER)
            for unsaved in tuple(self._unsaved):
                await self._try(unsaved)
            if not self._unsaved:
                self._wanted = trio.Event()

    async def _try(self, unsaved: UnsavedEnd) -> None:
        run_id = unsaved.ended.header.run_id
        try:
            await self._store.end_run(unsaved.ended, unsaved.tail, unsaved.items)
        except StoreError as error:
            self._failed(unsaved, str(error))
        except Exception as error:  # noqa: BLE001 - our own mistake, and of one run: all the others are saved here too
            self._failed(unsaved, repr(error))
        else:
            log.warning("the end of a run was saved late", run_id=run_id)
            self._unsaved.remove(unsaved)

    def _failed(self, unsaved: UnsavedEnd, error: str) -> None:
        unsaved.tries += 1
        if unsaved.tries >= MAX_TRIES:
            log.error("gave up saving the end of a run", run_id=unsaved.ended.header.run_id, error=error)
            self._unsaved.remove(unsaved)
