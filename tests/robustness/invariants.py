"""The invariants of every run, shared by the whole suite, in process and over sockets.

* A run moves from in progress to one terminal state and stays there.
* The events of a stream are numbered without a gap, unless its process died; at most one of them announces the end, and nothing follows it.
* The text of a stream is the text of the record, or its beginning if the stream was cut.
* Each call that is shown running ends once; when the end is announced, none is left running. The record agrees.
* Each approval request has one answer, at the latest when the end is announced.
* The end in a stream is the end in the record.

Violations are returned as texts, so that a long session can count them; ``check`` raises them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any

from attrs import define, field, frozen

from hermes_trio.core.dialects.responses_items import item_id
from hermes_trio.core.messages import CallItem, ClientCallItem, MessageItem
from hermes_trio.core.records import EndedRun
from tests.robustness.streams import ALL, CALL_TYPES, ReceivedStream, shown_call_id
from tests.robustness.violations import Violation, counted

IN_PROGRESS = "in_progress"


class InvariantViolated(AssertionError):
    """An invariant does not hold."""


@frozen
class StoredRun:
    """The part of a run's record that the invariants concern."""

    run_id: str
    status: str
    text: str
    calls: Mapping[str, str]  # the state of each call, by id
    handed: frozenset[str] = (
        frozenset()
    )  # calls that the client runs; not every dialect shows them as calls
    by_item_id: Mapping[str, str] = field(
        factory=dict
    )  # call ids, by the ids of ``mcp_call`` items


def stored_run_of_record(record: EndedRun) -> StoredRun:
    """Return the stored run of a record in the store."""
    text = "".join(item.text for item in record.items if isinstance(item, MessageItem))
    calls = {item.call_id: str(item.state) for item in record.items if isinstance(item, CallItem)}
    handed = frozenset(item.call_id for item in record.items if isinstance(item, ClientCallItem))
    run_id = record.header.run_id
    by_item_id = {
        item_id("mcp", run_id, number): item.call_id
        for number, item in enumerate(record.items)
        if isinstance(item, CallItem)
    }
    return StoredRun(run_id, str(record.outcome.status), text, calls, handed, by_item_id)


def stored_run_of_response(response: Mapping[str, Any]) -> StoredRun:
    """Return the stored run of a reply to ``GET /v1/responses/{id}``."""
    output = response["output"]
    messages = [item for item in output if item["type"] == "message"]
    text = "".join(part["text"] for item in messages for part in item["content"])
    calls = {shown_call_id(item): item["status"] for item in output if item["type"] in CALL_TYPES}
    return StoredRun(response["id"], response["status"], text, calls)


@define
class StatusHistory:
    """The observed states of every run."""

    _states: dict[str, str] = field(factory=dict)
    faults: list[str] = field(factory=list)

    def note(self, run_id: str, status: str) -> None:
        """A run is seen in a state."""
        before = self._states.setdefault(run_id, status)
        if before == status:
            return
        if before != IN_PROGRESS:
            self.faults.append(f"{run_id} was {before} and is {status}")
        self._states[run_id] = status

    def in_progress(self) -> list[str]:
        """The runs that were not seen to end."""
        return [run_id for run_id, status in self._states.items() if status == IN_PROGRESS]


@counted(Violation.WRONG)
def faults_of_stream(
    received: ReceivedStream, first: int | None = None, gaps: int = 0
) -> Iterator[str]:
    """Yield the violations in a stream.

    ``first`` is the expected first number, if that is known; ``gaps`` is how often its process died.
    """
    numbers = received.numbers
    begin = first if first is not None else (numbers[0] if numbers else 0)
    steps = [after - before for before, after in pairwise([begin - 1, *numbers])]
    if any(step < 1 for step in steps) or sum(step > 1 for step in steps) != gaps:
        yield f"numbers with a gap: {numbers}"
    if len(received.ends) > 1:
        yield f"the end is told {len(received.ends)} times"
    if received.is_closed and not received.ends:
        yield "closed as whole, and no end was told"
    after = [
        each
        for n, each in enumerate(received.facts)
        if any(facts.end for facts in received.facts[:n])
    ]
    if any(each.text or each.started or each.ended for each in after):
        yield "something is said after the end"
    yield from _faults_of_calls(received)
    asked = Counter(facts.asked for facts in received.facts if facts.asked)
    answered = Counter(facts.answered for facts in received.facts if facts.answered)
    if answered - asked or (received.ends and asked - answered):
        yield f"questions {dict(asked)}, answers {dict(answered)}"


def _faults_of_calls(received: ReceivedStream) -> Iterator[str]:
    starts, ends = Counter[str](), Counter[str]()
    for facts in received.facts:
        if facts.started:
            starts[facts.started] += 1
        if facts.ended:
            ends[facts.ended] += 1
            if ends[facts.ended] > starts[facts.ended]:
                yield f"call {facts.ended} ends more often than it began"
    if again := [call for call, count in starts.items() if count > 1]:
        yield f"calls began twice: {again}"
    if received.ends and (open_calls := starts - ends):
        yield f"calls are left running: {list(open_calls)}"


@counted(Violation.STUCK)
def faults_of_record(stored: StoredRun) -> Iterator[str]:
    """Yield the violations in a terminal record."""
    if stored.status not in ALL:
        yield f"the record is {stored.status}"
    if running := [
        call for call, state in stored.calls.items() if state in {"running", IN_PROGRESS}
    ]:
        yield f"the record has running calls: {running}"


@counted(Violation.LOST)
def faults_against_record(received: ReceivedStream, stored: StoredRun) -> Iterator[str]:
    """Yield the contradictions between a stream, or its beginning, and the record."""
    if received.run_id != stored.run_id:
        yield f"the stream of {received.run_id}, the record of {stored.run_id}"
    is_whole = bool(received.ends)
    if is_whole and received.text != stored.text:
        yield f"the stream said {received.text!r}, the record {stored.text!r}"
    if not stored.text.startswith(received.text):
        yield f"the stream said {received.text!r}, which is no beginning of {stored.text!r}"
    started = (facts.started for facts in received.facts if facts.started)
    shown = {stored.by_item_id.get(call, call) for call in started}
    if unknown := shown - set(stored.calls) - stored.handed:
        yield f"calls that the record does not know: {sorted(unknown)}"
    if is_whole and (unseen := set(stored.calls) - shown):
        yield f"calls that were never shown: {sorted(unseen)}"
    if any(stored.status not in end for end in received.ends):
        yield f"the stream ended as one of {sorted(*received.ends)}, the record is {stored.status}"


def check(faults: Iterable[str], about: object = "") -> None:
    """Raise what is wrong, if anything is.

    Raises:
        Broken: something is.
    """
    if found := list(faults):
        raise InvariantViolated(f"{about}: " + "; ".join(found))
