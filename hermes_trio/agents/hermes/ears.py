"""The callbacks of one turn: what ``AIAgent`` calls, and what we say for it.

Two kinds of threads call: the one that runs the turn, and one for each stream of the model. A start is told twice,
first without the call's id (``tool.started``), then with it. The first kind waits here for the second, so that a call is
shown under the id that the model gave it; one that stays alone is shown when its end, or anything else, is told.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from attrs import frozen

from hermes_trio.agent.port import Port


@frozen(eq=False)
class _Notice:
    name: str
    args: Any


class Ears:
    """Made for one turn."""

    def __init__(self, say: Port) -> None:
        self._say = say
        self._lock = threading.Lock()
        self._notices: deque[_Notice] = deque()
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
        self._say.text(text)

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
                self._say.tool_noticed(notice.name, notice.args)

    def _drop_notice(self, name: str) -> None:
        with self._lock:
            found = next((notice for notice in self._notices if notice.name == name), None)
            if found is not None:
                self._notices.remove(found)
