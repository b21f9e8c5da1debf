"""Resolve tool names from the settings to tools, and apply a profile's approval rules to them.

The rule ``always`` asks before every call. ``dangerous``, the default, leaves the decision to the
tool, which asks when it sees a reason to. ``never`` asks nothing and approves whatever the tool
would have asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any

import msgspec
from attrs import evolve

from hermes_trio.agent.importing import (
    ImportTargetError,
    describe_type,
    import_object,
    is_import_target,
)
from hermes_trio.core.errors import ConfigurationError
from hermes_trio.core.shorten import shorten
from hermes_trio.tools.base import (
    NOT_APPROVED,
    InvalidArguments,
    Tool,
    ToolError,
    ToolUse,
    approval_pattern,
    read_signature,
)

# Imported on first use. Each is a tool, or a function that makes one from its options.
SHIPPED: Mapping[str, str] = MappingProxyType(
    {
        "read_file": "hermes_trio.tools.files:read_file",
        "search_files": "hermes_trio.tools.search:search_files",
        "write_file": "hermes_trio.tools.files:write_file",
        "patch": "hermes_trio.tools.files:patch",
        "terminal": "hermes_trio.tools.terminal:make_terminal",
        "web_fetch": "hermes_trio.tools.web_fetch:make_web_fetch",
    }
)
_NO_OPTIONS: Mapping[str, Any] = MappingProxyType({})
_SHOWN_CHARS = 2_000  # of the arguments in an approval request


def find_tools(names: Iterable[str], options: Mapping[str, Any] = _NO_OPTIONS) -> tuple[Tool, ...]:
    """Return the tools with these names, in the same order.

    Args:
        names: shipped tools, or ``module:attribute``. An empty iterable means all shipped tools; a
            single ``none``
            means no tools.
        options: a table per tool, by the tool's name. Other entries are ignored.

    Raises:
        ConfigurationError: a tool does not exist, two have the same name, or options are wrong. The
            message is one
            line.
    """
    requested = tuple(names) or tuple(SHIPPED)
    tools = () if requested == ("none",) else tuple(_find(name, options) for name in requested)
    for number, tool in enumerate(tools):
        if tool.name in (other.name for other in tools[:number]):
            raise ConfigurationError(f"tools: two tools are named {tool.name!r}")
    return tools


def _find(name: str, options: Mapping[str, Any]) -> Tool:
    target = SHIPPED.get(name, name)
    if not is_import_target(target):
        raise ConfigurationError(
            f"no tool {name!r}: expected {', '.join(SHIPPED)}, or module:attribute"
        )
    try:
        found = import_object(target)
    except ImportTargetError as problem:
        raise ConfigurationError(f"tool {name!r}: {problem}") from problem
    if isinstance(found, Tool):
        return found
    if name not in SHIPPED or not callable(found):
        raise ConfigurationError(
            f"{name} is {describe_type(found)}, not a tool: decorate the function with @tool"
        )
    table = options.get(name, _NO_OPTIONS)
    if not isinstance(table, Mapping):
        raise ConfigurationError(f"options of {name}: expected a table, not {describe_type(table)}")
    try:
        made: Tool = found(**read_signature(found, Tool).arguments(table))
    except InvalidArguments as error:
        raise ConfigurationError(
            f"options of {name}: {error}".replace("argument", "option")
        ) from error
    return made


# -- approval rules --


class ApprovalRule(StrEnum):
    """When a tool needs approval."""

    ALWAYS = "always"
    DANGEROUS = "dangerous"
    NEVER = "never"


ApprovalRules = Mapping[str, ApprovalRule]


def read_approval_rules(options: Mapping[str, Any]) -> ApprovalRules:
    """Read a profile's ``approvals`` table, which maps tool names or globs to rules.

    Raises:
        ConfigurationError: the table is malformed. The message is one line.
    """
    try:
        return msgspec.convert(options.get("approvals", {}), dict[str, ApprovalRule])
    except msgspec.ValidationError as error:
        expected = ", ".join(ApprovalRule)
        raise ConfigurationError(
            f"approvals: expected tool names, each with one of {expected}: {error}"
        ) from error


def apply_approval_rules(tools: Iterable[Tool], rules: ApprovalRules) -> tuple[Tool, ...]:
    """Return the same tools, guarded by the rules.

    An exact name takes precedence over the first matching glob.
    """
    return tuple(_guard(tool, _rule_for(tool.name, rules)) for tool in tools)


def _rule_for(name: str, rules: ApprovalRules) -> ApprovalRule:
    matching = (rule for glob, rule in rules.items() if fnmatchcase(name, glob))
    return rules.get(name) or next(matching, ApprovalRule.DANGEROUS)


def _guard(tool: Tool, rule: ApprovalRule) -> Tool:
    if rule is ApprovalRule.DANGEROUS:
        return tool

    async def run(arguments: Mapping[str, Any], use: ToolUse) -> str:
        if rule is ApprovalRule.ALWAYS:
            command = arguments.get("command")
            if not isinstance(command, str):
                encoded = msgspec.json.encode(arguments, enc_hook=str).decode()
                command = f"{tool.name} {shorten(encoded, _SHOWN_CHARS)}"
            description = f"the tool {tool.name} asks before every call"
            if not await use.ask(command, description, (_call_pattern(tool.name, arguments),)):
                raise ToolError(NOT_APPROVED)
        return await tool.run(arguments, evolve(use, ask=_approve))

    return evolve(tool, run=run)


def _call_pattern(name: str, arguments: Mapping[str, Any]) -> str:
    """Return what an approval of a call is remembered by: the same call, with the same arguments."""
    encoded = msgspec.json.encode(arguments, enc_hook=str, order="sorted").decode()
    return approval_pattern(f"tool {name}", encoded)


async def _approve(
    _command: str, _description: str, _patterns: tuple[str, ...], _allow_permanent: bool
) -> bool:
    return True
