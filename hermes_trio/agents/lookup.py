"""From the name of an agent, as it stands in the settings, to the factory or the provider behind it."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType, ModuleType
from typing import TypeGuard, cast

from hermes_trio.agent.contract import AgentFactory, AgentProvider

# Imported when they are asked for: a server that serves a user's agent needs none of them.
SHIPPED: Mapping[str, str] = MappingProxyType(
    {
        "demo": "hermes_trio.agents.demo:factory",
        "hermes": "hermes_trio.agents.hermes.provider:provider",
        "synthetic": "hermes_trio.agents.synthetic:factory",
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
    module_name, colon, attribute = SHIPPED.get(name, name).partition(":")
    if not (colon and module_name and attribute):
        raise AgentNotFound(f"no agent {name!r}: there are {', '.join(SHIPPED)}, or give module:factory")
    found: object = _module(module_name)
    for part in attribute.split("."):
        found = _attribute(found, part, name)
    if is_provider(found):
        return found
    if not callable(found):
        raise AgentNotFound(f"{name}: {attribute} is {_a(found)}, not something to call")
    return cast("AgentFactory", found)


def is_provider(found: object) -> TypeGuard[AgentProvider]:
    """Whether something is to be opened, rather than called. A class is always called, whatever methods it has."""
    return isinstance(found, AgentProvider) and not isinstance(found, type)


def _module(name: str) -> ModuleType:
    _look_in_working_directory()
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and f"{name}.".startswith(f"{error.name}."):
            raise AgentNotFound(f"there is no module {error.name!r}") from error
        raise AgentNotFound(_failed(name, error)) from error
    except (Exception, SystemExit) as error:
        raise AgentNotFound(_failed(name, error)) from error


def _look_in_working_directory() -> None:
    with suppress(FileNotFoundError):  # it may have been deleted under us
        if (folder := os.getcwd()) not in sys.path:
            sys.path.insert(0, folder)


def _attribute(owner: object, part: str, name: str) -> object:
    try:
        return getattr(owner, part)
    except AttributeError as error:
        raise AgentNotFound(f"{name}: {_a(owner)} has no attribute {part!r}") from error


def _failed(name: str, error: BaseException) -> str:
    said = " ".join(str(error).split())
    return f"module {name!r} cannot be imported: {type(error).__name__}{': ' if said else ''}{said}"


def _a(thing: object) -> str:
    """What to call a thing in a message."""
    if isinstance(thing, ModuleType | type):
        return f"{'module' if isinstance(thing, ModuleType) else 'class'} {thing.__name__!r}"
    return f"an object of type {type(thing).__name__!r}"
