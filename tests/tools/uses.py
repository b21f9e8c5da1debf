"""Calls of tools, and what they showed and asked."""

from __future__ import annotations

from pathlib import Path

import trio
from attrs import Factory, define, frozen

from hermes_trio.tools.base import ToolUse


@frozen
class Question:
    """What a tool asked."""

    command: str
    description: str
    patterns: tuple[str, ...]


@define
class Watcher:
    """Hears what calls show, and answers what they ask."""

    workspace: Path
    agrees: bool = True
    heard: str = ""
    asked: list[Question] = Factory(list)
    happened: trio.Event = Factory(trio.Event)

    def use(self, session_id: str = "s", principal: str = "p") -> ToolUse:
        """A call that this one watches."""
        return ToolUse("call_1", self.workspace, session_id, principal, output=self._hear, ask=self._answer)

    async def _hear(self, text: str) -> None:
        self.heard += text
        if "\n" in text:
            self.happened.set()

    async def _answer(self, command: str, description: str, patterns: tuple[str, ...]) -> bool:
        self.asked.append(Question(command, description, patterns))
        return self.agrees
