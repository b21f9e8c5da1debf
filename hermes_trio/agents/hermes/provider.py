"""What the server opens when its settings name this agent."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from hermes_trio.agent.interface import AgentConfig, AgentContext, AgentFactory
from hermes_trio.agents.hermes import private
from hermes_trio.agents.hermes.agent import HermesAgent
from hermes_trio.agents.hermes.house import open_house
from hermes_trio.agents.hermes.logs import separate_logs
from hermes_trio.agents.hermes.options import read_config
from hermes_trio.agents.hermes.surroundings import guarded_prints, hidden_settings

CLOSING_SECONDS = 5.0


class HermesProvider:
    """Opens the agent for one profile."""

    @asynccontextmanager
    async def open(self, config: AgentConfig, workspace: Path) -> AsyncIterator[AgentFactory]:  # noqa: ARG002
        """Import and warm up Hermes in a thread, and hand out its turns.

        Hermes has its own settings for where tools work, so the workspace is not used.

        Raises:
            ConfigurationError: the package is missing, or does not work as it is configured.
        """
        checked = read_config(config)
        private.check_installed()
        with guarded_prints(), hidden_settings(), separate_logs() as settle_logs:
            # Who stops the server while it starts need not wait: the process ends, and the thread with it.
            house = await trio.to_thread.run_sync(open_house, checked, abandon_on_cancel=True)
            settle_logs()

            def factory(_context: AgentContext) -> HermesAgent:
                return HermesAgent(house)

            try:
                yield factory
            finally:
                with trio.CancelScope(shield=True, deadline=trio.current_time() + CLOSING_SECONDS):
                    await trio.to_thread.run_sync(house.close, abandon_on_cancel=True)


provider = HermesProvider()
