"""What an SQLite error means to the one who reads the log."""

from __future__ import annotations

import sqlite3

from hermes_trio.stores.base import StoreError

CLOSED = "the store is closed"

_PRIMARY = 0xFF  # the low byte of an extended result code is the general kind of failure

_REASONS = {
    sqlite3.SQLITE_FULL: "the disk is full, or the database has reached its size limit",
    sqlite3.SQLITE_READONLY: "the database cannot be written to",
    sqlite3.SQLITE_BUSY: "another program holds the database locked",
    sqlite3.SQLITE_LOCKED: "another program holds the database locked",
    sqlite3.SQLITE_IOERR: "the disk reports an input/output error",
    sqlite3.SQLITE_CORRUPT: "the database file is damaged",
    sqlite3.SQLITE_NOTADB: "the file is not an SQLite database",
    sqlite3.SQLITE_CANTOPEN: "the database file cannot be opened",
}


def kind(error: BaseException) -> int:
    """The primary result code of an SQLite error; 0 for anything else."""
    return int(getattr(error, "sqlite_errorcode", 0)) & _PRIMARY


def has_no_thread(error: RuntimeError) -> bool:
    """Whether the system had no thread left for the work. The interpreter tells it in words only."""
    return "can't start new thread" in str(error)


def explained(error: Exception, where: str = "sqlite store") -> StoreError:
    """The error to show to a caller. A new one each time: several callers may wait for the same failure."""
    if isinstance(error, StoreError):
        return type(error)(*error.args)
    reason = _REASONS.get(kind(error), "the operation failed")
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    return StoreError(f"{where}: {reason} ({name}: {error})")
