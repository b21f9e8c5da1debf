"""What the turns of one profile share.

The configuration, the Hermes home and its session database.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

import structlog
from attrs import field, frozen

from hermes_trio.agent.interface import TurnRequest
from hermes_trio.agent.inventory import Inventory
from hermes_trio.agents.hermes import compat
from hermes_trio.agents.hermes.conversion import merge_history, to_history, without_private_keys
from hermes_trio.core.errors import ConfigurationError
from hermes_trio.core.sessions import DERIVED_PREFIX

log = structlog.get_logger(__name__)

NO_KEY = "no-key"  # Hermes requires one, even for a server that does not
# Modules that the first turn would import, which takes seconds.
WARM_UP_MODULES = (
    "agent.conversation_loop",
    "agent.chat_completion_helpers",
    "agent.system_prompt",
    "agent.tool_executor",
    "agent.turn_finalizer",
    "openai.resources",
    "tools.approval",
    "tools.terminal_tool",
    "tools.tool_result_storage",
)


@frozen
class HermesOptions:
    """The entries of ``AgentConfig.options`` for this agent. "" leaves the choice to the configuration of Hermes."""

    home: str = ""  # the Hermes home; "" for HERMES_HOME or its default
    hermes_profile: str = ""  # a profile of Hermes, which has a home of its own
    provider: str = ""  # as in Hermes: openrouter, anthropic, custom, …
    api_mode: str = ""  # chat_completions, anthropic_messages, codex_responses, …
    reasoning_effort: str = ""  # none, minimal, low, medium, high, xhigh
    cwd: str = ""  # where tools work; "" for what Hermes is configured to
    skip_memory: bool = False
    skip_context_files: bool = False
    adopt_sessions: bool = False  # continue sessions from the database of Hermes
    warm_up: bool = True  # create one agent at startup


@frozen
class HermesConfig:
    """The settings of one profile."""

    model: str = ""
    base_url: str = ""
    api_key: str = field(default="", repr=False)
    system_prompt: str = ""
    toolsets: tuple[str, ...] = ()
    max_iterations: int = 0  # 0: as Hermes is configured
    options: HermesOptions = field(factory=HermesOptions)


@frozen
class HermesRuntime:
    """The Hermes home of a profile, open until the server ends.

    All methods do file I/O and block: call them from threads.
    """

    config: HermesConfig
    home: str  # "" for the default one
    sessions: Any  # a SessionDB, or None

    def scope(self) -> AbstractContextManager[object]:
        """Activate the home of this profile for the calling thread."""
        return compat.home_scope(self.home)

    def make_agent(
        self, turn: TurnRequest | None, callbacks: Mapping[str, Callable[..., None]]
    ) -> Any:
        """Create an ``AIAgent`` with the current configuration.

        Without a turn, it is only good for warming up.
        """
        identity: dict[str, Any] = {}
        if turn is not None:
            layers = filter(None, (self.config.system_prompt, turn.instructions))
            identity = {
                "session_id": turn.session_id,
                "session_db": self.sessions if turn.allows_tools else None,
                "gateway_session_key": turn.session_key or None,
                "ephemeral_system_prompt": "\n\n".join(layers) or None,
            }
        settings = self._settings()
        if turn is not None and not turn.allows_tools:
            settings |= {"enabled_toolsets": [], "skip_memory": True}
        elif turn is not None:
            settings["enabled_toolsets"] = [
                name for name in settings["enabled_toolsets"] if turn.permits_tool(name)
            ]
        return compat.agent_class()(
            **settings,
            **identity,
            **callbacks,
            quiet_mode=True,
            verbose_logging=False,
            platform=compat.PLATFORM,
        )

    def history(self, turn: TurnRequest) -> list[dict[str, Any]]:
        """Return the history that the server knows.

        With ``adopt_sessions``, also what Hermes knows.
        """
        ours = to_history(turn.history)
        # A derived session id is not adopted: another conversation may start with the same message.
        is_derived = turn.session_id.startswith(DERIVED_PREFIX)
        if not self.config.options.adopt_sessions or self.sessions is None or is_derived:
            return ours
        try:
            stored = self.sessions.get_messages_as_conversation(turn.session_id)
        except Exception as error:  # noqa: BLE001 - the server's own history is enough
            log.warning(
                "cannot read a session of Hermes", session=turn.session_id, error=str(error)
            )
            return ours
        return merge_history(without_private_keys(stored), ours)

    def inventory(self) -> Inventory:
        """Return the toolsets and skills of this profile."""
        with self.scope():
            return compat.inventory(self.config.toolsets)

    def close(self) -> None:
        """Close the session database."""
        if self.sessions is not None:
            with suppress(Exception):
                self.sessions.close()

    def _settings(self) -> dict[str, Any]:
        config, options = self.config, self.config.options
        endpoint = self._endpoint()
        fallback = endpoint.pop("model", "")
        return endpoint | {
            "model": config.model or fallback or compat.model(),
            "enabled_toolsets": sorted(config.toolsets) or compat.toolsets(),
            "max_iterations": config.max_iterations or compat.max_iterations(),
            "fallback_model": compat.fallback_model(),
            "reasoning_config": compat.reasoning(options.reasoning_effort),
            "skip_memory": options.skip_memory,
            "skip_context_files": options.skip_context_files,
        }

    def _endpoint(self) -> dict[str, Any]:
        config, options = self.config, self.config.options
        if config.base_url:
            return {
                "base_url": config.base_url,
                "api_key": config.api_key or NO_KEY,
                "provider": options.provider or "custom",
                "api_mode": options.api_mode or "chat_completions",
            }
        # A key alone may come from OPENAI_API_KEY, which many users have set; it may not belong to
        # this provider.
        given = {
            "api_key": config.api_key if options.provider else "",
            "api_mode": options.api_mode,
        }
        return compat.endpoint(options.provider) | {
            name: value for name, value in given.items() if value
        }


def open_runtime(config: HermesConfig) -> HermesRuntime:
    """Import the package, open the database, and create one agent so that the first turn need not wait.

    Blocks for seconds.

    Raises:
        ConfigurationError: the package, the home or the agent does not work.
    """
    compat.agent_class()
    compat.set_up_logging()
    home = _find_home(config.options)
    try:
        scope = compat.home_scope(home)
    except compat.MissingName as missing:
        raise ConfigurationError(f"agent: hermes cannot use another home: {missing}") from missing
    with scope:
        runtime = HermesRuntime(config, home, compat.open_session_db(compat.current_home()))
        try:
            if config.options.warm_up:
                _warm_up(runtime)
        except BaseException:
            runtime.close()
            raise
    return runtime


def _find_home(options: HermesOptions) -> str:
    if options.hermes_profile:
        return str(compat.home_of(options.hermes_profile))
    if options.home and not Path(options.home).is_dir():
        raise ConfigurationError(f"home: {options.home} is not a directory")
    return options.home


def _warm_up(runtime: HermesRuntime) -> None:
    for name in WARM_UP_MODULES:
        with suppress(ImportError):
            importlib.import_module(name)
    compat.probe_environment()
    try:
        agent = runtime.make_agent(None, {})
    except Exception as error:
        message = " ".join(str(error).split()) or type(error).__name__
        raise ConfigurationError(f"agent: hermes cannot be created: {message}") from error
    release_clients(agent)


def release_clients(agent: Any) -> None:
    """Close the connections of an agent. ``AIAgent.close()`` would also end its session."""
    try:
        agent.release_clients()
    except Exception as error:  # noqa: BLE001 - must not replace the result of the turn
        log.warning("cannot close the connections of hermes-agent", error=str(error))
