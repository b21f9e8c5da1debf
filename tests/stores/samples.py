"""Sample records: runs, logs, conversations and idempotency records."""

from __future__ import annotations

from typing import Any

import attrs

from hermes_trio.core.changes import TextAdded
from hermes_trio.core.log_codec import decode_changes, encode_changes
from hermes_trio.core.messages import CallItem, Message, MessageItem, ReasoningItem, ToolCall, Usage
from hermes_trio.core.outcome import Failure, Outcome, Reason, Status
from hermes_trio.core.records import (
    Conversation,
    EndedRun,
    IdempotencyRecord,
    LogBatch,
    Ownership,
    Retention,
    RunHeader,
    Stamp,
)
from hermes_trio.core.state import CallState
from hermes_trio.stores.base import Store

ODD = "\ud800 \x00 \u2028 \U0001f600"  # any text that Python can hold must survive
COMPLETED = Outcome(Status.COMPLETED)
KEEP_ALL = Retention(log_seconds=1e9, idempotency_seconds=1e9, max_runs=0)

RICH = (
    Message(
        "user",
        ({"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "data:,"}}),
    ),
    Message(
        "assistant",
        "",
        (ToolCall("c1", "add", '{"a": 1}'), ToolCall("c2", "add", "{}")),
        reasoning="hm",
    ),
    Message("tool", "1", tool_call_id="c1", name="add"),
    Message("tool", "\ud800 \x00 \u2028 \U0001f600", tool_call_id="c2", name="add"),
    Message("assistant", ""),
)


def header(run_id: str, created_at: float = 1.0, /, **changes: Any) -> RunHeader:
    """Return the header of a run with one user message."""
    said = (Message("user", f"ask {run_id}"),)
    plain = RunHeader("ann", Stamp(run_id, created_at, "m"), "responses", "s", said)
    return attrs.evolve(plain, **changes)


def ended(run_id: str, created_at: float = 1.0, /, **changes: Any) -> EndedRun:
    """Return an ended run with one question and one answer."""
    return EndedRun(
        header(run_id, created_at, **changes),
        (MessageItem(f"answer {run_id}"),),
        COMPLETED,
        ended_after=0.5,
    )


def ended_with_messages(run_id: str, *messages: Message, **changes: Any) -> EndedRun:
    """Return an ended run that adds exactly these messages to its session."""
    return EndedRun(header(run_id, messages=messages, **changes), (), COMPLETED, ended_after=0.5)


def many(count: int) -> list[EndedRun]:
    """Return several ended runs of one session."""
    return [ended(f"run-{number}") for number in range(count)]


RICH_RUN = EndedRun(
    header(
        "rich",
        messages=RICH,
        parent="before",
        conversation="c",
        instructions=ODD,
        background=True,
        request={"tools": [{"a": [1, None, 2.5]}], "metadata": {ODD: ODD}, "huge": 10**30},
        input_items=({"id": "i1", "text": ODD}, {"id": "i2", "deep": {"a": [[]]}}),
    ),
    (
        ReasoningItem(ODD),
        MessageItem("I will look"),
        CallItem("c1", "add", {"a": ODD, "b": [1, {"c": None}]}, CallState.COMPLETED, ODD, True, 0.25),
        CallItem("c2", "add", {}, CallState.CANCELLED, "", False, 1.5),
        MessageItem(ODD),
    ),
    Outcome(
        Status.FAILED, Reason.AGENT_ERROR, Failure(ODD, "kind"), Usage(1, 2, 3, 4, 5), raised=True, session_id="moved"
    ),
    ended_after=2.25,
)  # fmt: skip


def batch(run_id: str, first: int, count: int = 1, principal: str = "ann") -> LogBatch:
    """Return a batch whose changes contain their own numbers."""
    changes = [TextAdded(0, str(number)) for number in range(first, first + count)]
    return LogBatch(principal, run_id, first, encode_changes(changes), count)


async def logged_numbers(
    store: Store, run_id: str, first: int = 0, principal: str = "ann"
) -> list[int]:
    """Read a log page by page and return the numbers of its changes."""
    numbers: list[int] = []
    while batches := await store.read_log(principal, run_id, first):
        changes = [change for each in batches for change in decode_changes(each.body)]
        numbers += [int(change.text) for change in changes if isinstance(change, TextAdded)]
        first = batches[-1].first + batches[-1].count
    return numbers


async def begin_and_log(store: Store, run_id: str, changes: int = 2) -> None:
    """Begin a run and append to its log."""
    await store.begin_run(header(run_id), Ownership("me"))
    await store.append_log([batch(run_id, number) for number in range(changes)])


async def taken_headers(store: Store, node: str) -> list[RunHeader]:
    """Take over runs and return their headers."""
    return [run.header for run in await store.take_over_runs(node)]


async def end_chain(store: Store, *run_ids: str) -> None:
    """End runs that continue each other, each later than the previous one."""
    for number, run_id in enumerate(run_ids):
        await store.end_run(
            ended(run_id, number + 1.0, parent=run_ids[number - 1] if number else "")
        )


async def history_texts(store: Store, run_id: str, principal: str = "ann") -> list[str]:
    """Return the history of a run as plain texts."""
    return [str(message.content) for message in await store.load_history(principal, run_id)]


def texts_of(*run_ids: str) -> list[str]:
    """Return the texts that ended runs add to a history."""
    return [text for run_id in run_ids for text in (f"ask {run_id}", f"answer {run_id}")]


def conversation(conversation_id: str = "c", **changes: Any) -> Conversation:
    """Return a conversation with metadata."""
    return attrs.evolve(Conversation("ann", conversation_id, 3.5, {"topic": ODD}), **changes)


def item(item_id: str) -> dict[str, Any]:
    """Return a conversation item."""
    return {"id": item_id, "type": "message", "content": [{"text": ODD}]}


async def item_ids(store: Store, conversation_id: str = "c", principal: str = "ann") -> list[str]:
    """Return the ids of a conversation's items in order."""
    page = await store.list_items(principal, conversation_id)
    assert not page.has_more
    return [each["id"] for each in page.items]


def idempotency_record(run_id: str = "run", **changes: Any) -> IdempotencyRecord:
    """Return the idempotency record of a request."""
    return attrs.evolve(
        IdempotencyRecord("ann", "/v1/responses", "key", "body", run_id, 1.0), **changes
    )
