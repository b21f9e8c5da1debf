"""One turn of Hermes."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import Any

from hermes_trio.agent.emitter import Emitter
from hermes_trio.agent.interface import TurnRequest
from hermes_trio.agents.hermes import private
from hermes_trio.agents.hermes.approval import asking
from hermes_trio.agents.hermes.ears import Ears
from hermes_trio.agents.hermes.history import to_content
from hermes_trio.agents.hermes.house import House, release
from hermes_trio.agents.hermes.outcome import to_result, usage_of
from hermes_trio.core.events import Result, Verdict


class HermesAgent:
    """Made at once; the agent of Hermes itself is made in ``run``, because that takes its time."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._lock = threading.Lock()
        self._agent: Any = None
        self._called_off: str | None = None

    def interrupt(self, reason: str) -> None:
        """End the turn. For any thread, at any time; it is kept if the agent does not exist yet."""
        with self._lock:
            self._called_off = reason
            agent = self._agent
        if agent is not None:
            agent.interrupt(reason)

    def run(self, turn: TurnRequest, emitter: Emitter) -> Result:
        """Do the turn. Whatever happens, nothing of it is left behind but what Hermes keeps itself."""
        ears = Ears(emitter)
        identity = private.Identity(
            turn.session_id, turn.session_key or turn.session_id, self._house.config.options.cwd
        )
        with ExitStack() as around:
            around.enter_context(self._house.scope())
            around.enter_context(private.session_variables(identity))
            around.enter_context(private.approvals(turn.run_id, asking(turn.run_id, emitter)))
            agent = self._house.make_agent(turn, ears.callbacks())
            around.callback(release, agent)
            if not self._begin(agent):
                return Result(verdict=Verdict.INTERRUPTED, error=self._called_off or "")
            raw = self._converse(agent, turn)
            ears.flush()
            return to_result(raw, usage_of(agent), _moved_to(agent, turn))

    def _begin(self, agent: Any) -> bool:
        """From now on an interrupt reaches the agent. False if one came before."""
        with self._lock:
            self._agent = agent
            return self._called_off is None

    def _converse(self, agent: Any, turn: TurnRequest) -> dict[str, Any]:
        raw: dict[str, Any] = agent.run_conversation(
            user_message=to_content(turn.message),
            conversation_history=self._house.history(turn),
            task_id=turn.session_id or turn.run_id,
        )
        return raw


def _moved_to(agent: Any, turn: TurnRequest) -> str:
    """The session that goes on after this turn, if it is another: Hermes begins a new one when it compresses."""
    session_id = getattr(agent, "session_id", "")
    return session_id if isinstance(session_id, str) and session_id != turn.session_id else ""
