"""What the settings say about this agent, checked once at the start."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
from attrs import field, frozen

from hermes_trio.agent.interface import DEFAULT_CONFIG, AgentConfig
from hermes_trio.core.errors import ConfigurationError


@frozen
class HermesOptions:
    """What ``AgentConfig.options`` may hold for this agent. "" leaves the choice to the configuration of Hermes."""

    home: str = ""  # the Hermes home; "" for HERMES_HOME or the usual place
    hermes_profile: str = ""  # a profile of Hermes, which is a home of its own
    provider: str = ""  # as in Hermes: openrouter, anthropic, custom, …
    api_mode: str = ""  # chat_completions, anthropic_messages, codex_responses, …
    reasoning_effort: str = ""  # none, minimal, low, medium, high, xhigh
    cwd: str = ""  # where tools work; "" for what Hermes is configured to
    skip_memory: bool = False
    skip_context_files: bool = False
    adopt_sessions: bool = False  # read what the database of Hermes knows of a session
    warm_up: bool = True  # make one agent at the start


@frozen
class HermesConfig:
    """Everything that the settings say."""

    model: str = ""
    base_url: str = ""
    api_key: str = field(default="", repr=False)
    system_prompt: str = ""
    toolsets: tuple[str, ...] = ()
    max_iterations: int = 0  # 0: as Hermes is configured
    options: HermesOptions = field(factory=HermesOptions)


def read_config(config: AgentConfig) -> HermesConfig:
    """Take from the settings what concerns this agent.

    Raises:
        ConfigurationError: there is an option that it does not have, or a value of another type.
    """
    options = _read_options(config.options)
    if options.home and options.hermes_profile:
        raise ConfigurationError("the hermes agent takes either home or hermes_profile, not both")
    return HermesConfig(
        model=config.model,
        base_url=config.base_url,
        api_key=config.api_key,
        system_prompt=config.system_prompt,
        toolsets=config.tools,
        max_iterations=_own(config.max_iterations, DEFAULT_CONFIG.max_iterations),
        options=options,
    )


def _own(value: int, default: int) -> int:
    """Hermes has a limit of its own, so ours counts only where somebody changed it."""
    return 0 if value == default else value


def _read_options(given: Mapping[str, Any]) -> HermesOptions:
    known = {attribute.name: type(attribute.default) for attribute in attrs.fields(HermesOptions)}
    for name, value in given.items():
        if name not in known:
            raise ConfigurationError(f"the hermes agent has no option {name!r}; it has {', '.join(known)}")
        if not isinstance(value, known[name]):
            raise ConfigurationError(f"option {name!r} of the hermes agent must be a {known[name].__name__}")
    return HermesOptions(**_expanded(given))


def _expanded(given: Mapping[str, Any]) -> dict[str, Any]:
    paths = {name: str(Path(given[name]).expanduser()) for name in ("home", "cwd") if given.get(name)}
    return {**given, **paths}
