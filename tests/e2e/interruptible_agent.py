"""Agents that record when they were interrupted, and some that misbehave.

Anything else goes to the shipped ones.

``!silent`` says "ready" and then nothing until it is interrupted; ``!deaf N`` does not even listen,
for N seconds; ``!tool N`` calls a tool that is silent for N seconds; ``!nothing`` gives up without a word. What happened is noted in files of the
workspace, one per session.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

from hermes_trio.agent.emitter import Emitter
from hermes_trio.agent.interface import Agent, AgentContext, AsyncAgent, TurnRequest
from hermes_trio.agents import demo, synthetic
from hermes_trio.core.events import Result, Verdict


def runs_file(workspace: Path, session: str) -> Path:
    """One line for each run of a session."""
    return workspace / f"{session}.runs"


def interrupt_file(workspace: Path, session: str) -> Path:
    """When a session was interrupted, by the clock that all processes of a machine share."""
    return workspace / f"{session}.interrupted"


class InterruptibleAgent:
    """Waits to be interrupted, and notes when it was."""

    def __init__(self, context: AgentContext) -> None:
        self._workspace, self._session = context.workspace, context.turn.session_id
        self._interrupted = threading.Event()

    def interrupt(self, reason: str) -> None:
        """Note the time before anything else."""
        now = time.monotonic()
        file = interrupt_file(self._workspace, self._session)
        draft = file.with_suffix(".draft")
        draft.write_text(f"{now} {reason}")
        draft.rename(file)
        self._interrupted.set()

    def run(self, turn: TurnRequest, emitter: Emitter) -> Result:
        """Follow the command in the message."""
        with runs_file(self._workspace, self._session).open("a") as runs:
            runs.write("run\n")
        name, _, rest = turn.text.partition(" ")
        if name == "!nothing":
            return Result(verdict=Verdict.INCOMPLETE, error="no words left")
        emitter.text("ready")
        if name == "!tool":
            with emitter.tool("silent"):
                self._interrupted.wait(float(rest))
            emitter.text("awake")
            return Result()
        if name == "!deaf":
            time.sleep(float(rest))
        else:
            self._interrupted.wait(60)
        return Result(verdict=Verdict.INTERRUPTED)


def factory(context: AgentContext) -> Agent | AsyncAgent:
    """The agent that the message asks for."""
    text = context.turn.text
    if text.startswith("!"):
        return InterruptibleAgent(context)
    return synthetic.factory(context) if text.startswith("tokens=") else demo.factory(context)
