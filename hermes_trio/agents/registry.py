"""Resolve an agent name from the settings to its factory or provider, and open providers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TypeGuard, cast

import structlog
import trio

from hermes_trio.agent.importing import (
    ImportTargetError,
    describe_type,
    import_object,
    is_import_target,
)
from hermes_trio.agent.interface import AgentConfig, AgentFactory, AgentProvider

log = structlog.get_logger(__name__)

CLOSE_SECONDS = 10.0

# Imported on first use: a server that runs a user's own agent needs none of them.
SHIPPED: Mapping[str, str] = MappingProxyType(
    {
        "demo": "hermes_trio.agents.demo:factory",
        "hermes": "hermes_trio.agents.hermes.provider:provider",
        "local": "hermes_trio.agents.local.provider:provider",
        "synthetic": "hermes_trio.agents.synthetic:factory",
        "upstream": "hermes_trio.agents.upstream.provider:provider",
    }
)


class AgentNotFound(Exception):
    """No agent has the given name. The message is one line that says what is missing."""


def find_agent(name: str) -> AgentFactory | AgentProvider:
    """Return the factory or provider that a name stands for.

    Args:
        name: a shipped agent, or ``module:attribute``; the attribute may be dotted. The working
            directory is searched
            for the module as well.

    Raises:
        AgentNotFound: the module or attribute does not exist, is neither callable nor a provider,
            or the module fails
            to import.
    """
    target = SHIPPED.get(name, name)
    if not is_import_target(target):
        raise AgentNotFound(f"no agent {name!r}: expected {', '.join(SHIPPED)}, or module:factory")
    try:
        found = import_object(target)
    except ImportTargetError as problem:
        raise AgentNotFound(str(problem)) from problem.__cause__
    if is_provider(found):
        return found
    if not callable(found):
        raise AgentNotFound(
            f"{name}: {target.partition(':')[2]} is {describe_type(found)}, which is not callable"
        )
    return cast("AgentFactory", found)


def is_provider(found: object) -> TypeGuard[AgentProvider]:
    """Return True for an object to be opened rather than called.

    A class is always called, whatever its methods.
    """
    return isinstance(found, AgentProvider) and not isinstance(found, type)


@asynccontextmanager
async def open_agent(
    found: AgentFactory | AgentProvider, config: AgentConfig, workspace: Path
) -> AsyncIterator[AgentFactory]:
    """Open an agent's shared resources and yield its factory; close them at the end of the block.

    A provider that has not closed after ``CLOSE_SECONDS`` is cancelled, so that it cannot delay
    shutdown.

    Raises:
        ConfigurationError: the provider cannot work with this configuration.
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
        log.warning("agent did not close in time", profile=config.profile, seconds=CLOSE_SECONDS)
