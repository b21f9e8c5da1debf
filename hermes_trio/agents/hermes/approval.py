"""From a question of Hermes to the port, and back.

Hermes asks in the thread of the tool and wants that call to return at once, so that an interrupt can end the waiting. A
helper thread waits for the answer. It ends with the answer, or with the run.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

import structlog

from hermes_trio.agent.contract import TurnRequest
from hermes_trio.agent.inbox import RunEnded
from hermes_trio.agent.port import Port
from hermes_trio.agents.hermes import private
from hermes_trio.core.plain import text_of

log = structlog.get_logger(__name__)

DENY, ONCE, SESSION, ALWAYS = "deny", "once", "session", "always"
MOST_SESSIONS = 1_000


class Decision(Protocol):
    """An answer."""

    @property
    def choice(self) -> str:
        """``once``, ``session``, ``always`` or ``deny``."""
        ...


class Asker(Protocol):
    """The part of a port that asks."""

    def ask(
        self,
        command: str,
        description: str = "",
        patterns: Sequence[str] = (),
        call_id: str = "",
        allow_permanent: bool = True,
    ) -> Decision:
        """Wait for an answer.

        Raises:
            RunEnded: there will be none.
        """
        ...


class SessionApprovals:
    """What was allowed for a whole session. Hermes knows only turns by the name that we give it."""

    def __init__(self, most: int = MOST_SESSIONS) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._patterns: OrderedDict[tuple[str, str], set[str]] = OrderedDict()

    def allow(self, turn: TurnRequest, patterns: Sequence[str]) -> None:
        """Remember an answer; the sessions that were asked longest ago are forgotten."""
        with self._lock:
            known = self._patterns.setdefault(_owner(turn), set())
            known.update(patterns)
            self._patterns.move_to_end(_owner(turn))
            while len(self._patterns) > self._most:
                self._patterns.popitem(last=False)

    def allowed(self, turn: TurnRequest) -> frozenset[str]:
        """The patterns that need no question in this turn."""
        with self._lock:
            return frozenset(self._patterns.get(_owner(turn), ()))


def _owner(turn: TurnRequest) -> tuple[str, str]:
    return turn.principal, turn.session_id


class Desk:
    """Where the questions of one turn go."""

    def __init__(self, turn: TurnRequest, say: Port, sessions: SessionApprovals) -> None:
        self._turn, self._asker, self._sessions = turn, cast("Asker", say), sessions

    def notify(self, question: Mapping[str, Any]) -> None:
        """Take a question. For the tool's thread; returns at once."""
        threading.Thread(
            target=self._settle, args=(question, private.asking_call()), name="hermes-approval", daemon=True
        ).start()

    def _settle(self, question: Mapping[str, Any], call_id: str) -> None:
        choice = self._choice(question, call_id)
        if choice == SESSION:
            self._sessions.allow(self._turn, _patterns(question))
        private.answer(self._turn.run_id, question, choice)

    def _choice(self, question: Mapping[str, Any], call_id: str) -> str:
        try:
            decision = self._asker.ask(
                text_of(question.get("command", "")),
                description=text_of(question.get("description", "")),
                patterns=_patterns(question),
                call_id=call_id,
                allow_permanent=question.get("allow_permanent") is not False,
            )
        except RunEnded:
            return DENY
        except Exception as error:  # noqa: BLE001 - a question that cannot be asked is answered: no
            log.warning("a question of hermes-agent could not be asked", error=str(error))
            return DENY
        return _permitted(decision.choice, question)


def _permitted(choice: str, question: Mapping[str, Any]) -> str:
    """The answer, no wider than the question allows."""
    if choice not in (ONCE, SESSION, ALWAYS):
        return DENY
    if question.get("smart_denied"):
        return ONCE
    return SESSION if choice == ALWAYS and question.get("allow_permanent") is False else choice


def _patterns(question: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(map(text_of, question.get("pattern_keys") or ()))
