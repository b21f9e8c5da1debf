"""From the name of an agent, as it stands in the settings, to the factory or the provider behind it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeGuard, cast

from hermes_trio.agent.contract import AgentFactory, AgentProvider
from hermes_trio.agent.naming import NameProblem, find_named, is_qualified, kind_of

# Imported when they are asked for: a server that serves a user's agent needs none of them.
SHIPPED: Mapping[str, str] = MappingProxyType(
    {
        "demo": "hermes_trio.agents.demo:factory",
        "hermes": "hermes_trio.agents.hermes.provider:provider",
        "local": "hermes_trio.agents.local:provider",
        "synthetic": "hermes_trio.agents.synthetic:factory",
        "upstream": "hermes_trio.agents.upstream:provider",
    }
)


class AgentNotFound(Exception):
    """There is no such agent. The text is one line that says what is missing."""


def find_agent(name: str) -> AgentFactory | AgentProvider:
    """The factory that a name stands for, or the provider of one.

    Args:
        name: a shipped agent, or ``module:attribute``; the attribute may have dots. The module is looked for in the
            working directory too.

    Raises:
        AgentNotFound: no such module or attribute, it is neither, or the module fails when it is imported.
    """
    place = SHIPPED.get(name, name)
    if not is_qualified(place):
        raise AgentNotFound(f"no agent {name!r}: there are {', '.join(SHIPPED)}, or give module:factory")
    try:
        found = find_named(place)
    except NameProblem as problem:
        raise AgentNotFound(str(problem)) from problem.__cause__
    if is_provider(found):
        return found
    if not callable(found):
        raise AgentNotFound(f"{name}: {place.partition(':')[2]} is {kind_of(found)}, not something to call")
    return cast("AgentFactory", found)


def is_provider(found: object) -> TypeGuard[AgentProvider]:
    """Whether something is to be opened, rather than called. A class is always called, whatever methods it has."""
    return isinstance(found, AgentProvider) and not isinstance(found, type)
