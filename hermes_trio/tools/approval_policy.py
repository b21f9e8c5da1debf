"""A profile's rules on which tools need approval before they run.

``always`` asks before every call. ``dangerous``, the default, leaves the decision to the tool, which asks when it sees
a reason to. ``never`` asks nothing and approves whatever the tool would have asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any

import msgspec
from attrs import evolve

from hermes_trio.core.errors import ConfigurationError
from hermes_trio.core.shorten import shorten
from hermes_trio.tools.base import NOT_APPROVED, Tool, ToolError, ToolUse

_SHOWN_CHARS = 2_000


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
    """Return the same tools, guarded by the rules. An exact name takes precedence over the first matching glob."""
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
            if not await use.ask(command, description, (f"tool:{tool.name}",)):
                raise ToolError(NOT_APPROVED)
        return await tool.run(arguments, evolve(use, ask=_approve))

    return evolve(tool, run=run)


async def _approve(_command: str, _description: str, _patterns: tuple[str, ...]) -> bool:
    return True
