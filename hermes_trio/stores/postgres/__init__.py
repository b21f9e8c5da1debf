"""A store in a PostgreSQL database, for any number of server processes."""

from __future__ import annotations

from hermes_trio.stores.postgres.sharing import PostgresOptions
from hermes_trio.stores.postgres.store import PostgresStore, open_postgres

__all__ = ["PostgresOptions", "PostgresStore", "open_postgres"]
