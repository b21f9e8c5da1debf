"""The tool calls of a turn: which are shown, under which id, and how each ends.

Agents are careless with ids. Some give none, some report each start twice (once with an id, once
without), some reuse an id in the next round. ``ToolCalls`` reduces all of that to one rule: every
visible call has its own id, is started once and ended once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from attrs import define, field

from hermes_trio.core.changes import ApprovalRequested
from hermes_trio.core.events import ToolAnnounced, ToolStarted
from hermes_trio.core.messages import CallItem
from hermes_trio.core.shorten import HeadTailBuffer
from hermes_trio.core.state import CallState, CallTransition, next_call_state


@define(eq=False)
class Call:
    """One visible call while the turn is open."""

    item: int
    call_id: str
    name: str
    args: Mapping[str, Any]
    at: float
    reports_end: bool  # the agent will report its completion
    state: CallState = CallState.NEW
    output: HeadTailBuffer = field(factory=HeadTailBuffer)
    result: str = ""
    is_error: bool = False
    duration: float = 0.0
    after: int = 0
    rank: int = 0
    agent_id: str = ""  # how the agent refers to it, "" for none
    approval_id: str = ""  # the latest approval request about it
    is_deferred: bool = False  # the next turn continues it

    def start(self) -> None:
        """Mark the call as running."""
        self.state = next_call_state(self.state, CallTransition.START)

    def finish(self, result: str, is_error: bool, at: float) -> None:
        """Record that the call completed."""
        self.state = next_call_state(self.state, CallTransition.FINISH)
        self.result, self.is_error = result, is_error
        self.duration = max(0.0, at - self.at)

    def abandon(self, at: float) -> None:
        """Record that the run ended before the call did. Its output so far becomes its result."""
        self.state = next_call_state(self.state, CallTransition.ABANDON)
        self.result, self.is_error = self.output.text, True
        self.duration = max(0.0, at - self.at)

    def as_item(self) -> CallItem:
        """Return the call as a value. A running call shows its output so far as its result."""
        return CallItem(
            self.call_id,
            self.name,
            self.args,
            self.state,
            self.output.text if self.state is CallState.RUNNING else self.result,
            self.is_error,
            self.duration,
            self.after,
            self.rank,
            self.approval_id,
            self.is_deferred,
        )


class ToolCalls:
    """Every visible call of one turn."""

    def __init__(self) -> None:
        self._all: list[Call] = []
        self._shown_ids: set[str] = set()
        self._uses: defaultdict[str, int] = defaultdict(int)
        self._by_agent_id: dict[str, Call] = {}
        # Starts reported so far by only one of the two callbacks (with and without id), by tool
        # name.
        self._without_id: defaultdict[str, list[Call]] = defaultdict(list)
        self._with_id: defaultdict[str, int] = defaultdict(int)

    def start(self, event: ToolStarted, item: int) -> Call | None:
        """Open a call. Return None if its start was reported before."""
        if self.running(event.call_id) is not None:
            return None
        if self._without_id[event.name]:
            # The call is visible already. From now on this id refers to it, and its end will be
            # reported.
            call = self._without_id[event.name].pop(0)
            call.reports_end, call.agent_id = True, event.call_id
            self._by_agent_id[event.call_id] = call
            return None
        self._with_id[event.name] += 1
        call_id = self._unique_id(event.call_id)
        call = Call(item, call_id, event.name, event.args, event.at, reports_end=True)
        self._open(call).agent_id = event.call_id
        self._by_agent_id[event.call_id] = call
        return call

    def announce(self, event: ToolAnnounced, item: int) -> Call | None:
        """Open a call that has no id. Return None if its start was reported with one."""
        if self._with_id[event.name]:
            self._with_id[event.name] -= 1
            return None
        call_id = self._unique_id(event.call_id or "call")
        call = self._open(Call(item, call_id, event.name, event.args, event.at, reports_end=False))
        self._without_id[event.name].append(call)
        return call

    def open_for(self, request: ApprovalRequested, item: int, at: float) -> Call:
        """Open a call that stands for an approval request which belongs to none."""
        args = {"command": request.command, "description": request.description}
        call_id = self._unique_id(request.approval_id)
        return self._open(Call(item, call_id, "approval", args, at, reports_end=True))

    def client_call_id(self, wanted: str) -> str:
        """Return the id under which to show a call of a client's tool.

        The agent's, unless it is taken.
        """
        return self._unique_id(wanted or "call")

    def running(self, agent_id: str) -> Call | None:
        """Return the running call that the agent knows by an id, None for unknown and ended calls."""
        call = self._by_agent_id.get(agent_id)
        return call if call is not None and call.state is CallState.RUNNING else None

    def still_running(self) -> Iterator[Call]:
        """Iterate over the running calls, in the order of their starts."""
        return (call for call in self._all if call.state is CallState.RUNNING)

    def _open(self, call: Call) -> Call:
        call.start()
        self._all.append(call)
        return call

    def _unique_id(self, wanted: str) -> str:
        self._uses[wanted] += 1
        shown = wanted if self._uses[wanted] == 1 else f"{wanted}-{self._uses[wanted]}"
        if shown in self._shown_ids:
            return self._unique_id(wanted)
        self._shown_ids.add(shown)
        return shown
