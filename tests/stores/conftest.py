"""Shared fixtures."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.postgres import PostgresServer

_CONTRACT = Path(__file__).parent / "contract"
pytest.register_assert_rewrite(
    *(f"tests.stores.contract.{module.stem}" for module in _CONTRACT.glob("[a-z]*.py")),
    "tests.stores.helpers",
    "tests.stores.samples",
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a path for a database; its directory does not exist yet."""
    return tmp_path / "data" / "store.db"


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> str:
    """Return the URL of a database without records."""
    return postgres_server.empty_database()
