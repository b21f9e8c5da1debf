"""Translate the callbacks of ``AIAgent`` to the emitter, for one turn.

Two kinds of threads call: the one that runs the turn, and one for each stream of the model. The
start of a tool call is reported twice, first without the call's id (``tool.started``), then with
it. The first report is held back until the second, so that a call appears under the model's id; if
the second never comes, the call is announced without an id as soon as anything else is reported.

Hermes puts a blank line between the texts before and after a tool, at the head of the second text.
Here it moves to the end of the first: clients that concatenate the texts see no difference, and the
last text is nothing but the answer.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from attrs import frozen

from hermes_trio.agent.emitter import Emitter

BLANK_LINE = "\n\n"


@frozen(eq=False)
class _PendingStart:
    """A tool call that was reported without its id."""

    name: str
    args: Any


class CallbackAdapter:
    """The callbacks for one turn. Thread-safe."""

    def __init__(self, emitter: Emitter) -> None:
        self._emitter = emitter
        self._lock = threading.Lock()
        self._pending: deque[_PendingStart] = deque()
        self._has_text = False  # since the last tools
        self._is_after_tools = False  # no text since the last tools
        self._failed: dict[
            tuple[int, str], bool
        ] = {}  # by thread and tool, between the two reports of an end

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
        self.flush()
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
        self.flush()
        self._emitter.reasoning(text)

    def progress(
        self, event: str, name: str = "", _preview: object = None, args: Any = None, **more: Any
    ) -> None:
        """Handle the older callback, which has no ids.

        Most of its events are for other displays.
        """
        if event == "tool.started":
            with self._lock:
                self._pending.append(_PendingStart(name, args))
        elif event == "tool.completed":
            self.flush()
            self._failed[threading.get_ident(), name] = bool(more.get("is_error"))

    def tool_started(self, call_id: str, name: str, args: Mapping[str, Any] | None = None) -> None:
        """Handle the start of a call."""
        with self._lock:
            found = next((pending for pending in self._pending if pending.name == name), None)
            if found is not None:
                self._pending.remove(found)
        self._emitter.tool_started(call_id, name, args)

    def tool_completed(
        self, call_id: str, name: str, _args: object = None, result: object = ""
    ) -> None:
        """Handle the end of a call.

        Whether it failed was reported just before; if not, Hermes gave up the call.
        """
        self.flush()
        failed = self._failed.pop((threading.get_ident(), name), True)
        self._emitter.tool_completed(call_id, result, is_error=failed)

    def flush(self) -> None:
        """Announce the calls that were only reported without an id."""
        while self._pending:
            with self._lock:
                pending = self._pending.popleft() if self._pending else None
            if pending is not None:
                self._emitter.tool_announced(pending.name, pending.args)
