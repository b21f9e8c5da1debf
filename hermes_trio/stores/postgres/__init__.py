"""A store in a PostgreSQL database, for one server process at a time."""

from __future__ import annotations

from hermes_trio.stores.postgres.store import PostgresOptions, PostgresStore, open_postgres

__all__ = ["PostgresOptions", "PostgresStore", "open_postgres"]
