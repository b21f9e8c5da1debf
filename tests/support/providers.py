"""Providers that settings can name.

They log what happens to them, in order, to a file of the data folder.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio
from attrs import define, frozen

from hermes_trio.agent.emitter import AsyncEmitter
from hermes_trio.agent.interface import AgentConfig, AgentContext, AgentFactory, TurnRequest
from hermes_trio.core.errors import ConfigurationError

ACTIVITY_FILE = "notes"


def read_activity(workspace: Path) -> list[str]:
    """Return what happened so far in a workspace."""
    path = workspace / ACTIVITY_FILE
    return path.read_text().splitlines() if path.exists() else []


@define
class ActivityLog:
    """The log of a provider and its agents."""

    workspace: Path

    def note(self, line: str) -> None:
        with (self.workspace / ACTIVITY_FILE).open("a") as file:
            file.write(f"{line}\n")


@frozen
class LoggingAgent:
    """Emits its name; if the message says so, it waits until it is cancelled."""

    activity: ActivityLog
    config: AgentConfig

    async def run(self, turn: TurnRequest, emitter: AsyncEmitter) -> None:
        self.activity.note(f"began for {turn.principal}")
        try:
            await emitter.text(
                f"{self.config.profile or 'nobody'}: {self.config.model}: {turn.profile}"
            )
            if turn.text == "wait":
                await trio.sleep_forever()
        finally:
            self.activity.note("ended")


class Provider:
    """A provider whose agents share a log."""

    @asynccontextmanager
    async def open(self, config: AgentConfig, workspace: Path) -> AsyncIterator[AgentFactory]:
        if config.model == "none":
            raise ConfigurationError("model: there is no model 'none'")
        activity = ActivityLog(workspace)
        activity.note("opened")

        def factory(context: AgentContext) -> LoggingAgent:
            assert context.config is config
            # the principal's own, if it is not the first one
            assert context.workspace in (workspace, *workspace.parent.glob("workspaces/*"))
            return LoggingAgent(activity, config)

        try:
            yield factory
        finally:
            activity.note("closed")


class RefusingProvider:
    """A provider that always refuses to open."""

    def open(self, config: AgentConfig, workspace: Path) -> None:
        raise ConfigurationError("base_url: this agent needs one")


provider = Provider()
refusing = RefusingProvider()
