"""Forgetting what need not be kept, little by little."""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog
import trio

from hermes_trio.core.records import PurgeResult, Retention
from hermes_trio.stores.base import Store

log = structlog.get_logger(__name__)

INTERVAL = 60.0
NOTHING = PurgeResult()


async def keep_tidy(store: Store, retention: Retention, now: Callable[[], float] = time.time) -> None:
    """Forget once a minute, until cancelled."""
    while True:
        await trio.sleep(INTERVAL)
        await _tidy(store, retention, now())


async def _tidy(store: Store, retention: Retention, now: float) -> None:
    """A call forgets a bounded amount, so there may be more to do."""
    try:
        is_tidy = False
        while not is_tidy:
            is_tidy = await store.purge(retention, now) == NOTHING
    except Exception:
        log.exception("the store could not be tidied")  # the next minute may be better
