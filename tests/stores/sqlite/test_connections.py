"""The database file: permissions, lock and schema."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import attrs
import pytest
import trio

from hermes_trio.core.messages import Usage
from hermes_trio.core.outcome import Outcome, Status
from hermes_trio.stores.base import StoreError
from hermes_trio.stores.retention import RUN_BYTES
from hermes_trio.stores.sqlite import connections, open_sqlite
from hermes_trio.stores.sqlite.schema import MIGRATIONS, migrate, schema_version
from tests.stores.helpers import completed_runs, contents, file_names, overwrite, writer_connection
from tests.stores.samples import ended


def rights(path: Path) -> str:
    """Return the permission bits of a file."""
    return oct(path.stat().st_mode & 0o777)


def loosen(path: Path) -> None:
    """Create an empty file in a directory, both readable by everyone."""
    overwrite(path, b"")
    path.parent.chmod(0o755)
    path.chmod(0o644)


def beside(path: Path, ending: str) -> Path:
    """Return a file that belongs to a database."""
    return path.with_name(path.name + ending)


def edit(path: Path, statement: str) -> None:
    """Change a database behind the back of the store."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement)


async def test_files_are_accessible_to_their_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "store.db"
    async with open_sqlite(path) as store:
        await store.end_run(ended("a"))
        for ending in ("", "-wal", "-shm", ".lock"):
            assert rights(beside(path, ending)) == "0o600"
        assert rights(tmp_path / "a") == rights(tmp_path / "a" / "b") == "0o700"


async def test_an_existing_file_becomes_private(path: Path) -> None:
    loosen(path)
    async with open_sqlite(path):
        assert rights(path) == "0o600"
        assert rights(path.parent) == "0o755"  # not ours


async def test_closing_checkpoints_the_log(path: Path) -> None:
    async with open_sqlite(path) as store:
        await store.end_run(ended("a"))
        assert beside(path, "-wal").stat().st_size > 0
    assert file_names(path.parent) == ["store.db", "store.db.lock"]


async def test_closing_checkpoints_the_log_while_another_program_reads(path: Path) -> None:
    async with open_sqlite(path) as store:
        await store.end_run(ended("a"))
        other = sqlite3.connect(path)
        other.execute("SELECT * FROM runs").fetchall()
    with closing(other):
        assert beside(path, "-wal").stat().st_size == 0


async def test_the_engine_is_set_for_durability(path: Path) -> None:
    async with open_sqlite(path) as store:
        connection = writer_connection(store)
        asked = ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        assert [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in asked] == [
            "wal",
            2,
            1,
            5000,
        ]


def open_files(path: Path) -> int:
    """Count the open descriptors of this process for files of a database."""
    links = [found.readlink() for found in Path("/proc/self/fd").iterdir() if found.is_symlink()]
    return sum(link.name.startswith(path.name) for link in links)


async def test_reading_opens_nothing_new(path: Path) -> None:
    async with open_sqlite(path) as store:
        await store.end_run(ended("a"))
        before = open_files(path)
        async with trio.open_nursery() as nursery:
            for _ in range(30):
                nursery.start_soon(completed_runs, store, "other")
        assert open_files(path) == before


async def test_readers_cannot_write(path: Path) -> None:
    async with open_sqlite(path) as store:
        with pytest.raises(StoreError, match="cannot be written to"):
            await store._readers.read(lambda connection: connection.execute("DELETE FROM runs"))


async def test_a_turn_updates_the_fields_of_its_session(path: Path) -> None:
    async with open_sqlite(path) as store:
        counted = Outcome(Status.COMPLETED, usage=Usage(3, 4))
        await store.end_run(
            attrs.evolve(ended("a", 1.0, kind="chat"), outcome=counted, ended_after=4.0)
        )
        await store.end_run(attrs.evolve(ended("b", 2.0), ended_after=2.0))
        await store.end_run(attrs.evolve(ended("b", 2.0), ended_after=7.0))
        connection = writer_connection(store)
        [row] = connection.execute("SELECT * FROM sessions").fetchall()
        assert row[:6] == ("ann", "s", 1.0, 5.0, "chat", "m")
        [row] = connection.execute("SELECT * FROM runs WHERE run_id = 'a'").fetchall()
        facts = ("ann", "a", "chat", "s", "", "", "m", "completed", "", 1.0, 4.0, "", 5.0, 0, 0)
        assert row[: len(facts)] == facts
        [size, *written] = row[len(facts) : -4]
        assert size == RUN_BYTES + sum(map(len, written))
        assert '"input_tokens":3' in written[-1]


@pytest.mark.parametrize("name", ["a.db", "with space.db", "100%25#.db", "ünï.db"])
async def test_a_path_is_taken_literally(tmp_path: Path, name: str) -> None:
    async with open_sqlite(tmp_path / name):
        assert (tmp_path / name).is_file()
    assert file_names(tmp_path) == [name, f"{name}.lock"]


async def test_a_second_opening_in_this_process_is_refused(path: Path, tmp_path: Path) -> None:
    alias = tmp_path / "alias.db"
    alias.symlink_to(path)
    async with open_sqlite(path) as store:
        for name in (path, alias):
            with pytest.raises(StoreError, match="already open"):
                async with open_sqlite(name):
                    pass
        await store.check()
    async with open_sqlite(alias) as store:
        await store.check()


OPEN = """
import pathlib, sys, trio
from hermes_trio.stores.base import StoreError
from hermes_trio.stores.retention import RUN_BYTES
from hermes_trio.stores.sqlite import open_sqlite
async def main():
    async with open_sqlite(pathlib.Path(sys.argv[1])):
        print("opened")
try:
    trio.run(main)
except StoreError as error:
    print(error)
"""


async def open_elsewhere(path: Path) -> str:
    """Open a store in another process and return its output."""
    command = [sys.executable, "-c", OPEN, str(path)]
    done = await trio.run_process(command, capture_stdout=True)
    return done.stdout.decode()


async def test_a_second_process_is_refused(path: Path) -> None:
    async with open_sqlite(path) as store:
        said = await open_elsewhere(path)
        assert (
            said == f"{path} is already open: only one process at a time can use an SQLite store; "
            "stop the other one, or choose another --data-dir\n"
        )
        await store.check()
    assert await open_elsewhere(path) == "opened\n"


async def test_a_directory_in_place_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"cannot open .*: Is a directory"):
        async with open_sqlite(tmp_path):
            pass


async def test_a_file_in_place_of_the_directory(tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    with pytest.raises(StoreError, match=r"cannot open .*: Not a directory"):
        async with open_sqlite(tmp_path / "data" / "store.db"):
            pass


async def test_a_file_of_another_format_is_refused_and_closed(path: Path) -> None:
    overwrite(path, b"not a database" * 1000)
    with pytest.raises(StoreError, match=r"cannot open .*: the file is not an SQLite database"):
        async with open_sqlite(path):
            pass
    assert contents(path) == b"not a database" * 1000
    overwrite(path, b"")
    async with open_sqlite(path) as store:
        await store.check()


async def test_a_newer_database_is_refused_untouched(path: Path) -> None:
    async with open_sqlite(path) as store:
        await store.end_run(ended("a"))
    newer = len(MIGRATIONS) + 1
    edit(path, f"PRAGMA user_version = {newer}")
    with pytest.raises(
        StoreError,
        match=f"schema version {newer}, but this version supports only up to {newer - 1}",
    ):
        async with open_sqlite(path):
            pass
    edit(path, f"PRAGMA user_version = {newer - 1}")
    async with open_sqlite(path) as store:
        assert await completed_runs(store) == ["a"]


def test_a_file_system_without_write_ahead_logging_is_refused() -> None:
    memory = closing(sqlite3.connect(":memory:"))
    with memory as connection, pytest.raises(StoreError, match="write-ahead logging"):
        connections._prepare(connection)


def test_migrations_are_applied_once_and_in_order() -> None:
    first, second = (
        ("CREATE TABLE a (x)",),
        ("ALTER TABLE a ADD COLUMN y", "INSERT INTO a VALUES (1, 2)"),
    )
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate(connection, (first,))
        for _ in range(2):
            migrate(connection, (first, second))
        assert schema_version(connection) == 2
        assert connection.execute("SELECT x, y FROM a").fetchall() == [(1, 2)]


def test_a_failing_migration_is_rolled_back() -> None:
    good, bad = ("CREATE TABLE a (x)",), ("CREATE TABLE b (x)", "CREATE TABLE a (x)")
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        with pytest.raises(sqlite3.OperationalError, match="already exists"):
            migrate(connection, (good, bad))
        assert not connection.in_transaction
        assert schema_version(connection) == 1
        assert connection.execute("SELECT name FROM sqlite_schema").fetchall() == [("a",)]


async def test_a_schema_that_does_not_fit_is_one_clear_line(path: Path) -> None:
    path.parent.mkdir()
    edit(path, "CREATE TABLE sessions (something_else)")
    with pytest.raises(StoreError, match=r"cannot open .*table sessions already exists"):
        async with open_sqlite(path):
            pass
