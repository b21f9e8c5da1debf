"""A recorder for the output and the approval requests of tool calls."""

from __future__ import annotations

from pathlib import Path

import trio
from attrs import Factory, define, frozen

from hermes_trio.tools.base import ToolUse


@frozen
class AskedApproval:
    """An approval request of a tool."""

    command: str
    description: str
    patterns: tuple[str, ...]
    allow_permanent: bool = True


@define
class UseRecorder:
    """Records the output of calls, and answers their approval requests."""

    workspace: Path
    agrees: bool = True
    heard: str = ""
    asked: list[AskedApproval] = Factory(list)
    happened: trio.Event = Factory(trio.Event)

    def use(self, session_id: str = "s", principal: str = "p") -> ToolUse:
        """Return a call that reports to this recorder."""
        return ToolUse(
            "call_1", self.workspace, session_id, principal, output=self._hear, ask=self._answer
        )

    async def _hear(self, text: str) -> None:
        self.heard += text
        if "\n" in text:
            self.happened.set()

    async def _answer(
        self, command: str, description: str, patterns: tuple[str, ...], allow_permanent: bool
    ) -> bool:
        self.asked.append(AskedApproval(command, description, patterns, allow_permanent))
        return self.agrees
