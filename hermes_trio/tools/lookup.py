"""From the names of tools, as they stand in the settings, to the tools."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from hermes_trio.agent.naming import NameProblem, find_named, is_qualified, kind_of
from hermes_trio.core.errors import ConfigurationError
from hermes_trio.tools.contract import Tool
from hermes_trio.tools.signature import Misfit, read_signature

# Imported when they are asked for. Each is a tool, or a function that makes one and takes its options.
SHIPPED: Mapping[str, str] = MappingProxyType(
    {
        "read_file": "hermes_trio.tools.read_file:read_file",
        "search_files": "hermes_trio.tools.search_files:search_files",
        "write_file": "hermes_trio.tools.write_file:write_file",
        "patch": "hermes_trio.tools.patch:patch",
        "terminal": "hermes_trio.tools.terminal_tool:make_terminal",
        "web_fetch": "hermes_trio.tools.web_fetch:make_web_fetch",
    }
)
NOTHING: Mapping[str, Any] = MappingProxyType({})


def find_tools(names: Iterable[str], options: Mapping[str, Any] = NOTHING) -> tuple[Tool, ...]:
    """The tools that these names stand for, in the same order.

    Args:
        names: of shipped tools, or ``module:attribute``. None at all means all that are shipped; a single ``none``
            means no tool.
        options: a table for each tool that has any, by its name. Other entries are not looked at.

    Raises:
        ConfigurationError: no such tool, two of one name, or wrong options. The text is one line.
    """
    asked = tuple(names) or tuple(SHIPPED)
    tools = () if asked == ("none",) else tuple(_find(name, options) for name in asked)
    for number, tool in enumerate(tools):
        if tool.name in (other.name for other in tools[:number]):
            raise ConfigurationError(f"tools: there are two tools of the name {tool.name!r}")
    return tools


def _find(name: str, options: Mapping[str, Any]) -> Tool:
    place = SHIPPED.get(name, name)
    if not is_qualified(place):
        raise ConfigurationError(
            f"no tool {name!r}: there are {', '.join(SHIPPED)}, or give module:attribute"
        )
    try:
        found = find_named(place)
    except NameProblem as problem:
        raise ConfigurationError(f"tool {name!r}: {problem}") from problem
    return _made(name, found, options)


def _made(name: str, found: object, options: Mapping[str, Any]) -> Tool:
    if name in SHIPPED and callable(found):
        return _with_options(name, found, options.get(name, NOTHING))
    if not isinstance(found, Tool):
        raise ConfigurationError(f"{name} is {kind_of(found)}, not a tool: put @tool above the function")
    return found


def _with_options(name: str, make: Callable[..., Tool], table: object) -> Tool:
    if not isinstance(table, Mapping):
        raise ConfigurationError(f"options of {name}: expected a table, not {kind_of(table)}")
    try:
        return make(**read_signature(make, Tool).arguments(table))
    except Misfit as misfit:
        raise ConfigurationError(f"options of {name}: {misfit}".replace("argument", "option")) from misfit
