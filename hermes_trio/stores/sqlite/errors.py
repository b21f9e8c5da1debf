"""SQLite errors, translated for the reader of the server log."""

from __future__ import annotations

import sqlite3

from hermes_trio.stores.base import StoreError

CLOSED = "the store is closed"

_PRIMARY = 0xFF  # the low byte of an extended result code is the general kind of failure

_REASONS = {
    sqlite3.SQLITE_FULL: "the disk is full, or the database has reached its size limit",
    sqlite3.SQLITE_READONLY: "the database cannot be written to",
    sqlite3.SQLITE_BUSY: "the database is locked by another program",
    sqlite3.SQLITE_LOCKED: "the database is locked by another program",
    sqlite3.SQLITE_IOERR: "the disk reports an input/output error",
    sqlite3.SQLITE_CORRUPT: "the database file is damaged",
    sqlite3.SQLITE_NOTADB: "the file is not an SQLite database",
    sqlite3.SQLITE_CANTOPEN: "the database file cannot be opened",
}


def primary_code(error: BaseException) -> int:
    """Return the primary result code of an SQLite error, or 0 for any other exception."""
    return int(getattr(error, "sqlite_errorcode", 0)) & _PRIMARY


def is_thread_exhaustion(error: RuntimeError) -> bool:
    """Return whether the system refused to start a thread.

    The interpreter says so only in the message.
    """
    return "can't start new thread" in str(error)


def to_store_error(error: Exception, where: str = "sqlite store") -> StoreError:
    """Translate an error for a caller.

    Always a new object: several callers may receive the same failure.
    """
    if isinstance(error, StoreError):
        return type(error)(*error.args)
    reason = _REASONS.get(primary_code(error), "the operation failed")
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    return StoreError(f"{where}: {reason} ({name}: {error})")
