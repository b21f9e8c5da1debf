"""The book of a turn's tool calls: which are shown, under which id, and what becomes of them.

Agents are careless with ids. Some give none, some tell each start twice (once with an id, once without), some use
an id again in the next round. The book turns all of that into one rule: every call that is shown has an id of its
own, is started once and ended once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from attrs import define, field

from hermes_trio.core.events import ToolAnnounced, ToolStarted
from hermes_trio.core.messages import CallItem
from hermes_trio.core.shorten import HeadTailBuffer
from hermes_trio.core.state import CallState, CallTransition, next_call_state


@define(eq=False)
class Call:
    """One shown call while the turn is open."""

    item: int
    call_id: str
    name: str
    args: Mapping[str, Any]
    at: float
    has_end: bool  # its producer will tell when it ends
    state: CallState = CallState.NEW
    printed: HeadTailBuffer = field(factory=HeadTailBuffer)
    result: str = ""
    is_error: bool = False
    duration: float = 0.0
    after: int = 0
    rank: int = 0

    def start(self) -> None:
        """The call is running from now on."""
        self.state = next_call_state(self.state, CallTransition.START)

    def finish(self, result: str, is_error: bool, at: float) -> None:
        """The call ended by itself."""
        self.state = next_call_state(self.state, CallTransition.FINISH)
        self.result, self.is_error = result, is_error
        self.duration = max(0.0, at - self.at)

    def abandon(self, at: float) -> None:
        """The run ended before the call did: what it had printed is its result."""
        self.state = next_call_state(self.state, CallTransition.ABANDON)
        self.result, self.is_error = self.printed.text, True
        self.duration = max(0.0, at - self.at)

    def as_item(self) -> CallItem:
        """The call as a value."""
        result = self.printed.text if self.state is CallState.RUNNING else self.result
        return CallItem(
            self.call_id,
            self.name,
            self.args,
            self.state,
            result,
            self.is_error,
            self.duration,
            self.after,
            self.rank,
        )


class ToolCalls:
    """Every call of one turn."""

    def __init__(self) -> None:
        self._all: list[Call] = []
        self._shown_ids: set[str] = set()
        self._uses: defaultdict[str, int] = defaultdict(int)
        self._by_agent_id: dict[str, Call] = {}
        # Starts that only one of the two kinds of callback has told so far, by tool name.
        self._noticed: defaultdict[str, list[Call]] = defaultdict(list)
        self._announced: defaultdict[str, int] = defaultdict(int)

    def start(self, event: ToolStarted, item: int) -> Call | None:
        """Open a call, or nothing if this start was told before."""
        if self.running(event.call_id) is not None:
            return None
        if self._noticed[event.name]:
            self._claim(event)
            return None
        self._announced[event.name] += 1
        call = Call(item, self._fresh_id(event.call_id), event.name, event.args, event.at, has_end=True)
        self._by_agent_id[event.call_id] = call
        return self._open(call)

    def notice(self, event: ToolAnnounced, item: int) -> Call | None:
        """Open a call that has no id, or nothing if its start was told with one."""
        if self._announced[event.name]:
            self._announced[event.name] -= 1
            return None
        call = Call(item, self._fresh_id("call"), event.name, event.args, event.at, has_end=False)
        self._noticed[event.name].append(call)
        return self._open(call)

    def id_for_client(self, wanted: str) -> str:
        """The id under which a call of the client's tool is shown: the agent's, unless another call has it."""
        return self._fresh_id(wanted or "call")

    def running(self, agent_id: str) -> Call | None:
        """The running call that the agent means by an id; nothing for orphans and for calls that ended."""
        call = self._by_agent_id.get(agent_id)
        return call if call is not None and call.state is CallState.RUNNING else None

    def still_running(self) -> Iterator[Call]:
        """What is open, in the order of the starts."""
        return (call for call in self._all if call.state is CallState.RUNNING)

    def _open(self, call: Call) -> Call:
        call.start()
        self._all.append(call)
        return call

    def _claim(self, event: ToolStarted) -> None:
        """The call was shown already, without an id: from now on this id means it, and its end will be told."""
        call = self._noticed[event.name].pop(0)
        call.has_end = True
        self._by_agent_id[event.call_id] = call

    def _fresh_id(self, wanted: str) -> str:
        self._uses[wanted] += 1
        shown = wanted if self._uses[wanted] == 1 else f"{wanted}-{self._uses[wanted]}"
        if shown in self._shown_ids:
            return self._fresh_id(wanted)
        self._shown_ids.add(shown)
        return shown
