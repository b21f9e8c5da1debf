"""The synthetic agent with one more word: ``wait=SECONDS``, a silence before the first token.

A model takes time before its first token. Agents that emit at once would hide how long the first
token takes while other agents are at work.
"""

from __future__ import annotations

import trio

from hermes_trio.agent.emitter import AsyncEmitter, Emitter
from hermes_trio.agent.interface import AgentContext, TurnRequest, nonblocking
from hermes_trio.agents.synthetic import AsyncSyntheticAgent, Load, SyntheticAgent, parse_load
from hermes_trio.core.events import Result

WAIT = "wait="


class WaitingAgent(SyntheticAgent):
    """The agent that runs in a thread."""

    def __init__(self, load: Load, wait: float) -> None:
        super().__init__(load)
        self._wait = wait

    def run(self, turn: TurnRequest, emitter: Emitter) -> Result:
        """Wait, then do the turn."""
        if self._wait:
            emitter.sleep(self._wait)
        return super().run(turn, emitter)


class AsyncWaitingAgent(AsyncSyntheticAgent):
    """The agent that runs as a Trio task."""

    def __init__(self, load: Load, wait: float) -> None:
        super().__init__(load)
        self._wait = wait

    async def run(self, turn: TurnRequest, emitter: AsyncEmitter) -> Result:
        """Wait, then do the turn."""
        if self._wait:
            await trio.sleep(self._wait)
        return await super().run(turn, emitter)


@nonblocking
def factory(context: AgentContext) -> WaitingAgent | AsyncWaitingAgent:
    """Return an agent for the load that the turn describes.

    Raises:
        ValueError: it describes none.
    """
    load, wait = parse(context.turn.text)
    return AsyncWaitingAgent(load, wait) if load.mode == "async" else WaitingAgent(load, wait)


def parse(text: str) -> tuple[Load, float]:
    """Return the load, and how long to wait before it.

    Raises:
        ValueError: the text describes no load.
    """
    words = text.split()
    waits = [float(word.removeprefix(WAIT)) for word in words if word.startswith(WAIT)]
    return parse_load(" ".join(word for word in words if not word.startswith(WAIT))), sum(waits)
