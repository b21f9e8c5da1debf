"""Helpers that save and read runs, inspect files, and block the writer."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import trio

from hermes_trio.core.records import EndedRun
from hermes_trio.stores.base import Store
from hermes_trio.stores.sql.database import SqlConnection
from hermes_trio.stores.sqlite import SqliteStore


async def end_all(store: Store, runs: list[EndedRun]) -> None:
    """End runs concurrently."""
    async with trio.open_nursery() as nursery:
        for run in runs:
            nursery.start_soon(store.end_run, run)


async def completed_runs(store: Store, session_id: str = "s", principal: str = "ann") -> list[str]:
    """Return the runs in a session in order, after checking that each has its question and its answer."""
    said = [str(message.content) for message in await store.load_messages(principal, session_id)]
    runs = [text.removeprefix("ask ") for text in said[::2]]
    assert said == [text for run in runs for text in (f"ask {run}", f"answer {run}")]
    return runs


def contents(path: Path) -> bytes:
    """Return the contents of a file."""
    return path.read_bytes()


def overwrite(path: Path, content: bytes) -> None:
    """Overwrite a file, creating it and its directory if necessary."""
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)


def file_names(directory: Path) -> list[str]:
    """Return the names of the files in a directory."""
    return sorted(found.name for found in directory.iterdir())


def writer_connection(store: SqliteStore) -> sqlite3.Connection:
    """Return the connection that writes. Use it only while the store is idle."""
    return store._database._writer


class BlockingJob:
    """A job that blocks its thread until it is released, which must happen before the test ends."""

    def __init__(self) -> None:
        self.entered = trio.Event()
        self._let_go = threading.Event()

    def __call__(self, connection: SqlConnection) -> None:
        trio.from_thread.run_sync(self.entered.set)
        assert self._let_go.wait(10)

    def open(self) -> None:
        """Release the thread."""
        self._let_go.set()


async def block_writer(store: SqliteStore, nursery: trio.Nursery) -> BlockingJob:
    """Block the writer in a transaction, so that later jobs have to wait."""
    gate = BlockingJob()
    nursery.start_soon(store._writer.submit, gate)
    await gate.entered.wait()
    return gate


def count_commits(store: SqliteStore) -> Callable[[], int]:
    """Return a function that counts the commits reported by SQLite since this call."""
    seen: list[str] = []
    writer_connection(store).set_trace_callback(seen.append)
    return lambda: seen.count("COMMIT")
