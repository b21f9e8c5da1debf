"""The pure reducer of a run: events in, changes out.

A turn takes the events of an agent in order, filters them once, and reports changes. Streams,
stored records and batch replies all derive from those changes, so they cannot disagree. Filtered
out are:

* tools whose name starts with an underscore, and everything that belongs to them;
* output and ends of calls that never started, and starts and ends reported twice;
* empty text, and every event after the end.

A turn ends exactly once: with the agent (``Finished``, ``AgentFailed``) or by ``cancel``. Ending it
closes every approval request and every call that is still open, so no client is left showing one as
pending.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Any, ClassVar

from attrs import asdict, define, field, frozen

from hermes_trio.core.approvals import OpenApprovals
from hermes_trio.core.changes import (
    ApprovalRequested,
    ApprovalResolved,
    CallEnded,
    CallStarted,
    Change,
    ClientToolCalled,
    Ended,
    ReasoningAdded,
    TextAdded,
    ToolOutputAdded,
)
from hermes_trio.core.events import (
    AgentFailed,
    AnsweredBy,
    ApprovalAnswered,
    ApprovalRequest,
    ClientCall,
    Event,
    Finished,
    Reasoning,
    Result,
    Text,
    ToolAnnounced,
    ToolCompleted,
    ToolOutput,
    ToolStarted,
    Verdict,
)
from hermes_trio.core.messages import ClientCallItem, Item, MessageItem, ReasoningItem
from hermes_trio.core.outcome import Outcome, Reason, Status
from hermes_trio.core.state import CallState, TurnState, TurnTransition, next_turn_state
from hermes_trio.core.tool_calls import Call, ToolCalls
from hermes_trio.core.tool_display import is_internal


@define(eq=False)
class _TextItem:
    """A message or reasoning item that may still grow."""

    kind: type[MessageItem | ReasoningItem]
    parts: list[str] = field(factory=list)

    def as_item(self) -> Item:
        return self.kind("".join(self.parts))


@define(eq=False)
class _ClientCall:
    """A call of a tool that the client runs."""

    item: ClientCallItem

    def as_item(self) -> Item:
        return self.item


@frozen
class Continuation:
    """What a suspended turn leaves to the turn that continues it: the events of what waits."""

    calls: tuple[ToolStarted, ...]
    requests: tuple[ApprovalRequest, ...]


class NotEnded(Exception):
    """The outcome of a turn was requested before it ended."""


class Turn:
    """One turn of an agent. Not thread-safe: one task feeds it."""

    def __init__(self) -> None:
        self.state = TurnState.OPEN  # it accepts events as long as it is open
        self._parts: list[_TextItem | Call | _ClientCall] = []
        self._calls = ToolCalls()
        self._approvals = OpenApprovals()
        self._results = 0  # calls that have ended
        self._outcome: Outcome | None = None

    @property
    def outcome(self) -> Outcome:
        """How the turn ended.

        Raises:
            NotEnded: the turn is still open.
        """
        if self._outcome is None:
            raise NotEnded
        return self._outcome

    @property
    def items(self) -> tuple[Item, ...]:
        """All items so far, as values."""
        return tuple([part.as_item() for part in self._parts])

    @property
    def text(self) -> str:
        """All visible text so far."""
        return "".join(item.text for item in self.items if isinstance(item, MessageItem))

    def take(self, event: Event) -> tuple[Change, ...]:
        """Process one event. Return the changes it caused, possibly none."""
        if self.state is not TurnState.OPEN:
            return ()
        return tuple(self._HANDLERS[type(event)](self, event))

    def cancel(self, reason: Reason, at: float = 0.0) -> tuple[Change, ...]:
        """End the turn from outside. Does nothing if it has ended already."""
        if self.state is not TurnState.OPEN:
            return ()
        return self._end(Outcome.from_cancellation(reason), at)

    @property
    def is_waiting(self) -> bool:
        """Whether every running call waits for an approval, so that the agent cannot continue."""
        return bool(self._approvals.values) and not self._waiting_calls()[1]

    def suspend(self, at: float) -> tuple[tuple[Change, ...], Continuation]:
        """End a turn that waits as completed, and leave what waits to the next one.

        An approval request that belongs to no call gets one that stands for it.
        """
        calls, _ = self._waiting_calls()
        requests = self._approvals.values
        changes: list[Change] = []
        for request in requests:
            if request.approval_id not in calls:
                call = self._calls.open_for(request, len(self._parts), at)
                calls[request.approval_id] = call
                changes += self._show(call)
            call = calls[request.approval_id]
            call.approval_id, call.is_deferred = request.approval_id, True
        continuation = Continuation(
            tuple(
                ToolStarted(call.agent_id, call.name, call.args)
                for call in sorted(calls.values(), key=attrgetter("item"))
                if call.agent_id
            ),
            tuple(_to_event(request, calls[request.approval_id]) for request in requests),
        )
        # Calls whose end is never reported are done; those that wait come after them.
        for call in [each for each in self._calls.still_running() if not each.reports_end]:
            call.finish(call.output.text, is_error=False, at=at)
            changes.append(self._close(call))
        for approval_id, call in sorted(calls.items(), key=lambda pair: pair[1].item):
            call.abandon(at)
            changes.append(self._approvals.defer(approval_id, call.call_id, at))
            changes.append(self._close(call))
        return (*changes, *self._end(Outcome(Status.COMPLETED), at)), continuation

    def _waiting_calls(self) -> tuple[dict[str, Call], list[Call]]:
        """Return the call that waits for each approval request, and the running calls that wait for none.

        A request that names no call is taken to be about the oldest one that does not wait yet. At
        most one request belongs to a call.
        """
        running = {call.call_id: call for call in self._calls.still_running() if call.reports_end}
        calls: dict[str, Call] = {}
        for request in self._approvals.values:
            if request.call_id in running:
                calls[request.approval_id] = running.pop(request.call_id)
        for request in self._approvals.values:
            if not request.call_id and running:
                calls[request.approval_id] = running.pop(next(iter(running)))
        return calls, list(running.values())

    # The handlers of frequent events return tuples: creating a generator would cost more than the
    # rest of the work.

    def _take_text(self, event: Text) -> tuple[Change, ...]:
        text = event.text
        return (TextAdded(self._write(MessageItem, text), text),) if text else ()

    def _take_reasoning(self, event: Reasoning) -> tuple[Change, ...]:
        text = event.text
        return (ReasoningAdded(self._write(ReasoningItem, text), text),) if text else ()

    def _take_start(self, event: ToolStarted) -> Iterator[Change]:
        if is_internal(event.name):
            return
        if not event.call_id:
            yield from self._take_announcement(ToolAnnounced(event.name, event.args, event.at))
            return
        yield from self._show(self._calls.start(event, len(self._parts)))

    def _take_announcement(self, event: ToolAnnounced) -> Iterator[Change]:
        if not is_internal(event.name):
            yield from self._show(self._calls.announce(event, len(self._parts)))

    def _take_output(self, event: ToolOutput) -> Iterator[Change]:
        call = self._calls.running(event.call_id)
        if call is not None and event.text:
            call.output.add(event.text)
            yield ToolOutputAdded(call.item, call.call_id, event.text)

    def _take_completion(self, event: ToolCompleted) -> Iterator[Change]:
        call = self._calls.running(event.call_id)
        if call is not None:
            call.finish(event.result, event.is_error, event.at)
            yield self._close(call)

    def _take_client_call(self, event: ClientCall) -> Iterator[Change]:
        call_id = self._calls.client_call_id(event.call_id)
        self._parts.append(_ClientCall(ClientCallItem(call_id, event.name, event.arguments)))
        yield ClientToolCalled(len(self._parts) - 1, call_id, event.name, event.arguments)

    def _take_request(self, event: ApprovalRequest) -> Iterator[Change]:
        call = self._calls.running(event.call_id)
        for request in self._approvals.request(event, "" if call is None else call.call_id):
            if call is not None:
                call.approval_id = event.approval_id
            yield request

    def _take_answer(self, event: ApprovalAnswered) -> Iterator[Change]:
        yield from self._approvals.resolve(event)

    def _take_finish(self, event: Finished) -> tuple[Change, ...]:
        # The text of a failed turn is its error message, not part of the answer.
        rest = "" if event.result.verdict is Verdict.FAILED else self._unsent(event.result)
        added = self._take_text(Text(rest))
        outcome = Outcome.from_result(event.result, is_empty=self._last_part() is None)
        return (*added, *self._end(outcome, event.at))

    def _take_failure(self, event: AgentFailed) -> tuple[Change, ...]:
        return self._end(Outcome.from_failure(event), event.at)

    _HANDLERS: ClassVar[Mapping[type[Event], Callable[[Turn, Any], Iterable[Change]]]] = {
        Text: _take_text,
        Reasoning: _take_reasoning,
        ToolStarted: _take_start,
        ToolAnnounced: _take_announcement,
        ToolOutput: _take_output,
        ToolCompleted: _take_completion,
        ClientCall: _take_client_call,
        ApprovalRequest: _take_request,
        ApprovalAnswered: _take_answer,
        Finished: _take_finish,
        AgentFailed: _take_failure,
    }

    def _write(self, kind: type[MessageItem | ReasoningItem], text: str) -> int:
        """Append text to the last item if it is of the same kind, else to a new one.

        Return its position.
        """
        last = self._parts[-1] if self._parts else None
        if type(last) is _TextItem and last.kind is kind:
            last.parts.append(text)
        else:
            self._parts.append(_TextItem(kind, [text]))
        return len(self._parts) - 1

    def _show(self, call: Call | None) -> Iterator[Change]:
        if call is not None:
            self._parts.append(call)
            yield CallStarted(call.item, call.call_id, call.name, call.args, call.at)

    def _close(self, call: Call) -> CallEnded:
        call.after, call.rank = len(self._parts), self._results
        self._results += 1
        return CallEnded(
            call.item,
            call.call_id,
            call.name,
            call.state,
            call.result,
            call.is_error,
            call.duration,
        )

    def _end(self, outcome: Outcome, at: float) -> tuple[Change, ...]:
        self.state = next_turn_state(self.state, TurnTransition.END)
        self._outcome = outcome
        closed: list[Change] = [*self._approvals.close(at)]
        for call in self._calls.still_running():
            # A call whose end is never reported is done when its turn is.
            if outcome.status is Status.COMPLETED and not call.reports_end:
                call.finish(call.output.text, is_error=False, at=at)
            else:
                call.abandon(at)
            closed.append(self._close(call))
        return (*closed, Ended(outcome, at))

    def _unsent(self, result: Result) -> str:
        """Return the part of the final answer that was not streamed."""
        if not (final := result.text.strip()):
            return ""
        last = self._last_part()
        streamed = "".join(last.parts).strip() if type(last) is _TextItem else ""
        if streamed.endswith(final):
            return ""
        if not streamed:
            return result.text
        if final.startswith(streamed):
            return final[len(streamed) :]
        return f"\n\n{result.text}"  # differs from the streamed text: keep both

    def _last_part(self) -> _TextItem | Call | _ClientCall | None:
        """Return the last part that is not reasoning."""
        for part in reversed(self._parts):
            if not (type(part) is _TextItem and part.kind is ReasoningItem):
                return part
        return None


def _to_event(request: ApprovalRequested, call: Call) -> ApprovalRequest:
    """Return the event of an approval request, for another turn in which its call has the agent's id."""
    fields = {**asdict(request, recurse=False), "call_id": call.agent_id, "at": 0.0}
    return ApprovalRequest(**fields)


_BY_THE_END = frozenset({AnsweredBy.RUN_ENDED, AnsweredBy.DEFERRED})


class ReplayedTurn:
    """A turn fed with the changes it once reported, so that it reaches the same state."""

    def __init__(self, changes: Iterable[Change] = ()) -> None:
        self.turn = Turn()
        self.at = 0.0  # the latest time in the log
        self._starts: dict[str, float] = {}
        for change in changes:
            self.take(change)

    def take(self, change: Change) -> None:
        """Apply one change.

        What the end of the turn caused is ignored: ending it again repeats those changes.
        """
        if type(change) is TextAdded:  # by far the most frequent change
            self.turn.take(Text(change.text))
            return
        event = self._event(change)
        if event is not None:
            self.at = max(self.at, getattr(event, "at", 0.0))
            self.turn.take(event)

    def _event(self, change: Change) -> Event | None:
        """Return the event that caused a change, None if the end of the turn did."""
        event: Event | None = None
        match change:
            case ReasoningAdded():
                event = Reasoning(change.text)
            case CallStarted():
                self._starts[change.call_id] = change.at
                event = ToolStarted(change.call_id, change.name, change.args, change.at)
            case ToolOutputAdded():
                event = ToolOutput(change.call_id, change.text)
            case CallEnded() if change.state is CallState.COMPLETED:
                at = self._starts[change.call_id] + change.duration
                event = ToolCompleted(change.call_id, change.result, change.is_error, at)
            case ClientToolCalled():
                event = ClientCall(change.call_id, change.name, change.arguments)
            case ApprovalRequested():
                event = ApprovalRequest(**asdict(change, recurse=False))
            case ApprovalResolved() if change.by not in _BY_THE_END:
                event = ApprovalAnswered(change.approval_id, change.choice, change.by, change.at)
            case _:
                pass  # caused by the end of the turn
        return event
