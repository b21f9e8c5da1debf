"""Turns to save, and ways to hold the engine still."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import trio

from hermes_trio.core.messages import Message, ToolCall, Usage
from hermes_trio.core.record import TurnRecord
from hermes_trio.stores.contract import Store
from hermes_trio.stores.sqlite import SqliteStore

TURN = TurnRecord(
    principal="ann",
    run_id="run-1",
    session_id="s",
    model="m",
    status="completed",
    reason="",
    started_at=1.0,
    ended_at=2.0,
    usage=Usage(3, 4),
    messages=(Message("user", "hello"), Message("assistant", "good day")),
)

RICH = (
    Message(
        "user", ({"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "data:,"}})
    ),
    Message(
        "assistant", "", (ToolCall("c1", "add", '{"a": 1}'), ToolCall("c2", "add", "{}")), reasoning="hm"
    ),
    Message("tool", "1", tool_call_id="c1", name="add"),
    Message("tool", "\ud800 \x00 \u2028 \U0001f600", tool_call_id="c2", name="add"),
    Message("assistant", ""),
)


def turn(run_id: str, **changes: Any) -> TurnRecord:
    """A turn of two messages that name their run."""
    said = (Message("user", f"ask {run_id}"), Message("assistant", f"answer {run_id}"))
    return attrs.evolve(TURN, **{"run_id": run_id, "messages": said, **changes})


def turns(count: int, **changes: Any) -> list[TurnRecord]:
    """Several runs of one session."""
    return [turn(f"run-{number}", **changes) for number in range(count)]


async def save_all(store: Store, records: list[TurnRecord]) -> None:
    """Save turns side by side."""
    async with trio.open_nursery() as nursery:
        for record in records:
            nursery.start_soon(store.save_turn, record)


async def runs_of(store: Store, session_id: str = "s", principal: str = "ann") -> list[str]:
    """The runs in a session in order, after a look that each is whole: its question, then its answer."""
    said = [str(message.content) for message in await store.messages(principal, session_id)]
    runs = [text.removeprefix("ask ") for text in said[::2]]
    assert said == [text for run in runs for text in (f"ask {run}", f"answer {run}")]
    return runs


def contents(path: Path) -> bytes:
    """What is in a file."""
    return path.read_bytes()


def overwrite(path: Path, content: bytes) -> None:
    """Put something else in a file, which is made if need be, with its directory."""
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)


def names_in(directory: Path) -> list[str]:
    """The files in a directory."""
    return sorted(found.name for found in directory.iterdir())


def writer_of(store: SqliteStore) -> sqlite3.Connection:
    """The connection that writes; to be touched only while the store is idle."""
    return store._writer._connection


class Gate:
    """A job that stays in its thread until it is let go. Its thread must end before the test does."""

    def __init__(self) -> None:
        self.entered = trio.Event()
        self._let_go = threading.Event()

    def __call__(self, connection: sqlite3.Connection) -> None:
        trio.from_thread.run_sync(self.entered.set)
        assert self._let_go.wait(10)

    def open(self) -> None:
        """Let it go."""
        self._let_go.set()


async def hold(store: SqliteStore, nursery: trio.Nursery) -> Gate:
    """Keep the writer busy with a transaction, so that what comes after must wait."""
    gate = Gate()
    nursery.start_soon(store._writer.submit, gate)
    await gate.entered.wait()
    return gate


def count_commits(store: SqliteStore) -> Callable[[], int]:
    """Count the commits that the engine itself reports from here on."""
    seen: list[str] = []
    writer_of(store).set_trace_callback(seen.append)
    return lambda: seen.count("COMMIT")
