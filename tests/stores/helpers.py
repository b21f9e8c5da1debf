"""Ways to save and look, and ways to hold the engine still."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import trio

from hermes_trio.core.records import EndedRun
from hermes_trio.stores.base import Store
from hermes_trio.stores.sqlite import SqliteStore


async def end_all(store: Store, runs: list[EndedRun]) -> None:
    """End runs side by side."""
    async with trio.open_nursery() as nursery:
        for run in runs:
            nursery.start_soon(store.end_run, run)


async def runs_of(store: Store, session_id: str = "s", principal: str = "ann") -> list[str]:
    """The runs in a session in order, after a look that each is whole: its question, then its answer."""
    said = [str(message.content) for message in await store.load_messages(principal, session_id)]
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
