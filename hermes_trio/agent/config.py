"""What the settings say about an agent. There is one of these for each profile."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from attrs import field, frozen

NOTHING: Mapping[str, Any] = MappingProxyType({})


@frozen
class UpstreamLimits:
    """How patient an agent is with the model's server, in seconds, and how often it tries again."""

    connect: float = 10.0
    read: float = 60.0  # silence between two pieces of an answer
    write: float = 60.0
    pool: float = 30.0
    retries: int = 2


DEFAULT_LIMITS = UpstreamLimits()


@frozen
class AgentConfig:
    """Everything that an agent may be told. An agent takes what concerns it."""

    profile: str = ""  # "" for the agent that the server's own settings describe
    model: str = ""  # the name that the model's server knows
    base_url: str = ""
    api_key: str = field(default="", repr=False)
    model_path: Path | None = None  # for agents that serve the model themselves
    system_prompt: str = ""
    tools: tuple[str, ...] = ()  # names of tools, or module:attribute
    max_iterations: int = 50  # model calls in one turn
    limits: UpstreamLimits = DEFAULT_LIMITS
    # Servers of tools, by name, as the settings file has them; and whatever else it says. Both may hold secrets.
    mcp: Mapping[str, Mapping[str, Any]] = field(default=NOTHING, repr=False)
    options: Mapping[str, Any] = field(default=NOTHING, repr=False)


DEFAULT_CONFIG = AgentConfig()
