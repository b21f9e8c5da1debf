"""What happens where the system has no thread left, part by part and without a server."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
import trio
from attrs import evolve

from hermes_trio.core.events import AgentFailed
from hermes_trio.logs import RateLimitFilter
from hermes_trio.stores.base import StoreError
from hermes_trio.stores.sqlite import open_sqlite
from tests.agent.test_runner import AsyncTalker, Setting, Talker


class NoThreads:
    """In the place of a limiter: says what the interpreter says when a thread is to be started."""

    async def acquire_on_behalf_of(self, borrower: object) -> None:
        await trio.lowlevel.checkpoint()
        raise RuntimeError("can't start new thread")


def none_left() -> trio.CapacityLimiter:
    """Such a one."""
    return cast("trio.CapacityLimiter", NoThreads())


@pytest.mark.parametrize("make", [Talker, AsyncTalker])
@pytest.mark.parametrize("is_nonblocking", [False, True])
async def test_an_agent_that_gets_none_ends_its_run_and_frees_its_slot(
    make: Any, is_nonblocking: bool
) -> None:
    setting = Setting(make, is_nonblocking=is_nonblocking)
    setting.runner._runtime = evolve(setting.runner._runtime, threads=none_left())
    await setting.run()
    assert setting.exits == 1
    needed_one = make is Talker or not is_nonblocking
    assert any(isinstance(event, AgentFailed) for event in setting.queue.drain()) is needed_one


class Waiting(Talker):
    """Notes that it was interrupted."""

    reasons: tuple[str, ...] = ()

    def interrupt(self, reason: str) -> None:
        self.reasons += (reason,)


async def test_an_interrupt_that_gets_none_leaves_the_rest_to_the_grace() -> None:
    setting, agent = Setting(Waiting), Waiting()
    setting.runner._agent = agent
    await setting.runner._interrupt("with a thread")
    setting.runner._runtime = evolve(setting.runner._runtime, interrupts=none_left())
    await setting.runner._interrupt("without")
    assert agent.reasons == ("with a thread",)


async def test_a_store_that_gets_none_says_so_and_works_again(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path / "hermes.db") as store:
        made: Any = store
        for part in (made._writer, made._readers):
            real, part._limiter = part._limiter, none_left()
            ask = store.check if part is made._writer else partial(store.find_run, "ann", "nobody")
            with pytest.raises(StoreError, match="can't start new thread"):
                await ask()
            part._limiter = real
        await store.check()


def test_the_lack_of_descriptors_is_told_now_and_then() -> None:
    once = RateLimitFilter(10.0)
    told = []
    for second in (0.0, 0.1, 9.9, 10.0, 10.1, 25.0, -100.0):
        record = logging.LogRecord(
            "trio", logging.ERROR, "x", 1, "no room", None, (OSError, OSError(), None)
        )
        record.created = 1_000 + second
        if once.filter(record):
            told.append(second)
            assert record.exc_info is None
    assert told == [
        0.0,
        10.0,
        25.0,
        -100.0,
    ]  # the last: a clock that was set back must not silence it
