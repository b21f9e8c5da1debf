"""hermes_trio: an OpenAI-compatible API server for tool-using agents.

The public API is what this module exports, and :mod:`hermes_trio.testing`. Every other module is
internal and may change without notice. The names are imported when they are first used: importing
the package alone takes no time, which the command line needs.

Imports point one way, as ``tests/test_layering.py`` checks. ``core`` and ``schema`` are pure: no
await, clock, thread, randomness or I/O. ``agent``, ``stores`` and ``runs`` are thin Trio shells
around them. ``web`` speaks HTTP through Quart-Trio, ``server`` owns Hypercorn and the signals, and
``cli`` is on top.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hermes_trio.agent.asyncio_agent import AsyncioAgent, AsyncioEmitter
    from hermes_trio.agent.emitter import AsyncEmitter, Emitter, ToolCallHandle
    from hermes_trio.agent.event_queue import RunEnded
    from hermes_trio.agent.interface import (
        Agent,
        AgentConfig,
        AgentContext,
        AgentFactory,
        AgentProvider,
        AsyncAgent,
        TurnRequest,
        UpstreamLimits,
        can_continue,
        nonblocking,
    )
    from hermes_trio.agent.inventory import Inventory, Skill, Toolset, with_inventory
    from hermes_trio.bootstrap import create_app
    from hermes_trio.core.approvals import Decision
    from hermes_trio.core.errors import ConfigurationError
    from hermes_trio.core.events import Choice, Result, Verdict
    from hermes_trio.core.messages import Message, ToolCall, Usage
    from hermes_trio.server.main import serve
    from hermes_trio.settings import Settings
    from hermes_trio.tools.base import Tool, ToolError, ToolUse, tool
    from hermes_trio.tools.registry import find_tools

__version__ = "0.1.0"

__all__ = [
    "Agent",
    "AgentConfig",
    "AgentContext",
    "AgentFactory",
    "AgentProvider",
    "AsyncAgent",
    "AsyncEmitter",
    "AsyncioAgent",
    "AsyncioEmitter",
    "Choice",
    "ConfigurationError",
    "Decision",
    "Emitter",
    "Inventory",
    "Message",
    "Result",
    "RunEnded",
    "Settings",
    "Skill",
    "Tool",
    "ToolCall",
    "ToolCallHandle",
    "ToolError",
    "ToolUse",
    "Toolset",
    "TurnRequest",
    "UpstreamLimits",
    "Usage",
    "Verdict",
    "__version__",
    "can_continue",
    "create_app",
    "find_tools",
    "nonblocking",
    "serve",
    "tool",
    "with_inventory",
]

_MODULES = {
    "agent.asyncio_agent": ("AsyncioAgent", "AsyncioEmitter"),
    "agent.emitter": ("AsyncEmitter", "Emitter", "ToolCallHandle"),
    "agent.event_queue": ("RunEnded",),
    "agent.interface": (
        "Agent", "AgentConfig", "AgentContext", "AgentFactory", "AgentProvider", "AsyncAgent", "TurnRequest",
        "UpstreamLimits", "can_continue", "nonblocking",
    ),
    "agent.inventory": ("Inventory", "Skill", "Toolset", "with_inventory"),
    "bootstrap": ("create_app",),
    "core.approvals": ("Decision",),
    "core.errors": ("ConfigurationError",),
    "core.events": ("Choice", "Result", "Verdict"),
    "core.messages": ("Message", "ToolCall", "Usage"),
    "server.main": ("serve",),
    "settings": ("Settings",),
    "tools.base": ("Tool", "ToolError", "ToolUse", "tool"),
    "tools.registry": ("find_tools",),
}  # fmt: skip
_HOMES = {name: module for module, names in _MODULES.items() for name in names}

if not TYPE_CHECKING:  # a type checker reads the imports above, and reports every other name

    def __getattr__(name: str) -> object:
        """Import a public name from its module."""
        from importlib import import_module  # noqa: PLC0415  # not needed by the command line

        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    """List the public names, imported or not."""
    return sorted({*globals(), *__all__})
