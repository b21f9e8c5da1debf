"""The one pure record of a run.

A turn takes the events of an agent in the order they were said, filters them once, and reports changes. Streams,
stored records and batch replies are all made from those changes, so they cannot disagree. What is filtered:

* tools whose name begins with an underscore, and everything that belongs to them;
* ends and output of calls that never started, starts and ends told twice;
* empty pieces of text, and everything said after the end.

A turn ends exactly once: by the agent's own word (``Finished``, ``AgentFailed``) or by ``cancel``. Ending closes every
question and every call that is still open, so nothing is left waiting or running on anybody's screen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar

from attrs import define, field

from hermes_trio.core.approvals import OpenApprovals
from hermes_trio.core.changes import (
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
from hermes_trio.core.state import TurnState, TurnTransition, next_turn_state
from hermes_trio.core.tool_calls import Call, ToolCalls
from hermes_trio.core.tool_display import is_internal


@define(eq=False)
class _TextItem:
    """A growing piece of text or reasoning."""

    kind: type[MessageItem | ReasoningItem]
    parts: list[str] = field(factory=list)

    def as_item(self) -> Item:
        return self.kind("".join(self.parts))


@define(eq=False)
class _ClientCall:
    """A call that the client runs."""

    item: ClientCallItem

    def as_item(self) -> Item:
        return self.item


class NotEnded(Exception):
    """The outcome was asked of a turn that is still open."""


class Turn:
    """Events in, changes out."""

    def __init__(self) -> None:
        self._state = TurnState.OPEN
        self._parts: list[_TextItem | Call | _ClientCall] = []
        self._calls = ToolCalls()
        self._approvals = OpenApprovals()
        self._results = 0
        self._outcome: Outcome | None = None

    @property
    def is_open(self) -> bool:
        """Whether the turn still takes events."""
        return self._state is TurnState.OPEN

    @property
    def outcome(self) -> Outcome:
        """How the turn ended.

        Raises:
            NotEnded: it did not yet.
        """
        if self._outcome is None:
            raise NotEnded
        return self._outcome

    @property
    def items(self) -> tuple[Item, ...]:
        """Everything so far, as values."""
        return tuple([part.as_item() for part in self._parts])

    @property
    def text(self) -> str:
        """All visible text so far."""
        return "".join(item.text for item in self.items if isinstance(item, MessageItem))

    def take(self, event: Event) -> tuple[Change, ...]:
        """Feed one event; returns what it changed, which may be nothing."""
        if self._state is not TurnState.OPEN:
            return ()
        return tuple(self._HANDLERS[type(event)](self, event))

    def cancel(self, reason: Reason, at: float = 0.0) -> tuple[Change, ...]:
        """End the turn from outside. Does nothing if it has ended already."""
        if not self.is_open:
            return ()
        return self._end(Outcome.from_cancellation(reason), at)

    # What nearly every turn has is taken without a generator, which would take longer than the rest.

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
            yield from self._take_notice(ToolAnnounced(event.name, event.args, event.at))
            return
        yield from self._show(self._calls.start(event, len(self._parts)))

    def _take_notice(self, event: ToolAnnounced) -> Iterator[Change]:
        if not is_internal(event.name):
            yield from self._show(self._calls.notice(event, len(self._parts)))

    def _take_output(self, event: ToolOutput) -> Iterator[Change]:
        call = self._calls.running(event.call_id)
        if call is not None and event.text:
            call.printed.add(event.text)
            yield ToolOutputAdded(call.item, call.call_id, event.text)

    def _take_completion(self, event: ToolCompleted) -> Iterator[Change]:
        call = self._calls.running(event.call_id)
        if call is not None:
            call.finish(event.result, event.is_error, event.at)
            yield self._over(call)

    def _take_client_call(self, event: ClientCall) -> Iterator[Change]:
        call_id = self._calls.id_for_client(event.call_id)
        self._parts.append(_ClientCall(ClientCallItem(call_id, event.name, event.arguments)))
        yield ClientToolCalled(len(self._parts) - 1, call_id, event.name, event.arguments)

    def _take_wish(self, event: ApprovalRequest) -> Iterator[Change]:
        call = self._calls.running(event.call_id)
        yield from self._approvals.ask(event, "" if call is None else call.call_id)

    def _take_answer(self, event: ApprovalAnswered) -> Iterator[Change]:
        yield from self._approvals.answer(event)

    def _take_finish(self, event: Finished) -> tuple[Change, ...]:
        rest = "" if event.result.verdict is Verdict.FAILED else self._unsent(event.result)
        said = self._take_text(Text(rest)) if rest else ()
        return (
            *said,
            *self._end(Outcome.from_result(event.result, is_empty=not self._has_answer()), event.at),
        )

    def _take_crash(self, event: AgentFailed) -> tuple[Change, ...]:
        return self._end(Outcome.from_failure(event), event.at)

    _HANDLERS: ClassVar[Mapping[type[Event], Callable[[Turn, Any], Iterable[Change]]]] = {
        Text: _take_text,
        Reasoning: _take_reasoning,
        ToolStarted: _take_start,
        ToolAnnounced: _take_notice,
        ToolOutput: _take_output,
        ToolCompleted: _take_completion,
        ClientCall: _take_client_call,
        ApprovalRequest: _take_wish,
        ApprovalAnswered: _take_answer,
        Finished: _take_finish,
        AgentFailed: _take_crash,
    }

    def _write(self, kind: type[MessageItem | ReasoningItem], text: str) -> int:
        """Add text to the last item if it is of the same kind, else begin a new one; returns its position."""
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

    def _over(self, call: Call) -> CallEnded:
        call.after, call.rank = len(self._parts), self._results
        self._results += 1
        return CallEnded(
            call.item, call.call_id, call.name, call.state, call.result, call.is_error, call.duration
        )

    def _end(self, outcome: Outcome, at: float) -> tuple[Change, ...]:
        self._state = next_turn_state(self._state, TurnTransition.END)
        self._outcome = outcome
        closed: list[Change] = [*self._approvals.close(at)]
        for call in self._calls.still_running():
            if outcome.status is Status.COMPLETED and not call.has_end:
                call.finish(call.printed.text, is_error=False, at=at)
            else:
                call.abandon(at)
            closed.append(self._over(call))
        return (*closed, Ended(outcome, at))

    def _has_answer(self) -> bool:
        return self._last_part() is not None

    def _unsent(self, result: Result) -> str:
        """The part of the final answer that was never streamed."""
        if not (final := result.text.strip()):
            return ""
        streamed = self._last_message().strip()
        if streamed.endswith(final):
            return ""
        if not streamed:
            return result.text
        if final.startswith(streamed):
            return final[len(streamed) :]
        return f"\n\n{result.text}"  # another text than the one that was streamed: both are kept

    def _last_message(self) -> str:
        """The text since the last tool call."""
        last = self._last_part()
        return "".join(last.parts) if type(last) is _TextItem else ""

    def _last_part(self) -> _TextItem | Call | _ClientCall | None:
        """The last that is more than reasoning."""
        for part in reversed(self._parts):
            if not (type(part) is _TextItem and part.kind is ReasoningItem):
                return part
        return None
