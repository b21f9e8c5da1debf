"""From a question of Hermes to the port, and back.

Hermes asks in the thread of the tool, and would then wait there itself, for as long as its own settings say. Here that
thread waits in the port instead. So the server decides how long, remembers answers that hold for longer, and ends the
waiting when the run ends; to Hermes every answer is for this once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import structlog

from hermes_trio.agent.emitter import Emitter
from hermes_trio.agent.event_queue import RunEnded
from hermes_trio.agents.hermes import private
from hermes_trio.core.events import Choice
from hermes_trio.core.shorten import safe_str

log = structlog.get_logger(__name__)


def asking(run_id: str, emitter: Emitter) -> private.Notify:
    """What Hermes calls when a tool of this turn wants an approval."""

    def notify(question: Mapping[str, Any]) -> None:
        private.answer(run_id, question, str(_ask(question, emitter)))

    return notify


def _ask(question: Mapping[str, Any], emitter: Emitter) -> Choice:
    try:
        decision = emitter.ask(
            safe_str(question.get("command", "")),
            description=safe_str(question.get("description", "")),
            patterns=_patterns(question),
            call_id=private.asking_call(),
            allow_permanent=question.get("allow_permanent") is not False,
        )
    except RunEnded:
        return Choice.DENY
    except Exception as error:  # noqa: BLE001 - a question that cannot be asked is answered: no
        log.warning("a question of hermes-agent could not be asked", error=str(error))
        return Choice.DENY
    return Choice.ONCE if decision.approved else Choice.DENY


def _patterns(question: Mapping[str, Any]) -> tuple[str, ...]:
    """What an answer is remembered by. A command that Hermes itself advises against is remembered word by word."""
    if question.get("smart_denied"):
        return ()
    return tuple(map(safe_str, question.get("pattern_keys") or ()))
