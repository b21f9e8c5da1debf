"""A database and nodes for the tests of clusters; all are skipped where there is no PostgreSQL."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.nodes import Cluster, run_cluster
from tests.support.postgres import PostgresServer, run_postgres

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def durable_postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server that survives a crash without a loss, as in production."""
    with run_postgres("max_connections=200", is_safe=True) as server:
        yield server


@pytest.fixture
def cluster(durable_postgres: PostgresServer, tmp_path: Path) -> Iterator[Cluster]:
    """Three nodes on a new database."""
    with run_cluster(tmp_path, durable_postgres.create_database()) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def shared_cluster(
    durable_postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """Three nodes for all tests of a module: those that harm no node."""
    folder, url = tmp_path_factory.mktemp("nodes"), durable_postgres.create_database()
    with run_cluster(folder, url) as cluster:
        yield cluster


@pytest.fixture
def seed() -> str:
    """The seed of a test's random choices, printed so that a failure can be repeated.

    ``CLUSTER_SEED`` sets it.
    """
    chosen = os.environ.get("CLUSTER_SEED") or str(random.SystemRandom().randrange(10**6))
    print(f"CLUSTER_SEED={chosen}")  # noqa: T201 - shown with a failure
    return chosen
