"""What must hold of every run, whatever was done to it; shared by all of this suite, in process and over sockets.

* Its states only move from in progress to one terminal state, which then stays.
* The events of a stream are numbered without a gap; at most one of them tells the end, and nothing follows it.
* The text of a stream is the text of the record, or the beginning of it where the stream was cut.
* Each call that is shown running ends once; when the end is told, none is left running; so it is in the record.
* Each question has one answer, at the latest when the end is told.
* The end that a stream tells is the end that the record has.

Faults are returned as texts, so that a long session can count them; ``check`` raises them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from attrs import define, field, frozen

from hermes_trio.core.messages import CallItem, ClientCallItem, MessageItem
from hermes_trio.core.records import EndedRun
from tests.robustness.book import Sought, counted
from tests.robustness.wires import ALL, Heard

IN_PROGRESS = "in_progress"


class Broken(AssertionError):
    """An invariant does not hold."""


@frozen
class Kept:
    """The record of a run, as far as the invariants go."""

    run_id: str
    status: str
    text: str
    calls: Mapping[str, str]  # the state of each call, by id
    handed: frozenset[str] = frozenset()  # calls that the client runs; not every dialect shows them as calls


def kept_of_record(record: EndedRun) -> Kept:
    """From what the store holds."""
    text = "".join(item.text for item in record.items if isinstance(item, MessageItem))
    calls = {item.call_id: str(item.state) for item in record.items if isinstance(item, CallItem)}
    handed = frozenset(item.call_id for item in record.items if isinstance(item, ClientCallItem))
    return Kept(record.header.run_id, str(record.outcome.status), text, calls, handed)


def kept_of_response(response: Mapping[str, Any]) -> Kept:
    """From what ``GET /v1/responses/{id}`` answers."""
    output = response["output"]
    messages = [item for item in output if item["type"] == "message"]
    text = "".join(part["text"] for item in messages for part in item["content"])
    calls = {item["call_id"]: item["status"] for item in output if item["type"] == "function_call"}
    return Kept(response["id"], response["status"], text, calls)


@define
class Ledger:
    """The states that every run was seen in, by whoever looked."""

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


@counted(Sought.WRONG)
def faults_of_stream(heard: Heard, first: int | None = None) -> Iterator[str]:
    """What is wrong with a stream by itself. ``first`` is the number that it has to begin with, if that is known."""
    numbers = heard.numbers
    begin = first if first is not None else (numbers[0] if numbers else 0)
    if list(numbers) != list(range(begin, begin + len(numbers))):
        yield f"numbers with a gap: {numbers}"
    if len(heard.ends) > 1:
        yield f"the end is told {len(heard.ends)} times"
    if heard.is_closed and not heard.ends:
        yield "closed as whole, and no end was told"
    after = [each for n, each in enumerate(heard.told) if any(told.end for told in heard.told[:n])]
    if any(each.text or each.started or each.ended for each in after):
        yield "something is said after the end"
    yield from _faults_of_calls(heard)
    asked = Counter(told.asked for told in heard.told if told.asked)
    answered = Counter(told.answered for told in heard.told if told.answered)
    if answered - asked or (heard.ends and asked - answered):
        yield f"questions {dict(asked)}, answers {dict(answered)}"


def _faults_of_calls(heard: Heard) -> Iterator[str]:
    starts, ends = Counter[str](), Counter[str]()
    for told in heard.told:
        if told.started:
            starts[told.started] += 1
        if told.ended:
            ends[told.ended] += 1
            if ends[told.ended] > starts[told.ended]:
                yield f"call {told.ended} ends more often than it began"
    if again := [call for call, count in starts.items() if count > 1]:
        yield f"calls began twice: {again}"
    if heard.ends and (open_calls := starts - ends):
        yield f"calls are left running: {list(open_calls)}"


@counted(Sought.STUCK)
def faults_of_record(kept: Kept) -> Iterator[str]:
    """What is wrong with a terminal record by itself."""
    if kept.status not in ALL:
        yield f"the record is {kept.status}"
    if running := [call for call, state in kept.calls.items() if state in {"running", IN_PROGRESS}]:
        yield f"the record has running calls: {running}"


@counted(Sought.LOST)
def faults_between(heard: Heard, kept: Kept) -> Iterator[str]:
    """Where a stream, or the beginning of one, and the record tell different things."""
    if heard.run_id != kept.run_id:
        yield f"the stream of {heard.run_id}, the record of {kept.run_id}"
    is_whole = bool(heard.ends)
    if is_whole and heard.text != kept.text:
        yield f"the stream said {heard.text!r}, the record {kept.text!r}"
    if not kept.text.startswith(heard.text):
        yield f"the stream said {heard.text!r}, which is no beginning of {kept.text!r}"
    shown = {told.started for told in heard.told if told.started}
    if unknown := shown - set(kept.calls) - kept.handed:
        yield f"calls that the record does not know: {sorted(unknown)}"
    if is_whole and (unseen := set(kept.calls) - shown):
        yield f"calls that were never shown: {sorted(unseen)}"
    if any(kept.status not in end for end in heard.ends):
        yield f"the stream ended as one of {sorted(*heard.ends)}, the record is {kept.status}"


def check(faults: Iterable[str], about: object = "") -> None:
    """Raise what is wrong, if anything is.

    Raises:
        Broken: something is.
    """
    if found := list(faults):
        raise Broken(f"{about}: " + "; ".join(found))
