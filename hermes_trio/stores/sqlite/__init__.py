"""A store in one SQLite file, for one server process, and a store in memory."""

from __future__ import annotations

from hermes_trio.stores.sqlite.store import (
    MemoryStore,
    SqliteOptions,
    SqliteStore,
    open_memory,
    open_sqlite,
)

__all__ = ["MemoryStore", "SqliteOptions", "SqliteStore", "open_memory", "open_sqlite"]
