"""Making an agent ready to be served: what its turns share is opened once, and closed when the server ends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import structlog
import trio

from hermes_trio.agent.config import AgentConfig
from hermes_trio.agent.contract import AgentFactory, AgentProvider
from hermes_trio.agents.lookup import is_provider

log = structlog.get_logger(__name__)

CLOSE_SECONDS = 10.0


@asynccontextmanager
async def open_agent(
    found: AgentFactory | AgentProvider, config: AgentConfig, workspace: Path
) -> AsyncIterator[AgentFactory]:
    """The factory of an agent, for as long as the block lasts.

    A provider that does not close in time is left as it is: a server that was told to end must end.

    Raises:
        ConfigurationError: the provider cannot work as it is configured.
    """
    if not is_provider(found):
        yield cast("AgentFactory", found)
        return
    with trio.CancelScope() as closing:
        async with found.open(config, workspace) as factory:
            try:
                yield factory
            finally:
                closing.deadline = trio.current_time() + CLOSE_SECONDS
    if closing.cancelled_caught:
        log.warning("an agent did not close in time", profile=config.profile, seconds=CLOSE_SECONDS)
