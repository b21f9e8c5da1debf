"""Feed scripts to a turn, and check the invariants of its changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from hermes_trio.core.changes import (
    ApprovalRequested,
    ApprovalResolved,
    CallEnded,
    CallStarted,
    Change,
    Ended,
    TextAdded,
    ToolOutputAdded,
)
from hermes_trio.core.events import Event
from hermes_trio.core.messages import CallItem, MessageItem
from hermes_trio.core.outcome import Reason
from hermes_trio.core.state import CallState
from hermes_trio.core.turn import Turn


def feed(turn: Turn, events: Iterable[Event]) -> list[Change]:
    """Return all changes of some events."""
    return [change for event in events for change in turn.take(event)]


def played(
    events: Iterable[Event], reason: Reason = Reason.CLIENT_DISCONNECTED
) -> tuple[Turn, list[Change]]:
    """Return a turn that took a script and was then cut."""
    turn = Turn()
    changes = feed(turn, events)
    return turn, changes + list(turn.cancel(reason, 5.0))


def check_invariants(turn: Turn, changes: list[Change]) -> None:
    """Check the invariants of an ended turn."""
    check_calls(turn, changes)
    check_questions(changes)
    check_text(turn, changes)
    ends = [n for n, change in enumerate(changes) if isinstance(change, Ended)]
    assert ends == [len(changes) - 1], "exactly one end, and nothing after it"
    assert isinstance(changes[-1], Ended)
    assert changes[-1].outcome == turn.outcome


def check_questions(changes: list[Change]) -> None:
    """Check that each approval request is answered once, and that none is left open."""
    waiting: set[str] = set()
    for change in changes:
        match change:
            case ApprovalRequested():
                assert change.approval_id not in waiting
                waiting.add(change.approval_id)
            case ApprovalResolved():
                waiting.remove(change.approval_id)
            case _:
                pass
    assert not waiting


def check_calls(turn: Turn, changes: list[Change]) -> None:
    """Check that each call is shown running once, then ended once.

    Nothing is left running; nothing internal is shown.
    """
    running: set[str] = set()
    starts: Counter[str] = Counter()
    for change in changes:
        match change:
            case CallStarted():
                starts[change.call_id] += 1
                running.add(change.call_id)
                assert not change.name.startswith("_")
            case ToolOutputAdded():
                assert change.call_id in running
            case CallEnded():
                running.remove(change.call_id)
                assert change.state in {CallState.COMPLETED, CallState.CANCELLED}
                assert change.duration >= 0
            case _:
                pass
    assert not running
    assert all(count == 1 for count in starts.values())
    items = [item for item in turn.items if isinstance(item, CallItem)]
    assert [item.call_id for item in items] == list(starts)


def check_text(turn: Turn, changes: list[Change]) -> None:
    """Check that text is neither lost nor doubled: the deltas, the turn and its items agree."""
    deltas = "".join(change.text for change in changes if isinstance(change, TextAdded))
    items = "".join(item.text for item in turn.items if isinstance(item, MessageItem))
    assert deltas == turn.text == items
