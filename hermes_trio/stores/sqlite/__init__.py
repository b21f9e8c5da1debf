"""A store in one SQLite file, for one server process."""

from __future__ import annotations

from hermes_trio.stores.sqlite.store import SqliteOptions, SqliteStore, open_sqlite

__all__ = ["SqliteOptions", "SqliteStore", "open_sqlite"]
