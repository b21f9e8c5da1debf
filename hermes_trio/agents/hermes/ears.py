"""The callbacks of one turn: what ``AIAgent`` calls, and what we say for it.

Two kinds of threads call: the one that runs the turn, and one for each stream of the model. A start is told twice,
first without the call's id (``tool.started``), then with it. The first kind waits here for the second, so that a call is
shown under the id that the model gave it; one that stays alone is shown when its end, or anything else, is told.

Between the texts before and after a tool Hermes puts a blank line, at the head of the second. Here it goes to the end of
the first: clients that read one text after the other see it all the same, and the last text is the answer and nothing else.
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
class _Notice:
    name: str
    args: Any


class Ears:
    """Made for one turn."""

    def __init__(self, emitter: Emitter) -> None:
        self._say = emitter
        self._lock = threading.Lock()
        self._notices: deque[_Notice] = deque()
        self._spoke = False  # something was said since the last tools
        self._is_after_tools = False  # nothing was said since
        self._failed: dict[tuple[int, str], bool] = {}  # by thread and tool, between the two words for an end

    def callbacks(self) -> dict[str, Callable[..., None]]:
        """By the names of the arguments that ``AIAgent`` takes."""
        return {
            "stream_delta_callback": self.text,
            "reasoning_callback": self.reasoning,
            "tool_progress_callback": self.progress,
            "tool_start_callback": self.tool_started,
            "tool_complete_callback": self.tool_completed,
        }

    def text(self, text: str | None = None) -> None:
        """A piece of the answer, or None between the answer and a tool."""
        self.flush()
        if text is None:
            self._end_paragraph()
        else:
            self._speak(text.lstrip("\n") if self._is_after_tools else text)

    def reasoning(self, text: str | None = None) -> None:
        """A piece of thinking."""
        self.flush()
        self._say.reasoning(text)

    def progress(
        self, event: str, name: str = "", _preview: object = None, args: Any = None, **more: Any
    ) -> None:
        """The older callback, which has no ids. Most of its events are for other displays."""
        if event == "tool.started":
            with self._lock:
                self._notices.append(_Notice(name, args))
        elif event == "tool.completed":
            self.flush()
            self._failed[threading.get_ident(), name] = bool(more.get("is_error"))

    def tool_started(self, call_id: str, name: str, args: Mapping[str, Any] | None = None) -> None:
        """A call begins."""
        self._drop_notice(name)
        self._say.tool_started(call_id, name, args)

    def tool_completed(self, call_id: str, name: str, _args: object = None, result: object = "") -> None:
        """A call ends. Whether it failed was said just before; if not, Hermes gave the call up."""
        self.flush()
        failed = self._failed.pop((threading.get_ident(), name), True)
        self._say.tool_completed(call_id, result, is_error=failed)

    def flush(self) -> None:
        """Show the calls that were told without an id only."""
        while self._notices:
            with self._lock:
                notice = self._notices.popleft() if self._notices else None
            if notice is not None:
                self._say.tool_announced(notice.name, notice.args)

    def _speak(self, text: str) -> None:
        if text:
            self._spoke, self._is_after_tools = True, False
            self._say.text(text)

    def _end_paragraph(self) -> None:
        spoke, self._spoke, self._is_after_tools = self._spoke, False, True
        if spoke:
            self._say.text(BLANK_LINE)

    def _drop_notice(self, name: str) -> None:
        with self._lock:
            found = next((notice for notice in self._notices if notice.name == name), None)
            if found is not None:
                self._notices.remove(found)
