"""Providers to be named in settings. What happens to them is noted, in order, in a file of the data folder."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio
from attrs import define, frozen

from hermes_trio.agent.emitter import AsyncEmitter
from hermes_trio.agent.interface import AgentConfig, AgentContext, AgentFactory, TurnRequest
from hermes_trio.core.errors import ConfigurationError

NOTES = "notes"


def notes_of(workspace: Path) -> list[str]:
    """All that happened so far in a workspace."""
    path = workspace / NOTES
    return path.read_text().splitlines() if path.exists() else []


@define
class Diary:
    """Where a provider and its agents note what they do."""

    workspace: Path

    def note(self, line: str) -> None:
        with (self.workspace / NOTES).open("a") as file:
            file.write(f"{line}\n")


@frozen
class Worker:
    """Says who it is; asked to wait, it waits until it is called off."""

    diary: Diary
    config: AgentConfig

    async def run(self, turn: TurnRequest, emitter: AsyncEmitter) -> None:
        self.diary.note(f"began for {turn.principal}")
        try:
            await emitter.text(f"{self.config.profile or 'nobody'}: {self.config.model}: {turn.profile}")
            if turn.text == "wait":
                await trio.sleep_forever()
        finally:
            self.diary.note("ended")


class Provider:
    """What its agents share is a diary."""

    @asynccontextmanager
    async def open(self, config: AgentConfig, workspace: Path) -> AsyncIterator[AgentFactory]:
        if config.model == "none":
            raise ConfigurationError("model: there is no model 'none'")
        diary = Diary(workspace)
        diary.note("opened")

        def factory(context: AgentContext) -> Worker:
            assert context.config is config
            assert context.workspace == workspace
            return Worker(diary, config)

        try:
            yield factory
        finally:
            diary.note("closed")


class Refusing:
    """Never works."""

    def open(self, config: AgentConfig, workspace: Path) -> None:
        raise ConfigurationError("base_url: this agent needs one")


provider = Provider()
refusing = Refusing()
