"""Check that a restarted server has everything that clients saw before the kill."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise
from typing import Any

from attrs import define, field

from tests.crash.clients import PATH, RATE, Address, ObservedResponse
from tests.crash.frames import (
    DONE,
    Frame,
    frames_of,
    parse_answer,
    plain_output,
    text_of,
    text_of_output,
)

INTERVAL = 0.03  # seconds between two flushes of the logs
# for the commits, and for threads that wait for a core; measured on a busy machine: up to 0.13
SLACK = 0.25
CHAINED = 2  # continuations tried in each round


@define
class Findings:
    """What one or several rounds found."""

    violations: list[str] = field(factory=list)
    lost: list[float] = field(
        factory=list
    )  # seconds of text that a client had and the store had not
    responses: int = 0
    ended: int = 0  # terminal frames or whole answers that clients had
    cut: int = 0  # ended by the successor
    chained: int = 0
    unstored: int = 0  # events that clients had and the store had not

    def add(self, other: Findings) -> None:
        """Add the findings of another round."""
        self.violations += other.violations
        self.lost += other.lost
        self.responses += other.responses
        self.ended += other.ended
        self.cut += other.cut
        self.chained += other.chained
        self.unstored += other.unstored


class Checker:
    """Compares a restarted server with what the clients of its predecessor saw."""

    def __init__(self, address: Address, slack: float = SLACK) -> None:
        self._address, self._slack = address, slack
        self.findings = Findings()

    def check(self, all_seen: Sequence[ObservedResponse]) -> Findings:
        """Check all responses."""
        for seen in all_seen:
            if seen.trouble:
                self._complain(seen, [seen.trouble])
            if seen.response_id:
                self._complain(seen, self._check(seen))
        return self.findings

    def _complain(self, seen: ObservedResponse, problems: Sequence[str] | Iterator[str]) -> None:
        about = f"{seen.kind} {seen.response_id} ({seen.load})"
        self.findings.violations += [f"{about}: {problem}" for problem in problems]

    def _check(self, seen: ObservedResponse) -> Iterator[str]:
        self.findings.responses += 1
        answer = parse_answer(self._address.ask("GET", f"{PATH}/{seen.response_id}"))
        if answer is None or not answer.json():
            yield f"cannot be fetched: {answer}"
            return
        stored = answer.json()
        yield from _check_end(seen, stored)
        yield from self._check_text(seen, stored)
        if seen.frames:
            yield from self._check_stream(seen)
        if stored["status"] == "incomplete":
            yield from self._check_chain(seen)
        self.findings.ended += bool(seen.end)
        self.findings.cut += stored["status"] == "incomplete"

    def _check_text(self, seen: ObservedResponse, stored: dict[str, Any]) -> Iterator[str]:
        text, heard = text_of_output(stored), text_of(seen.frames)
        if not seen.whole_text.startswith(text):
            yield f"the text is no prefix of what was said: {text[-200:]!r}"
        missing = max(0, len(heard) - len(text)) / seen.wanted.size / RATE
        self.findings.lost.append(missing)
        if missing > INTERVAL + self._slack:
            yield f"{missing:.3f} s of text are missing: {len(text)} of {len(heard)} characters"

    def _check_stream(self, seen: ObservedResponse) -> Iterator[str]:
        """Check that the stream equals the client's, as far as it was stored."""
        whole = self._stream(seen, -1)
        # Who followed it on another node has seen how the run of a dead process was ended.
        has_ended = bool(seen.end) and seen.end["status"] != "incomplete"
        if not whole or whole[-1].raw != DONE or not _is_in_order(whole[:-1], has_ended):
            yield "the stream has gaps or no end"
            return
        if [frame.is_terminal for frame in whole].index(True) != len(whole) - 2:
            yield "the stream has not one terminal event, just before its end"
        common = _common(seen.frames, whole)
        if seen.end and common != len(seen.frames):
            yield f"a stream that had ended is another one now, from event {common} on"
        if seen.frames[common:] and text_of(whole[common:]):
            yield f"another text than the client had, from event {common} on"
        self.findings.unstored += len(seen.frames[common:])
        for last in {_last_number(whole[:common]), _last_number(seen.frames)}:
            yield from self._check_resumed(seen, whole, last)

    def _check_resumed(
        self, seen: ObservedResponse, whole: Sequence[Frame], last: int
    ) -> Iterator[str]:
        """Check what a client gets that asks for the events after one that it had.

        The store may not have that one.
        """
        resumed = self._stream(seen, last)
        if resumed != [frame for frame in whole if frame.number > last or frame.raw == DONE]:
            yield f"resumed after {last} it does not continue byte for byte"
        if not seen.end and not any(frame.is_terminal for frame in resumed):
            yield f"resumed after {last} it does not tell the end"
        yield from _check_numbers(chain(seen.frames, whole, resumed))

    def _stream(self, seen: ObservedResponse, after: int) -> list[Frame]:
        target = f"{PATH}/{seen.response_id}?stream=true&starting_after={after}"
        answer = parse_answer(
            self._address.ask("GET", target if after >= 0 else target.partition("&")[0])
        )
        return frames_of(answer.body) if answer is not None and answer.is_whole else []

    def _check_chain(self, seen: ObservedResponse) -> Iterator[str]:
        if self.findings.chained >= CHAINED:
            return
        self.findings.chained += 1
        body = {"model": "m", "input": "tokens=1", "previous_response_id": seen.response_id}
        answer = parse_answer(self._address.ask("POST", PATH, body))
        if answer is None or answer.json().get("status") != "completed":
            yield f"cannot be continued: {answer}"


def _check_end(seen: ObservedResponse, stored: dict[str, Any]) -> Iterator[str]:
    status = stored["status"]
    if seen.end:
        for name, told, kept in (
            ("status", seen.end["status"], status),
            ("output", plain_output(seen.end), plain_output(stored)),
            ("usage", seen.end["usage"], stored["usage"]),
        ):
            if told != kept:
                yield f"{name} was {told}, is {kept}"
    elif status == "incomplete":
        if stored["hermes"]["reason"] != "process_died":
            yield f"ended with {stored['hermes']}"
    elif status != "completed" or text_of_output(stored) != seen.whole_text:
        yield f"is {status} with {len(text_of_output(stored))} of {len(seen.whole_text)} characters"


def _is_in_order(frames: Sequence[Frame], has_ended: bool) -> bool:
    """Whether the numbers count from 0, with one gap at most if the process died before the end."""
    steps = [after.number - before.number for before, after in pairwise(frames)]
    gaps = sum(step > 1 for step in steps)
    return frames[0].number == 0 and min(steps) == 1 and gaps <= (not has_ended)


def _check_numbers(frames: Iterable[Frame]) -> Iterator[str]:
    """No number has two contents, before the kill and after it."""
    known: dict[int, Frame] = {}
    for frame in frames:
        if frame.raw != DONE and known.setdefault(frame.number, frame) != frame:
            yield f"event {frame.number} was {known[frame.number].raw!r}, is {frame.raw!r}"


def _last_number(frames: Sequence[Frame]) -> int:
    return max(frame.number for frame in frames)


def _common(one: Sequence[Frame], other: Sequence[Frame]) -> int:
    pairs = zip(one, other, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
