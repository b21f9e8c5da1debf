"""Shared fixtures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.postgres import PostgresServer, run_pgbouncer


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a path for a database; its directory does not exist yet."""
    return tmp_path / "data" / "store.db"


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> str:
    """Return the URL of a database without records."""
    return postgres_server.empty_database()


@pytest.fixture(scope="session")
def pgbouncer(postgres_server: PostgresServer) -> Iterator[str]:
    """Run PgBouncer before the server; return the query of its URLs."""
    with run_pgbouncer(postgres_server) as query:
        yield query


@pytest.fixture
def pgbouncer_url(pgbouncer: str, postgres_url: str) -> str:
    """Return the URL of a database without records, through PgBouncer."""
    return f"{postgres_url.partition('?')[0]}?{pgbouncer}"
