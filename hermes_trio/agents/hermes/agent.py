"""One turn of Hermes, and how its approval requests reach the user."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import structlog

from hermes_trio.agent.emitter import Emitter
from hermes_trio.agent.event_queue import RunEnded
from hermes_trio.agent.interface import TurnRequest
from hermes_trio.agents.hermes import compat
from hermes_trio.agents.hermes.callbacks import CallbackAdapter
from hermes_trio.agents.hermes.conversion import to_content, to_result, usage_of
from hermes_trio.agents.hermes.runtime import HermesRuntime, release_clients
from hermes_trio.core.events import Choice, Result, Verdict
from hermes_trio.core.shorten import safe_str

log = structlog.get_logger(__name__)


class HermesAgent:
    """Runs one turn. Cheap to create: ``AIAgent``, which is not, is created in :meth:`run`."""

    def __init__(self, runtime: HermesRuntime) -> None:
        self._runtime = runtime
        self._lock = threading.Lock()
        self._agent: Any = None
        self._interrupt_reason: str | None = None

    def interrupt(self, reason: str) -> None:
        """End the turn. Thread-safe; takes effect later if ``AIAgent`` does not exist yet."""
        with self._lock:
            self._interrupt_reason = reason
            agent = self._agent
        if agent is not None:
            agent.interrupt(reason)

    def run(self, turn: TurnRequest, emitter: Emitter) -> Result:
        """Run the turn. Blocks. Leaves nothing behind but what Hermes itself stores."""
        callbacks = CallbackAdapter(emitter)
        identity = compat.Identity(
            turn.session_id, turn.session_key or turn.session_id, self._runtime.config.options.cwd
        )

        def on_question(question: Mapping[str, Any]) -> None:
            compat.answer(turn.run_id, question, str(_ask_user(question, emitter)))

        with ExitStack() as stack:
            stack.enter_context(self._runtime.scope())
            stack.enter_context(compat.session_variables(identity))
            stack.enter_context(compat.approvals(turn.run_id, on_question))
            agent = self._runtime.make_agent(turn, callbacks.callbacks())
            stack.callback(release_clients, agent)
            # From now on, interrupts reach the agent.
            with self._lock:
                self._agent = agent
                interrupt_reason = self._interrupt_reason
            if interrupt_reason is not None:
                return Result(verdict=Verdict.INTERRUPTED, error=interrupt_reason)
            raw: dict[str, Any] = agent.run_conversation(
                user_message=to_content(turn.message),
                conversation_history=self._runtime.history(turn),
                task_id=turn.session_id or turn.run_id,
            )
            callbacks.flush()
            return to_result(raw, usage_of(agent), _next_session(agent, turn))


def _next_session(agent: Any, turn: TurnRequest) -> str:
    """Return the session that continues after this turn if it is another one.

    Hermes starts a new one to compress.
    """
    session_id = getattr(agent, "session_id", "")
    return session_id if isinstance(session_id, str) and session_id != turn.session_id else ""


def _ask_user(question: Mapping[str, Any], emitter: Emitter) -> Choice:
    """Ask for an approval, blocking the tool's thread.

    Hermes would otherwise wait in that thread itself, for as long as its own settings say. Here the
    server decides how long to wait, remembers permanent answers, and ends the wait with the run;
    Hermes is told every answer as "once".
    """
    # A command that Hermes advises against is remembered word for word, not by its pattern.
    patterns = () if question.get("smart_denied") else question.get("pattern_keys") or ()
    try:
        decision = emitter.ask(
            safe_str(question.get("command", "")),
            description=safe_str(question.get("description", "")),
            patterns=tuple(map(safe_str, patterns)),
            call_id=compat.asking_call(),
            allow_permanent=question.get("allow_permanent") is not False,
        )
    except RunEnded:
        return Choice.DENY
    except Exception as error:  # noqa: BLE001 - a question that cannot be asked is denied
        log.warning("cannot forward an approval request of hermes-agent", error=str(error))
        return Choice.DENY
    return Choice.ONCE if decision.approved else Choice.DENY
