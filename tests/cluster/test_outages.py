"""The database is killed, its connections are cut, its disk is full: the nodes recover by themselves."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.cluster.nodes import Cluster, run_cluster
from tests.cluster.outages import crash_database, cut_connections, fill_disk
from tests.robustness.real_servers import small_disk
from tests.support.postgres import PostgresServer, run_postgres

pytestmark = pytest.mark.timeout(3600)


@pytest.mark.parametrize("durability", ["strict", "normal"])
async def test_the_database_is_killed(
    durability: str, tmp_path: Path, seed: str, full: bool
) -> None:
    settings = {"stream_durability": durability}
    with (
        run_postgres(is_safe=True) as server,
        run_cluster(tmp_path, server.create_database(), settings=settings) as cluster,
    ):
        crashes = 20 if full else 1
        problems = await crash_database(cluster, server, crashes, seed, durability == "strict")
    assert not problems, "\n".join(problems)


async def test_connections_are_cut(cluster: Cluster, seed: str, full: bool) -> None:
    problems = await cut_connections(cluster, 20 if full else 2, seed)
    assert not problems, "\n".join(problems)


async def test_the_disk_is_full(tmp_path: Path, seed: str) -> None:
    with (
        _small_postgres() as server,
        run_cluster(tmp_path, server.create_database()) as cluster,
    ):
        problems = await fill_disk(cluster, server, server.directory, _fill, seed)
    assert not problems, "\n".join(problems)


@contextmanager
def _small_postgres() -> Iterator[PostgresServer]:
    """A server on a small disk, or no test."""
    with ExitStack() as stack:
        parent = Path(stack.enter_context(TemporaryDirectory(prefix="disk-")))
        parent.chmod(0o711)  # PostgreSQL has another account
        try:
            disk = stack.enter_context(small_disk(parent / "disk", "160m"))
        except PermissionError:
            pytest.skip("nobody may mount here")
        disk.chmod(0o711)
        options = ("max_wal_size=64MB", "min_wal_size=32MB")
        yield stack.enter_context(run_postgres(*options, is_safe=True, parent=disk))


def _fill(folder: Path) -> Path:
    """Leave no room."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        size = shutil.disk_usage(folder).free
        while size >= 4096:
            try:
                os.posix_fallocate(file.fileno(), 0, file.tell() + size)
                file.seek(0, os.SEEK_END)
            except OSError:
                size //= 2
            else:
                size = shutil.disk_usage(folder).free
    return ballast
