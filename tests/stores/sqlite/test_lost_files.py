"""Files that are deleted, replaced or damaged while or before they are used."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from trio.testing import MockClock

from hermes_trio.core.records import NoRun, RunQuery
from hermes_trio.core.sessions import SessionQuery
from hermes_trio.stores.base import StoreError
from hermes_trio.stores.sqlite import SqliteOptions, SqliteStore, open_sqlite
from hermes_trio.stores.sqlite.connections import SqliteDatabase
from hermes_trio.stores.sqlite.store import IDLE_SECONDS
from tests.stores.helpers import contents, overwrite, writer_connection
from tests.stores.samples import ended
from tests.support.disks import fill_disk, small_disk

IMPATIENT = SqliteOptions(busy_seconds=0.05)


def delete(path: Path) -> None:
    """Delete the file and its write-ahead log."""
    for suffix in ("", "-wal", "-shm"):
        os.unlink(f"{path}{suffix}")


def replace(path: Path) -> None:
    """Put a copy in the place of the file, as a restored backup does."""
    shutil.copyfile(path, f"{path}.copy")
    os.replace(f"{path}.copy", path)


@pytest.mark.parametrize(("change", "what"), [(delete, "deleted"), (replace, "replaced")])
async def test_a_file_that_is_gone_is_noticed(path: Path, change: object, what: str) -> None:
    assert callable(change)
    async with open_sqlite(path) as store:
        await store.end_run(ended("a"))
        await store.heartbeat()
        change(path)
        with pytest.raises(StoreError, match=f"was {what}"):
            await store.heartbeat()
        with pytest.raises(StoreError, match=f"was {what}"):
            await store.end_run(ended("b"))
        with pytest.raises(StoreError, match=f"was {what}"):
            await store.check()
        with pytest.raises(StoreError, match="already open"):
            async with open_sqlite(path):
                pass


async def test_a_file_that_returns_is_used_again(path: Path) -> None:
    async with open_sqlite(path) as store:
        os.rename(path, f"{path}.away")
        with pytest.raises(StoreError, match="deleted or moved"):
            await store.end_run(ended("a"))
        os.rename(f"{path}.away", path)
        await store.heartbeat()
        await store.end_run(ended("a"))


async def test_a_failed_write_is_probed_until_it_works(path: Path) -> None:
    async with open_sqlite(path, IMPATIENT) as store:
        await store.end_run(ended("a"))
        writer_connection(store).execute("PRAGMA query_only = ON")
        await store.heartbeat()  # nobody has tried to write
        with pytest.raises(StoreError):
            await store.end_run(ended("b"))
        for _ in range(2):
            with pytest.raises(StoreError, match="cannot be written to"):
                await store.heartbeat()
        writer_connection(store).execute("PRAGMA query_only = OFF")
        await store.heartbeat()
        commits = store.commits
        await store.heartbeat()
        assert store.commits == commits


@pytest.mark.parametrize("content", [b"", b"\0" * 8192], ids=["truncated", "overwritten"])
async def test_a_file_that_is_overwritten_in_place(path: Path, content: bytes) -> None:
    async with open_sqlite(path) as store:
        await store.end_run(ended("a"))
        before = contents(path)
        overwrite(path, content)
        for attempt in (store.heartbeat, store.check):
            with pytest.raises(StoreError, match="was overwritten or truncated"):
                await attempt()
        with pytest.raises(StoreError, match="was overwritten or truncated"):
            await store.end_run(ended("b"))
        overwrite(path, before)
        await store.heartbeat()
        await store.end_run(ended("b"))


async def test_a_disk_without_room_is_noticed_before_anybody_writes(tmp_path: Path) -> None:
    try:
        with small_disk(tmp_path / "disk", "4m") as disk:
            async with open_sqlite(disk / "hermes.db") as store:
                await store.heartbeat()
                ballast = fill_disk(disk)
                with pytest.raises(StoreError, match=r"the disk of .* is full"):
                    await store.heartbeat()
                ballast.unlink()
                await store.heartbeat()
                await store.end_run(ended("a"))
    except PermissionError:
        pytest.skip("nobody may mount here")


def test_a_disk_that_was_made_read_only(tmp_path: Path) -> None:
    try:
        with small_disk(tmp_path / "disk", "4m") as disk, ExitStack() as undo:
            path = disk / "hermes.db"
            path.touch()
            subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
            descriptor = os.open(path, os.O_RDONLY)
            undo.callback(os.close, descriptor)
            connection = undo.enter_context(closing(sqlite3.connect(":memory:")))
            database = SqliteDatabase(path, descriptor, connection, [], undo)
            with pytest.raises(StoreError, match="is read-only"):
                database.check_disk()
    except PermissionError:
        pytest.skip("nobody may mount here")


async def test_a_store_without_work_tries_to_write(path: Path, mock_clock: MockClock) -> None:
    async with open_sqlite(path, IMPATIENT) as store:
        await store.heartbeat()
        writer_connection(store).execute("PRAGMA query_only = ON")
        await store.heartbeat()  # nobody has tried to write
        mock_clock.jump(IDLE_SECONDS)
        with pytest.raises(StoreError, match="cannot be written to"):
            await store.heartbeat()
        writer_connection(store).execute("PRAGMA query_only = OFF")
        await store.heartbeat()


async def test_a_store_that_works_is_not_probed(path: Path, mock_clock: MockClock) -> None:
    async with open_sqlite(path) as store:
        for number in range(3):
            await store.end_run(ended(f"{number}"))
            commits = store.commits
            await store.heartbeat()
            assert store.commits == commits
            mock_clock.jump(IDLE_SECONDS / 2)


# -- damage --


async def fill(store: SqliteStore) -> None:
    """Store runs whose records take pages of their own."""
    for number in range(6):
        noise = [(number + 1) * each * 7919 for each in range(5000)]
        await store.end_run(
            ended(f"{number}", float(number), session_id=f"s{number}", request={"data": noise})
        )


def damage(path: Path, page: int, page_size: int) -> None:
    """Overwrite one page."""
    whole = contents(path)
    start = (page - 1) * page_size
    overwrite(path, whole[:start] + b"\xff" * page_size + whole[start + page_size :])


async def find_page_of(path: Path, run_id: str) -> tuple[int, int]:
    """Return a page that only the record of one run uses, and the size of a page."""
    async with open_sqlite(path) as store:
        connection = writer_connection(store)
        [page_size] = connection.execute("PRAGMA page_size").fetchone()
        [header] = connection.execute(
            "SELECT header FROM runs WHERE run_id = ?", (run_id,)
        ).fetchone()
    at = contents(path).index(header[3000:3100])
    return at // page_size + 1, page_size


async def test_a_damaged_page_takes_one_record_from_the_lists(path: Path) -> None:
    async with open_sqlite(path) as store:
        await fill(store)
    damage(path, *await find_page_of(path, "3"))
    async with open_sqlite(path) as store:
        page = await store.list_runs("ann", RunQuery(limit=4))
        assert [run.header.run_id for run in page.runs] == ["5", "4", "2", "1"]
        assert page.has_more
        with pytest.raises(StoreError, match="damaged"):
            await store.find_run("ann", "3")
        assert await store.find_run("ann", "2") != NoRun()
        await store.end_run(ended("more", 9.0))


async def test_a_damaged_session_is_left_out_of_the_list(path: Path) -> None:
    async with open_sqlite(path) as store:
        await store.end_run(ended("a"))
        await store.end_run(ended("b", session_id="t"))
        writer_connection(store).execute(
            "UPDATE sessions SET system_prompt = '{' WHERE session_id = 's'"
        )
        page = await store.list_sessions("ann", SessionQuery())
        assert [session.session_id for session in page.sessions] == ["t"]


async def test_damage_is_found_at_the_start_if_asked_for(path: Path) -> None:
    checked = SqliteOptions(is_checked=True)
    async with open_sqlite(path, checked) as store:
        await fill(store)
        connection = writer_connection(store)
        [page_size] = connection.execute("PRAGMA page_size").fetchone()
        query = "SELECT rootpage FROM sqlite_schema WHERE name = 'runs_by_parent'"
        [root] = connection.execute(query).fetchone()
    damage(path, root, page_size)
    with pytest.raises(StoreError, match=r"the database file is damaged.*restore a backup"):
        async with open_sqlite(path, checked):
            pass
    async with open_sqlite(path) as store:
        assert await store.find_run("ann", "1") != NoRun()
