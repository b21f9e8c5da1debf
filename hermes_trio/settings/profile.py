"""One named agent of several: what its table in the settings file says, and what it takes from the top level."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import attrs
from attrs import frozen

from hermes_trio.settings import checks
from hermes_trio.settings.errors import WrongValueError

MASK = "********"
NOTHING: Mapping[str, Any] = MappingProxyType({})
_NAME = re.compile(r"(?!\.+$)[A-Za-z0-9._-]{1,64}")  # a folder is named so too
_TAKEN = "default"  # what people call the agent of the top level


def agent_for(agent: str, base_url: str) -> str:
    """The agent that is meant: the one that is named, else one that talks to a model if there is a server for it."""
    return agent or ("upstream" if base_url else "demo")


def masked(value: object) -> str:
    """The repr of a secret."""
    return repr(MASK if value else "")


def is_name(name: str) -> bool:
    """Whether a table may be called so."""
    return _NAME.fullmatch(name) is not None


def _a_name(_profile: object, field: attrs.Attribute[Any], value: str) -> None:
    if not is_name(value) or value == _TAKEN:
        raise WrongValueError(field.name, f"{checks.shown(value)} cannot be the name of a profile")


@frozen(kw_only=True)
class Profile:
    """A named agent."""

    name: str = attrs.field(validator=_a_name)
    agent: str = attrs.field(default="", validator=checks.an_agent)
    model: str = ""
    base_url: str = attrs.field(default="", validator=checks.a_base_url)
    api_key: str = attrs.field(default="", repr=masked)
    model_path: Path | None = None
    system_prompt: str = ""
    tools: tuple[str, ...] = attrs.field(default=(), validator=checks.words)
    max_iterations: int = attrs.field(default=50, validator=checks.AtLeast(1))
    keys: tuple[str, ...] = attrs.field(
        default=(), validator=checks.words
    )  # who may use it; () for everybody
    model_name: str = attrs.field(
        default=attrs.Factory(lambda self: self.name, takes_self=True), validator=checks.a_word
    )
    mcp: tuple[str, ...] = ()  # names of tool servers
    options: Mapping[str, Any] = attrs.field(default=NOTHING, repr=False)  # for the agent alone

    @property
    def agent_name(self) -> str:
        """The agent that is meant."""
        return agent_for(self.agent, self.base_url)
