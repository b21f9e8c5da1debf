"""Opening and closing the connections to a database file. All of it blocks: call it in a thread."""

from __future__ import annotations

import os
import sqlite3
from contextlib import ExitStack, suppress
from pathlib import Path

from attrs import frozen

from hermes_trio.stores.base import StoreError
from hermes_trio.stores.faults import explained
from hermes_trio.stores.files import claim, make_directory, make_file
from hermes_trio.stores.migrations import migrate


@frozen(eq=False)
class Connections:
    """One connection that writes and a few that read, with the lock that keeps other processes out."""

    writer: sqlite3.Connection
    readers: tuple[sqlite3.Connection, ...]
    _undo: ExitStack

    def close(self) -> None:
        """Close the readers, fold the log into the database, close the writer, let the file go."""
        self._undo.close()


def open_connections(path: Path, readers: int, busy_seconds: float) -> Connections:
    """Claim a database file, bring it up to date and connect.

    Raises:
        StoreError: in use, damaged, newer than this program, or not ours to write.
    """
    try:
        return _open(path.resolve(), readers, busy_seconds)
    except OSError as error:
        raise StoreError(f"cannot open {path}: {error.strerror}") from error
    except sqlite3.Error as error:
        raise explained(error, f"cannot open {path}") from error


def _open(path: Path, readers: int, busy_seconds: float) -> Connections:
    with ExitStack() as undo:
        make_directory(path.parent)
        undo.callback(os.close, claim(path))
        make_file(path)
        writer = _connect(path, "rw", busy_seconds, undo)
        _prepare(writer)
        undo.callback(_fold, writer)
        idle = tuple(_connect(path, "ro", busy_seconds, undo) for _ in range(readers))
        for reader in idle:
            # The first read opens the log file and learns the schema: rather now than in somebody's request.
            reader.execute("SELECT count(*) FROM sqlite_schema").fetchall()
        return Connections(writer, idle, undo.pop_all())


def _connect(path: Path, mode: str, busy_seconds: float, undo: ExitStack) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.as_uri()}?mode={mode}",
        uri=True,
        timeout=busy_seconds,
        isolation_level=None,  # we say BEGIN and COMMIT ourselves
        check_same_thread=False,  # any worker thread, but never two at once
    )
    undo.callback(connection.close)
    return connection


def _prepare(writer: sqlite3.Connection) -> None:
    mode = writer.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        raise StoreError(
            f"the file system of the database cannot do write-ahead logging (it offers {mode!r})"
        )
    writer.execute("PRAGMA synchronous = FULL")
    writer.execute("PRAGMA foreign_keys = ON")
    migrate(writer)


def _fold(writer: sqlite3.Connection) -> None:
    # If this fails nothing is lost: the log stays beside the file and the next opening reads it.
    with suppress(sqlite3.Error):
        writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
