"""An agent whose start or end waits, so that a signal can come in the midst of it.

Files in the home folder say which.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from hermes_trio.agent.interface import AgentConfig, AgentFactory
from hermes_trio.agents.synthetic import factory as synthetic

HOLD_START, STARTING = "hold-start", "starting"
HOLD_END, ENDING = "hold-end", "ending"
LONGEST = 20.0  # seconds; only a test that fails makes it wait so long
LOOK_SECONDS = 0.01


class LingeringProvider:
    """Notes where it is, and stays there for as long as a file is there."""

    @asynccontextmanager
    async def open(self, config: AgentConfig, workspace: Path) -> AsyncIterator[AgentFactory]:
        """As a provider does."""
        home = Path.home()
        await _stay(home / STARTING, home / HOLD_START)
        yield synthetic
        with trio.move_on_after(LONGEST, shield=True):
            await _stay(home / ENDING, home / HOLD_END)


async def _stay(note: Path, hold: Path) -> None:
    await trio.Path(note).touch()
    while await trio.Path(hold).exists():  # noqa: ASYNC110 - another process makes and takes it
        await trio.sleep(LOOK_SECONDS)


provider = LingeringProvider()
