"""One turn of Hermes: its callbacks translated to the emitter, and its approval requests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

import structlog

from hermes_trio.agent.emitter import Emitter
from hermes_trio.agent.event_queue import RunEnded
from hermes_trio.agent.interface import TurnRequest
from hermes_trio.agents.hermes import compat
from hermes_trio.agents.hermes.conversion import to_content, to_result, usage_of
from hermes_trio.agents.hermes.runtime import HermesRuntime, release_clients
from hermes_trio.core.events import Choice, Result, Verdict
from hermes_trio.core.shorten import safe_str

log = structlog.get_logger(__name__)

BLANK_LINE = "\n\n"
# How Hermes begins the result of a call that it gave up: of a batch that took too long, or was
# interrupted.
GAVE_UP = ("Error executing tool ", "[Tool execution cancelled")


class CallbackAdapter:
    """The callbacks of ``AIAgent`` for one turn, translated to the emitter. Thread-safe.

    Two kinds of threads call: the one that runs the turn, and one for each stream of the model. The
    start of a tool call is reported twice, first without the call's id (``tool.started``), then
    with it. Both are passed on: the queue shows one call, under the model's id, and if only the
    first report comes, the call is shown all the same.

    The end of a call is reported twice, too, first without its id but with whether it failed
    (``tool.completed``). If only the second report comes, its result has to tell that.

    Hermes puts a blank line between the texts before and after a tool, at the head of the second
    text. Here it moves to the end of the first: clients that concatenate the texts see no
    difference, and the last text is nothing but the answer.
    """

    def __init__(self, emitter: Emitter) -> None:
        self._emitter = emitter
        self._has_text = False  # since the last tools
        self._is_after_tools = False  # no text since the last tools
        # By thread and tool, between the two reports of an end.
        self._failed: dict[tuple[int, str], bool] = {}

    def callbacks(self) -> dict[str, Callable[..., None]]:
        """Return the callbacks by the argument names of ``AIAgent``."""
        return {
            "stream_delta_callback": self.text,
            "reasoning_callback": self.reasoning,
            "tool_progress_callback": self.progress,
            "tool_start_callback": self.tool_started,
            "tool_complete_callback": self.tool_completed,
        }

    def text(self, text: str | None = None) -> None:
        """Handle a piece of the answer, or None between the answer and a tool."""
        if text is None:
            had_text, self._has_text, self._is_after_tools = self._has_text, False, True
            if had_text:
                self._emitter.text(BLANK_LINE)
            return
        if self._is_after_tools:
            text = text.lstrip("\n")
        if text:
            self._has_text, self._is_after_tools = True, False
            self._emitter.text(text)

    def reasoning(self, text: str | None = None) -> None:
        """Handle a piece of reasoning."""
        self._emitter.reasoning(text)

    def progress(
        self, event: str, name: str = "", _preview: object = None, args: Any = None, **more: Any
    ) -> None:
        """Handle the older callback, which has no ids.

        Most of its events are for other displays.
        """
        if event == "tool.started":
            self._emitter.tool_announced(name, args)
        elif event == "tool.completed":
            self._failed[threading.get_ident(), name] = bool(more.get("is_error"))

    def tool_started(self, call_id: str, name: str, args: Mapping[str, Any] | None = None) -> None:
        """Handle the start of a call."""
        self._emitter.tool_started(call_id, name, args)

    def tool_completed(
        self, call_id: str, name: str, _args: object = None, result: object = ""
    ) -> None:
        """Handle the end of a call."""
        failed = self._failed.pop((threading.get_ident(), name), None)
        if failed is None:
            failed = isinstance(result, str) and result.startswith(GAVE_UP)
        self._emitter.tool_completed(call_id, result, is_error=failed)


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
            return to_result(raw, usage_of(agent), _next_session(agent, turn))


def _next_session(agent: Any, turn: TurnRequest) -> str:
    """Return the session that Hermes moved to in order to compress the history, "" if it did not."""
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
