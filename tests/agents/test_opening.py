"""What the turns of an agent share: opened once, closed once, in time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from attrs import define, field
from structlog.testing import capture_logs
from trio.testing import MockClock

from hermes_trio.agent.config import AgentConfig
from hermes_trio.agent.contract import AgentFactory
from hermes_trio.agents.demo import factory
from hermes_trio.agents.opening import CLOSE_SECONDS, open_agent
from hermes_trio.core.errors import ConfigurationError

CONFIG = AgentConfig(profile="tester", model="m")
HERE = Path("/nonexistent")


@define(eq=False)
class Shared:
    """A provider that notes what happens to it."""

    refuses: str = ""
    close_seconds: float = 0.0
    notes: list[Any] = field(factory=list)

    @asynccontextmanager
    async def open(self, config: AgentConfig, workspace: Path) -> AsyncIterator[AgentFactory]:
        if self.refuses:
            raise ConfigurationError(self.refuses)
        self.notes.append((config, workspace))
        try:
            yield factory
        finally:
            await trio.sleep(self.close_seconds)  # noqa: ASYNC102 - to see who bounds it
            self.notes.append("closed")


async def test_a_factory_needs_no_opening() -> None:
    async with open_agent(factory, CONFIG, HERE) as opened:
        assert opened is factory


async def test_a_provider_is_told_its_settings_and_closed_once() -> None:
    shared = Shared()
    async with open_agent(shared, CONFIG, HERE) as opened:
        assert opened is factory
        assert shared.notes == [(CONFIG, HERE)]
    assert shared.notes == [(CONFIG, HERE), "closed"]


async def test_a_provider_may_refuse() -> None:
    with pytest.raises(ConfigurationError, match="no model"):
        async with open_agent(Shared(refuses="no model"), CONFIG, HERE):
            pytest.fail("it was opened")


async def test_what_the_block_raises_comes_out_and_the_provider_is_closed() -> None:
    shared = Shared()
    with pytest.raises(KeyError):
        async with open_agent(shared, CONFIG, HERE):
            raise KeyError
    assert shared.notes[-1] == "closed"


async def test_a_provider_that_does_not_close_is_left(autojump_clock: MockClock) -> None:
    shared = Shared(close_seconds=1000.0)
    begun = trio.current_time()
    with capture_logs() as logs:
        async with open_agent(shared, CONFIG, HERE):
            await trio.sleep(100.0)
    assert trio.current_time() - begun == 100.0 + CLOSE_SECONDS
    assert [(line["event"], line["profile"]) for line in logs] == [
        ("an agent did not close in time", "tester")
    ]


async def test_a_provider_that_closes_slowly_but_in_time(autojump_clock: MockClock) -> None:
    shared = Shared(close_seconds=CLOSE_SECONDS / 2)
    async with open_agent(shared, CONFIG, HERE):
        pass
    assert shared.notes[-1] == "closed"
