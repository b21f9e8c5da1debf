"""The provider that the server opens for ``agent = "hermes"``, and its options."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import trio

from hermes_trio.agent.interface import DEFAULT_CONFIG, AgentConfig, AgentContext, AgentFactory
from hermes_trio.agent.inventory import with_inventory
from hermes_trio.agents.hermes import compat
from hermes_trio.agents.hermes.agent import HermesAgent
from hermes_trio.agents.hermes.isolation import guard_prints, hide_settings, separate_logs
from hermes_trio.agents.hermes.runtime import HermesConfig, HermesOptions, open_runtime
from hermes_trio.core.errors import ConfigurationError

CLOSE_SECONDS = 5.0


class HermesProvider:
    """Opens Hermes for one profile."""

    def default_model_name(self, config: AgentConfig) -> str:
        """Return the name of the Hermes profile, as Hermes' own server does; "" if there is none.

        Raises:
            ConfigurationError: an option is unknown or has the wrong type.
        """
        options = read_config(config).options
        if options.hermes_profile:
            return compat.profile_of(Path("profiles", options.hermes_profile.strip().lower()))
        return compat.profile_of(Path(options.home) if options.home else compat.default_home())

    @asynccontextmanager
    async def open(self, config: AgentConfig, workspace: Path) -> AsyncIterator[AgentFactory]:  # noqa: ARG002
        """Import and warm up Hermes in a thread, and yield the factory of its turns.

        Hermes has its own settings for where tools work, so the workspace is not used.

        Raises:
            ConfigurationError: the package is missing, or does not work with this configuration.
        """
        checked = read_config(config)
        compat.check_installed()
        with guard_prints(), hide_settings(), separate_logs() as on_started:
            # Stopping the server during startup does not wait: the process ends, and the thread
            # with it.
            runtime = await trio.to_thread.run_sync(open_runtime, checked, abandon_on_cancel=True)
            on_started()

            @with_inventory(runtime.inventory)
            def factory(_context: AgentContext) -> HermesAgent:
                return HermesAgent(runtime)

            try:
                yield factory
            finally:
                with trio.CancelScope(shield=True, deadline=trio.current_time() + CLOSE_SECONDS):
                    await trio.to_thread.run_sync(runtime.close, abandon_on_cancel=True)


def read_config(config: AgentConfig) -> HermesConfig:
    """Read the settings of this agent.

    Raises:
        ConfigurationError: an option is unknown or has the wrong type.
    """
    options = _read_options(config.options)
    if options.home and options.hermes_profile:
        raise ConfigurationError("the hermes agent takes either home or hermes_profile, not both")
    # Hermes has its own limit, so ours counts only if it was set.
    is_default = config.max_iterations == DEFAULT_CONFIG.max_iterations
    return HermesConfig(
        model=config.model,
        base_url=config.base_url,
        api_key=config.api_key,
        system_prompt=config.system_prompt,
        toolsets=config.tools,
        max_iterations=0 if is_default else config.max_iterations,
        options=options,
    )


def _read_options(given: Mapping[str, Any]) -> HermesOptions:
    known = {attribute.name: type(attribute.default) for attribute in attrs.fields(HermesOptions)}
    for name, value in given.items():
        if name not in known:
            raise ConfigurationError(
                f"the hermes agent has no option {name!r}; it has {', '.join(known)}"
            )
        if not isinstance(value, known[name]):
            raise ConfigurationError(
                f"option {name!r} of the hermes agent must be a {known[name].__name__}"
            )
    paths = {
        name: str(Path(given[name]).expanduser()) for name in ("home", "cwd") if given.get(name)
    }
    return HermesOptions(**{**given, **paths})


provider = HermesProvider()
