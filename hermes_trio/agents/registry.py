"""Resolve an agent name from the settings to its factory or provider, and open providers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from inspect import signature
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeGuard, cast, get_type_hints

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
    for complaint in _complaints(found):
        raise AgentNotFound(f"{name}: {complaint}")
    return cast("AgentFactory", found)


def _complaints(factory: Callable[..., object]) -> Iterator[str]:
    """Yield what is wrong with a factory, as far as that is known without calling it."""
    try:
        signature(factory).bind(None)
    except TypeError:
        yield f"{describe_type(factory)} cannot be called with the context as its only argument"
    except ValueError:
        pass  # some built-in functions have no signature
    for made in _made_classes(factory):
        if not callable(getattr(made, "run", None)):
            yield f"the agent {describe_type(made)} has no method 'run'"


def _made_classes(factory: object) -> Iterator[type]:
    """Yield the class of the agents that a factory makes, where that is known without calling it."""
    made = factory
    if not isinstance(factory, type):
        try:
            made = get_type_hints(factory).get("return")
        except Exception:  # noqa: BLE001 - annotations may name what exists only for a type checker
            return
    if isinstance(made, type) and made not in (Any, object):
        yield made


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
