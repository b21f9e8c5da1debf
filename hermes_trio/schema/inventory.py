"""Replies of the routes that list what an agent can use."""

from __future__ import annotations

from typing import Literal

from attrs import frozen


@frozen
class ToolsetObject:
    """A named group of tools."""

    name: str
    label: str
    description: str
    enabled: bool  # the agent has these tools
    configured: bool  # the keys and programs that they need are there
    tools: list[str]


@frozen
class ToolsetList:
    """The toolsets of an agent."""

    data: list[ToolsetObject]
    object: Literal["list"] = "list"
    platform: Literal["api_server"] = "api_server"


@frozen
class SkillObject:
    """A skill of an agent."""

    name: str
    description: str
    category: str | None


@frozen
class SkillList:
    """The skills of an agent."""

    data: list[SkillObject]
    object: Literal["list"] = "list"


@frozen
class ModelProvider:
    """A provider of models: this server is the only one."""

    slug: str
    name: str
    is_current: bool
    is_user_defined: bool
    models: list[str]
    total_models: int
    source: str
    authenticated: bool


@frozen
class ModelOptions:
    """The models that a client may choose from, and the one that it gets without a choice."""

    providers: list[ModelProvider]
    model: str
    provider: str
