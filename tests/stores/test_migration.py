"""Moving records from a real SQLite file to a real PostgreSQL database."""

from __future__ import annotations

import itertools
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import attrs
import pytest
import trio

from hermes_trio.core.errors import ConfigurationError
from hermes_trio.core.records import EndedRun, PurgeResult
from hermes_trio.stores.base import StoreError
from hermes_trio.stores.migration import (
    NOT_COPIED,
    BatchLimits,
    Comparison,
    MigrationProgress,
    migrate,
    open_migration,
)
from hermes_trio.stores.sqlite import open_sqlite
from tests.stores.everything import CLAIM, DAY, fill, read_everything
from tests.stores.helpers import contents
from tests.stores.migration_child import FailingSource, Interrupted
from tests.stores.samples import KEEP_ALL, ended
from tests.support.postgres import EMPTY_ALL_TABLES, PostgresServer

pytest.importorskip("psycopg")

from hermes_trio.stores.postgres import open_postgres

ROOT = Path(__file__).parents[2]
SMALL = BatchLimits(rows=7, bytes=100_000)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with some of everything; not to be changed."""
    path = tmp_path_factory.mktemp("filled") / "store.db"

    async def make() -> None:
        async with open_sqlite(path) as store:
            await fill(store)

    trio.run(make)
    return path


@pytest.fixture
def source(filled: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copy(filled, tmp_path / "hermes.db"))


@pytest.fixture(scope="module")
def own_database(postgres_server: PostgresServer) -> str:
    """A database of these tests."""
    return postgres_server.create_database()


@pytest.fixture
def target(postgres_server: PostgresServer, own_database: str) -> str:
    """The URL of an empty database."""
    postgres_server.execute(EMPTY_ALL_TABLES, own_database)
    return own_database


def ignore(progress: MigrationProgress) -> None:
    """Report to nobody."""


def move(
    source: Path,
    target: str,
    report: Callable[[MigrationProgress], None] = ignore,
    limits: BatchLimits = SMALL,
) -> tuple[Comparison, ...]:
    """Move the records of a file to a database."""
    with open_migration(f"sqlite:///{source}", target) as (opened, to):
        return migrate(opened, to, report, limits)


async def check_equal(source: Path, target: str) -> None:
    """Check that two stores answer alike, and go on doing so."""
    async with open_sqlite(source) as first, open_postgres(target) as second:
        assert await read_everything(second) == await read_everything(first)
        for store in (first, second):
            assert await store.claim_key(attrs.evolve(CLAIM, run_id="other")) == CLAIM
            await store.end_run(ended("0-third", 5.0, conversation="tied"))
            latest = await store.find_latest_run("ann", "tied")
            assert isinstance(latest, EndedRun)
            assert latest.header.run_id == "0-third"
            # What is used least goes first: every time and size has to be the same.
            retention = attrs.evolve(KEEP_ALL, max_runs=5, max_bytes=20_000)
            assert await store.purge(retention, 1001.0 * DAY) != PurgeResult()
        assert await read_everything(second) == await read_everything(first)


async def test_everything_is_moved(
    postgres_server: PostgresServer, source: Path, target: str
) -> None:
    before = contents(source)
    compared = move(source, target)
    assert all(each.is_equal for each in compared)
    assert {each.table for each in compared} == {
        "approvals", "claims", "conversation_items", "conversations", "item_index", "jobs", "log", "messages",
        "runs", "sessions",
    }  # fmt: skip
    assert {each.principal for each in compared} == {"ann", "bob", "odd \0 \1 \U0001f600"}
    assert contents(source) == before
    days = postgres_server.execute(
        "SELECT tableoid::regclass::text, count(*) FROM log GROUP BY 1 ORDER BY 1", target
    )
    assert days == [("log_0", 8), ("log_1000", 1), ("log_other", 1)]
    await check_equal(source, target)


async def test_one_transaction_and_defaults_give_the_same(source: Path, target: str) -> None:
    assert all(each.is_equal for each in move(source, target, limits=BatchLimits()))
    await check_equal(source, target)


def test_every_table_is_moved_or_known_to_belong_to_a_server(
    postgres_server: PostgresServer, source: Path, target: str
) -> None:
    moved = {each.table for each in move(source, target)}
    with closing(sqlite3.connect(source)) as connection:
        tables = connection.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table'"
        ).fetchall()
    assert {name for (name,) in tables} <= moved | NOT_COPIED


def test_a_store_without_records(tmp_path: Path, target: str) -> None:
    async def make() -> None:
        async with open_sqlite(tmp_path / "new.db"):
            pass

    trio.run(make)
    assert move(tmp_path / "new.db", target) == ()
    with pytest.raises(StoreError, match="have been moved to it before"):
        move(tmp_path / "new.db", target)


# -- interruptions --


@attrs.define
class Interrupter:
    """Raises at the n-th report."""

    left: int
    copied: list[int] = attrs.field(factory=list)

    def __call__(self, progress: MigrationProgress) -> None:
        if progress.phase == "copying":
            self.copied.append(progress.rows)
        if not self.left:
            raise Interrupted
        self.left -= 1


async def test_resume_after_an_interruption_behind_every_batch(
    postgres_server: PostgresServer, source: Path, target: str
) -> None:
    for number in itertools.count():
        postgres_server.execute(EMPTY_ALL_TABLES, target)
        first, second = Interrupter(number), Interrupter(-1)
        try:
            move(source, target, first)
            break
        except Interrupted:
            assert all(each.is_equal for each in move(source, target, second))
            assert second.copied == sorted(second.copied)
            assert all(rows >= first.copied[-1] for rows in second.copied)
    assert number > 20
    await check_equal(source, target)


async def test_resume_after_an_interruption_before_every_batch(source: Path, target: str) -> None:
    """Each attempt gets one batch further, so that no other is ever complete."""
    seen: list[int] = []
    while True:
        interrupter = Interrupter(1)
        try:
            compared = move(source, target, interrupter)
            break
        except Interrupted:
            seen += interrupter.copied[-1:]
    assert all(each.is_equal for each in compared)
    assert seen == sorted(seen)
    await check_equal(source, target)


async def test_resume_after_an_interruption_within_a_transaction(source: Path, target: str) -> None:
    """Also while the source is read and the target verified, and without ever starting anew."""
    for rows in itertools.count(0, 4):
        try:
            with open_migration(f"sqlite:///{source}", target) as (opened, to):
                compared = migrate(FailingSource(opened, rows), to, ignore, SMALL)
            break
        except Interrupted:
            assert rows < 1000
    assert rows > 100
    assert all(each.is_equal for each in compared)
    await check_equal(source, target)


@pytest.mark.slow
@pytest.mark.parametrize("copied", [1, 30, 55])
async def test_resume_after_kill(source: Path, target: str, copied: int) -> None:
    command = [
        sys.executable,
        "-m",
        "tests.stores.migration_child",
        str(source),
        target,
        str(copied),
    ]
    child = await trio.lowlevel.open_process(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    )
    assert child.stdout is not None
    assert child.stdin is not None
    async with child.stdout, child.stdin:
        assert await child.stdout.receive_some() == b"in a transaction\n"
        child.kill()
    await child.wait()
    interrupter = Interrupter(-1)
    assert all(each.is_equal for each in move(source, target, interrupter))
    assert interrupter.copied[0] > copied
    await check_equal(source, target)


def test_two_at_once_do_not_disturb_each_other(source: Path, tmp_path: Path, target: str) -> None:
    """The second works on a copy of the file, else it would not get that far."""
    other = Path(shutil.copy(source, tmp_path / "copy.db"))

    def overtake(progress: MigrationProgress) -> None:
        if progress.phase == "copying":
            assert all(each.is_equal for each in move(other, target))

    with pytest.raises(StoreError, match="another process is moving records"):
        move(source, target, overtake)
    with pytest.raises(StoreError, match="have been moved to it before"):
        move(source, target)


async def test_an_unfinished_target_is_not_served(source: Path, target: str) -> None:
    with pytest.raises(Interrupted):
        move(source, target, Interrupter(3))
    with pytest.raises(StoreError, match="run hermes-trio store migrate again"):
        async with open_postgres(target):
            pass
    move(source, target)
    async with open_postgres(target) as store:
        await store.check()


async def test_the_source_may_not_change_in_between(source: Path, target: str) -> None:
    with pytest.raises(Interrupted):
        move(source, target, Interrupter(3))
    async with open_sqlite(source) as store:
        await store.end_run(ended("more"))
    with pytest.raises(StoreError, match="the source has changed since"):
        move(source, target)


# -- verification --


@pytest.mark.parametrize(
    ("statement", "different"),
    [
        (
            "UPDATE messages SET body = '{}' WHERE principal = 'bob' AND n = 1",
            {("messages", "bob")},
        ),
        ("DELETE FROM claims WHERE run_id = 'rich'", {("claims", "ann")}),
        ("UPDATE runs SET items = items || 'x' WHERE run_id = 'rich'", {("runs", "ann")}),
        (
            "UPDATE runs SET principal = 'eve' WHERE run_id = 'z-first'",
            {("runs", "ann"), ("runs", "eve")},
        ),
        ("INSERT INTO item_index VALUES ('bob', 'x', 'y')", {("item_index", "bob")}),
        ("UPDATE runs SET rowid = DEFAULT WHERE run_id = 'a-second'", {("runs", "ann")}),
    ],
)
async def test_a_difference_is_found(
    postgres_server: PostgresServer,
    source: Path,
    target: str,
    statement: str,
    different: set[tuple[str, str]],
) -> None:
    def tamper(progress: MigrationProgress) -> None:
        if progress.rows == progress.total:
            postgres_server.execute(statement, target)

    compared = move(source, target, tamper)
    assert {(each.table, each.principal) for each in compared if not each.is_equal} == different
    with pytest.raises(StoreError, match="run hermes-trio store migrate again"):
        async with open_postgres(target):
            pass


# -- refusals --


@pytest.mark.parametrize(
    ("source_url", "target_url", "message"),
    [
        ("memory:", "postgresql:///x", "^SOURCE_URL: only an SQLite database can be moved"),
        ("", "postgresql:///x", "^SOURCE_URL: only an SQLite database can be moved"),
        ("postgresql:///x", "sqlite:///y", "^SOURCE_URL: only an SQLite database can be moved"),
        ("hermes.db", "postgresql:///x", "^SOURCE_URL: this is not a known kind of store"),
        ("sqlite:///x.db", "sqlite:///y", "^TARGET_URL: records can only be moved to PostgreSQL"),
        ("sqlite:///x.db", "mysql://x", "^TARGET_URL: mysql: is not a known kind of store"),
    ],
)
def test_wrong_urls(source_url: str, target_url: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message), open_migration(source_url, target_url):
        pass


def test_a_missing_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hermes_trio.stores.postgres.migration_target", None)
    with (
        pytest.raises(ConfigurationError, match=r"pip install '\.\[postgres\]'"),
        open_migration("sqlite:///x.db", "postgresql:///x"),
    ):
        pass


def change(path: Path, statement: str) -> None:
    """Execute a statement in a file."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(statement)


def test_a_missing_source(tmp_path: Path, target: str) -> None:
    with pytest.raises(StoreError, match=r"there is no database .*none\.db"):
        move(tmp_path / "none.db", target)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("PRAGMA user_version = 0", "is not a database of hermes-trio"),
        ("PRAGMA user_version = 3", "start and stop its server once, which upgrades the file"),
        ("PRAGMA user_version = 999", "supports only up to"),
        ("ALTER TABLE sessions ADD COLUMN extra TEXT", "the target has no column sessions.extra"),
        ("CREATE TABLE extras (principal TEXT PRIMARY KEY)", "the target has no table extras"),
        (
            "UPDATE messages SET body = CAST(x'ff' AS TEXT) WHERE principal = 'bob' AND n = 0",
            "a row of messages cannot be copied: .*can't decode byte 0xff.*bob",
        ),
        (
            "UPDATE runs SET size = 'x' WHERE run_id = 'rich'",
            "size is of type bytes, not integer.*rich",
        ),
    ],
)
def test_a_source_that_cannot_be_moved(
    source: Path, target: str, statement: str, message: str
) -> None:
    change(source, statement)
    with pytest.raises(StoreError, match=message):
        move(source, target)


def test_a_file_that_is_no_database(tmp_path: Path, target: str) -> None:
    (tmp_path / "text").write_text("not a database, but long enough to look like one" * 50)
    with pytest.raises(StoreError, match="the file is not an SQLite database"):
        move(tmp_path / "text", target)


async def test_a_source_in_use(source: Path, target: str) -> None:
    async with open_sqlite(source):
        with pytest.raises(StoreError, match=r"hermes\.db is in use: stop the server first"):
            move(source, target)


async def test_a_source_whose_server_was_killed(filled: Path, source: Path, target: str) -> None:
    """What is only in the write-ahead log is moved, too, and nothing is written to the file."""
    async with open_sqlite(source) as store:
        await store.end_run(ended("logged"))
        killed = source.with_name("killed.db")
        for end in ("", "-wal"):
            shutil.copy(f"{source}{end}", f"{killed}{end}")
    before = contents(killed)
    compared = move(killed, target)
    assert all(each.is_equal for each in compared)
    assert contents(killed) == before
    assert await read_run(target, "logged") == await read_run(source, "logged")


async def read_run(place: Path | str, run_id: str) -> object:
    """Read one run of a store."""
    opened = open_sqlite(place) if isinstance(place, Path) else open_postgres(place)
    async with opened as store:
        return await store.find_run("ann", run_id)


async def test_a_target_with_records(source: Path, target: str) -> None:
    async with open_postgres(target) as store:
        await store.end_run(ended("here"))
        await store.join("node", "here")
        with pytest.raises(StoreError, match="the target is in use"):
            move(source, target)
        await store.leave("node")
    with pytest.raises(StoreError, match="the target is not empty: it has"):
        move(source, target)


def test_another_source(filled: Path, tmp_path: Path, source: Path, target: str) -> None:
    with pytest.raises(Interrupted):
        move(source, target, Interrupter(3))
    change(source, "DELETE FROM claims")
    with pytest.raises(StoreError, match="the beginning of another migration"):
        move(source, target)
    copy = Path(shutil.copy(filled, tmp_path / "copy.db"))
    assert all(each.is_equal for each in move(copy, target))


def test_a_target_that_cannot_be_reached(source: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="the database server cannot be reached"):
        move(source, f"postgresql:///x?host={tmp_path}")


def test_a_target_in_another_encoding(postgres_server: PostgresServer, source: Path) -> None:
    url = postgres_server.create_database("TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'")
    with pytest.raises(StoreError, match="the target is a database in LATIN1"):
        move(source, url)


def test_the_connection_is_lost(postgres_server: PostgresServer, source: Path, target: str) -> None:
    def cut(progress: MigrationProgress) -> None:
        postgres_server.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE pid <> pg_backend_pid() AND application_name = 'hermes-trio'"
        )

    with pytest.raises(
        StoreError, match=r"the connection to the database server was lost|shutting down"
    ):
        move(source, target, cut)
    assert all(each.is_equal for each in move(source, target))


async def test_through_pgbouncer(source: Path, pgbouncer: str, target: str) -> None:
    assert all(each.is_equal for each in move(source, f"{target.partition('?')[0]}?{pgbouncer}"))
    await check_equal(source, target)
