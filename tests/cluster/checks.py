"""Check on any node that it has everything that the clients of all nodes have seen."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import trio

from tests.cluster.exchange import Address, ask
from tests.cluster.load import RUNS, SESSIONS, ObservedTurn
from tests.cluster.nodes import wait_ended
from tests.crash.checks import INTERVAL, Checker, Findings
from tests.crash.clients import RATE
from tests.crash.clients import Address as CrashAddress
from tests.crash.frames import frames_of
from tests.crash.frames import text_of as response_text
from tests.support.dialect_frames import numbered

SLACK = 1.0  # seconds of text beyond one flush interval; other tests run at the same time
RESPONSE_KINDS = {"response", "batch", "background"}
ENDS = {"run.completed": "completed", "run.failed": "failed", "run.cancelled": "cancelled"}
DIED = "process_died"


async def check_turns(
    reader: Address,
    turns: Sequence[ObservedTurn],
    seconds: float,
    slack: float = SLACK,
    reasons: frozenset[str] = frozenset({DIED}),
) -> Findings:
    """Check turns on a node, which must show each of them as ended within some seconds.

    Those that did not complete must have ended for one of the reasons.
    """
    findings, responses = Findings(), []
    deadline = trio.current_time() + seconds
    for turn in turns:
        problems = [turn.trouble] if turn.trouble else []
        if turn.run_id:
            left = max(0.0, deadline - trio.current_time())
            try:
                shown = await wait_ended(reader, turn.run_id, left)
            except AssertionError as error:
                problems.append(f"has not ended: {error}")
            else:
                if turn.kind in RESPONSE_KINDS and shown.get("reason") in {None, DIED}:
                    responses.append(turn.as_response())
                else:
                    problems += await _check_events(reader, turn, slack, reasons, findings)
        findings.violations += [f"{_name(turn)}: {problem}" for problem in problems]
    checker = Checker(CrashAddress(reader.port, reader.key), slack)
    findings.add(await trio.to_thread.run_sync(checker.check, responses))
    return findings


def _name(turn: ObservedTurn) -> str:
    return f"{turn.kind} {turn.run_id} of node {turn.node} ({turn.load})"


async def check_survivors(reader: Address, turns: Sequence[ObservedTurn]) -> list[str]:
    """Check that turns of nodes that live ran to their normal end."""
    found = []
    for turn in turns:
        shown = (await ask(reader, "GET", f"{RUNS}/{turn.run_id}")).json()
        if shown["status"] != "completed":
            found.append(f"{_name(turn)}: is {shown['status']}, {shown.get('reason')}")
    return found


# -- what the checks of ``tests.crash`` do not know: turns that are no responses, other reasons --


async def _check_events(
    reader: Address,
    turn: ObservedTurn,
    slack: float,
    reasons: frozenset[str],
    findings: Findings,
) -> list[str]:
    findings.responses += 1
    shown = (await ask(reader, "GET", f"{RUNS}/{turn.run_id}")).json()
    events = await ask(reader, "GET", f"{RUNS}/{turn.run_id}/events")
    if events.status != 200 or not events.is_whole:
        return [f"its events cannot be read: {events}"]
    found = [
        *_check_whole(turn, shown, events.body, reasons),
        *_check_text(turn, events.body, slack, findings),
    ]
    path = _stream_path(turn)
    if path:
        whole = (await ask(reader, "GET", path)).body
        found += _check_stream(turn, whole)
        for last in {_last(turn.body, whole), max(numbered(turn.body), default=-1)}:
            resumed = await ask(reader, "GET", path, headers={"Last-Event-ID": str(last)})
            found += _check_resumed(whole, last, resumed.body)
    if turn.kind in {"chat", "session"}:
        found += await _check_messages(reader, turn, shown)
    findings.cut += shown["status"] != "completed"
    findings.ended += bool(end_of(turn))
    return found


def _check_whole(
    turn: ObservedTurn, shown: dict[str, Any], body: bytes, reasons: frozenset[str]
) -> Iterator[str]:
    """One end, the last of the events, and the one that the record has."""
    kinds = [event["event"] for _, event in events_of(body)]
    ends = [ENDS[kind] for kind in kinds if kind in ENDS]
    if ends != [shown["status"]] or kinds[-1] not in ENDS:
        yield f"is {shown['status']}, its events end with {kinds[-1]} and have the ends {ends}"
    if shown["status"] != "completed" and shown["reason"] not in reasons:
        yield f"ended with {shown['reason']}"
    if (told := end_of(turn)) and told != shown["status"]:
        yield f"its client was told {told}, and it is {shown['status']}"


def _check_text(
    turn: ObservedTurn, events: bytes, slack: float, findings: Findings
) -> Iterator[str]:
    text, heard = text_of("run", events), text_of(turn.kind, turn.body)
    if not turn.whole_text.startswith(text):
        yield f"the text is no prefix of what was said: {text[-200:]!r}"
    if not turn.whole_text.startswith(heard):
        yield f"its client got something else: {heard[-200:]!r}"
    missing = max(0, len(heard) - len(text)) / turn.wanted.size / RATE
    findings.lost.append(missing)
    if missing > INTERVAL + slack or (missing and end_of(turn)):
        yield f"{missing:.3f} s of text are missing: {len(text)} of {len(heard)} characters"
    if end_of(turn) == "completed" and text != turn.whole_text:
        yield f"is completed with {len(text)} of {len(turn.whole_text)} characters"


def _check_stream(turn: ObservedTurn, whole: bytes) -> Iterator[str]:
    """Every number stands for one event, and a stream that had ended is still the same."""
    stored, seen = numbered(whole), numbered(turn.body)
    for number in seen.keys() & stored.keys():
        if seen[number] != stored[number]:
            yield f"event {number} was {seen[number]!r}, is {stored[number]!r}"
    if end_of(turn) and seen != stored:
        yield f"a stream that had ended is another one now: {len(seen)} and {len(stored)} events"


def _check_resumed(whole: bytes, last: int, resumed: bytes) -> Iterator[str]:
    wanted = {number: frame for number, frame in numbered(whole).items() if number > last}
    if numbered(resumed) != wanted:
        yield f"resumed after {last} it does not continue byte for byte"


async def _check_messages(reader: Address, turn: ObservedTurn, shown: dict[str, Any]) -> list[str]:
    """The session has the turn once: the client's message, and what the agent said."""
    path = f"{SESSIONS}/{shown['session_id']}/messages"
    messages = (await ask(reader, "GET", path)).json()["data"]
    users = [message for message in messages if message["role"] == "user"]
    if [message["content"] for message in users] != [turn.load]:
        return [f"its session has {len(users)} messages of its user"]
    return []


def _stream_path(turn: ObservedTurn) -> str:
    """Return where the same stream can be read again, "" if it has no numbers."""
    if turn.kind == "session":
        return f"{SESSIONS}/{turn.session}/chat/stream?run_id={turn.run_id}"
    return f"{RUNS}/{turn.run_id}/events" if turn.kind == "run" else ""


def _last(seen: bytes, whole: bytes) -> int:
    """Return the number of the last event that both streams have."""
    return max(numbered(seen).keys() & numbered(whole).keys(), default=-1)


# -- reading streams that may be cut off --


def events_of(body: bytes) -> list[tuple[str, dict[str, Any]]]:
    """Return the names and data of whole events; comments and the mark of the end do not count."""
    found = []
    for block in body.decode().split("\n\n")[:-1]:
        fields = dict(line.split(": ", 1) for line in block.split("\n") if not line.startswith(":"))
        if fields.get("data", "[DONE]") != "[DONE]":
            found.append((fields.get("event", ""), json.loads(fields["data"])))
    return found


def text_of(kind: str, body: bytes) -> str:
    """Return the visible text of a stream."""
    if kind in RESPONSE_KINDS:
        return response_text(frames_of(body))
    if kind == "chat":
        chunks = [choice for _, data in events_of(body) for choice in data.get("choices", ())]
        return "".join(choice["delta"].get("content", "") for choice in chunks)
    if kind == "session":
        return "".join(data["delta"] for name, data in events_of(body) if name == "assistant.delta")
    return "".join(
        data["delta"] for _, data in events_of(body) if data.get("event") == "message.delta"
    )


def end_of(turn: ObservedTurn) -> str:
    """Return the status that the client was told at the end, "" if it was told none."""
    if turn.kind in RESPONSE_KINDS:
        return str(turn.as_response().end.get("status", ""))
    for name, data in events_of(turn.body):
        if turn.kind == "run" and data["event"] in ENDS:
            return ENDS[data["event"]]
        if turn.kind == "session" and name == "done":
            return str(data["status"])
        for choice in data.get("choices", ()):
            if choice["finish_reason"] in {"stop", "tool_calls"} and "hermes" not in data:
                return "completed"
            if choice["finish_reason"] == "error":
                return "failed"
    return ""
