"""What the turns of one profile share: the configuration, the home and its database of sessions."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

import structlog
from attrs import frozen

from hermes_trio.agent.interface import TurnRequest
from hermes_trio.agents.hermes import private
from hermes_trio.agents.hermes.history import continued, to_history, without_private
from hermes_trio.agents.hermes.options import HermesConfig
from hermes_trio.core.errors import ConfigurationError

log = structlog.get_logger(__name__)

NO_KEY = "no-key"  # Hermes wants one, even for a server that does not
DERIVED = "api-"  # session ids of clients that gave none
# What the first turn would import, and take seconds for.
WARM = (
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
class House:
    """Open until the server ends. Every method is for threads: files are read and written."""

    config: HermesConfig
    home: str  # "" for the usual one
    sessions: Any  # a SessionDB, or None

    def scope(self) -> AbstractContextManager[object]:
        """The home of this profile, for the thread that enters it."""
        return private.home_scope(self.home)

    def make_agent(self, turn: TurnRequest | None, callbacks: Mapping[str, Callable[..., None]]) -> Any:
        """Make an ``AIAgent``, with the configuration as it is now. ``None`` makes one that does no turn."""
        return private.agent_class()(
            **self._settings(),
            **self._who(turn),
            **callbacks,
            quiet_mode=True,
            verbose_logging=False,
            platform=private.PLATFORM,
        )

    def history(self, turn: TurnRequest) -> list[dict[str, Any]]:
        """What was said before: what the server knows, and with ``adopt_sessions`` what Hermes knows too."""
        ours = to_history(turn.history)
        if not self._adopts(turn):
            return ours
        try:
            stored = self.sessions.get_messages_as_conversation(turn.session_id)
        except Exception as error:  # noqa: BLE001 - somebody else's database; our own account is enough
            log.warning("a session of Hermes cannot be read", session=turn.session_id, error=str(error))
            return ours
        return continued(without_private(stored), ours)

    def close(self) -> None:
        """Close the database."""
        if self.sessions is not None:
            with suppress(Exception):
                self.sessions.close()

    def _adopts(self, turn: TurnRequest) -> bool:
        """Not where the server made the id from the first message: another conversation may begin with the same."""
        wanted = self.config.options.adopt_sessions and self.sessions is not None
        return wanted and not turn.session_id.startswith(DERIVED)

    def _settings(self) -> dict[str, Any]:
        config, options = self.config, self.config.options
        runtime = self._runtime()
        fallback = runtime.pop("model", "")
        return runtime | {
            "model": config.model or fallback or private.model(),
            "enabled_toolsets": sorted(config.toolsets) or private.toolsets(),
            "max_iterations": config.max_iterations or private.max_iterations(),
            "fallback_model": private.fallback_model(),
            "reasoning_config": private.reasoning(options.reasoning_effort),
            "skip_memory": options.skip_memory,
            "skip_context_files": options.skip_context_files,
        }

    def _runtime(self) -> dict[str, Any]:
        config, options = self.config, self.config.options
        if config.base_url:
            return {
                "base_url": config.base_url,
                "api_key": config.api_key or NO_KEY,
                "provider": options.provider or "custom",
                "api_mode": options.api_mode or "chat_completions",
            }
        # A key alone may be that of OPENAI_API_KEY, which many people have set: it says nothing about this provider.
        told = {"api_key": config.api_key if options.provider else "", "api_mode": options.api_mode}
        return private.runtime(options.provider) | {name: value for name, value in told.items() if value}

    def _who(self, turn: TurnRequest | None) -> dict[str, Any]:
        if turn is None:
            return {}
        layers = filter(None, (self.config.system_prompt, turn.instructions))
        return {
            "session_id": turn.session_id,
            "session_db": self.sessions,
            "gateway_session_key": turn.session_key or None,
            "ephemeral_system_prompt": "\n\n".join(layers) or None,
        }


def open_house(config: HermesConfig) -> House:
    """Import the package, open the database, and make one agent so that the first turn need not wait.

    Takes seconds.

    Raises:
        ConfigurationError: the package, the home or the agent does not work.
    """
    private.agent_class()
    private.set_up_logging()
    home = _home(config)
    with _entered(home):
        house = House(config, home, private.open_session_db(private.current_home()))
        try:
            if config.options.warm_up:
                _warm_up(house)
        except BaseException:
            house.close()
            raise
    return house


def _entered(home: str) -> AbstractContextManager[object]:
    try:
        return private.home_scope(home)
    except private.Moved as moved:
        raise ConfigurationError(f"agent: hermes cannot use another home: {moved}") from moved


def _home(config: HermesConfig) -> str:
    options = config.options
    if options.hermes_profile:
        return str(private.home_of(options.hermes_profile))
    if options.home and not Path(options.home).is_dir():
        raise ConfigurationError(f"home: {options.home} is no folder")
    return options.home


def _warm_up(house: House) -> None:
    for name in WARM:
        with suppress(ImportError):
            importlib.import_module(name)
    private.probe_environment()
    try:
        agent = house.make_agent(None, {})
    except Exception as error:
        said = " ".join(str(error).split()) or type(error).__name__
        raise ConfigurationError(f"agent: hermes cannot be made: {said}") from error
    release(agent)


def release(agent: Any) -> None:
    """Close the connections of an agent. Not ``close()``: that would end its session."""
    try:
        agent.release_clients()
    except Exception as error:  # noqa: BLE001 - the turn's own end counts
        log.warning("connections of hermes-agent could not be closed", error=str(error))
