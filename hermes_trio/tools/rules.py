"""Which tools ask before they run, by the rules of a profile.

``always`` asks before every call. ``dangerous`` leaves it to the tool, which asks when it sees a reason to; that is what
holds if nothing is said. ``never`` asks nothing, and answers yes to what the tool would have asked.
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
from hermes_trio.tools.contract import NOT_APPROVED, Tool, ToolProblem, ToolUse

_SHOWN = 2_000


class Approval(StrEnum):
    """When a tool asks."""

    ALWAYS = "always"
    DANGEROUS = "dangerous"
    NEVER = "never"


Rules = Mapping[str, Approval]


def read_rules(options: Mapping[str, Any]) -> Rules:
    """The rules in the table ``approvals`` of a profile: names of tools, or globs, and when they ask.

    Raises:
        ConfigurationError: the table does not have this form. The text is one line.
    """
    try:
        return msgspec.convert(options.get("approvals", {}), dict[str, Approval])
    except msgspec.ValidationError as error:
        expected = ", ".join(Approval)
        raise ConfigurationError(
            f"approvals: expected names of tools with one of {expected}: {error}"
        ) from error


def with_rules(tools: Iterable[Tool], rules: Rules) -> tuple[Tool, ...]:
    """The same tools, which now keep to the rules. A name counts before the first glob that fits."""
    return tuple(_guarded(tool, _rule_for(tool.name, rules)) for tool in tools)


def _rule_for(name: str, rules: Rules) -> Approval:
    fitting = (rule for glob, rule in rules.items() if fnmatchcase(name, glob))
    return rules.get(name) or next(fitting, Approval.DANGEROUS)


def _guarded(tool: Tool, rule: Approval) -> Tool:
    if rule is Approval.DANGEROUS:
        return tool

    async def run(arguments: Mapping[str, Any], use: ToolUse) -> str:
        if rule is Approval.ALWAYS and not await use.ask(*_question(tool.name, arguments)):
            raise ToolProblem(NOT_APPROVED)
        return await tool.run(arguments, evolve(use, ask=_agreed))

    return evolve(tool, run=run)


def _question(name: str, arguments: Mapping[str, Any]) -> tuple[str, str, tuple[str, ...]]:
    command = arguments.get("command")
    if not isinstance(command, str):
        command = f"{name} {shorten(msgspec.json.encode(arguments, enc_hook=str).decode(), _SHOWN)}"
    return command, f"the tool {name} asks before every call", (f"tool:{name}",)


async def _agreed(_command: str, _description: str, _patterns: tuple[str, ...]) -> bool:
    return True
