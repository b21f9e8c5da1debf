"""Connections to a database file.

Create and lock it, open one writer and several readers, inspect it, and translate its errors for
the reader of the server log.

Everything here blocks; call it in a thread. The files are readable by their owner only.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import TypeVar

import structlog
from attrs import frozen

from hermes_trio.stores.base import StoreError
from hermes_trio.stores.sql.database import (
    PROBE_BYTES,
    Job,
    JobResult,
    SqlConnection,
    run_transaction,
)
from hermes_trio.stores.sqlite.schema import migrate, schema_version

T = TypeVar("T")

SQLITE_VERSION = sqlite3.sqlite_version_info
_OWNER_FILE = 0o600
_OWNER_DIRECTORY = 0o700
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
_INSPECT_BUSY_SECONDS = 1.0

MAX_CONVERTED_BYTES = 256_000_000
"""Size up to which a file from before incremental vacuum is rewritten at the start, which takes seconds."""

MAX_RETURNED_PAGES = 1_000
"""Free pages that one transaction returns, so that it never delays other writes for long."""

MIN_FREE_BYTES = 2 * PROBE_BYTES
"""Room that a disk must have for the store to count as working."""

KEPT_FREE_PAGES = 100
"""Free pages that stay in the file, for the next writes."""

_ADVICE = "stop the server before you change its files"
_MAGIC = b"SQLite format 3\0"  # the first bytes of every database
_INCREMENTAL = 2  # what PRAGMA auto_vacuum reports
_MAX_LOG_BYTES = 16_000_000  # to which the write-ahead log shrinks after a checkpoint
_PRIMARY = 0xFF  # the low byte of an extended result code is the general kind of failure

_REASONS = {
    sqlite3.SQLITE_FULL: "the disk is full, or the database has reached its size limit",
    sqlite3.SQLITE_READONLY: "the database cannot be written to",
    sqlite3.SQLITE_BUSY: "the database is locked by another program",
    sqlite3.SQLITE_LOCKED: "the database is locked by another program",
    sqlite3.SQLITE_IOERR: "the disk reports an input/output error",
    sqlite3.SQLITE_CORRUPT: "the database file is damaged",
    sqlite3.SQLITE_NOTADB: "the file is not an SQLite database",
    sqlite3.SQLITE_CANTOPEN: "the database file cannot be opened",
}


CONVERT = "stop the server and run: sqlite3 FILE 'PRAGMA auto_vacuum = 2; VACUUM'"

log = structlog.get_logger(__name__)

# -- errors --


def primary_code(error: BaseException) -> int:
    """Return the primary result code of an SQLite error, or 0 for any other exception."""
    return int(getattr(error, "sqlite_errorcode", 0)) & _PRIMARY


def to_store_error(error: Exception, where: str = "sqlite store") -> StoreError:
    """Translate an error for a caller; it becomes the cause of the result."""
    if isinstance(error, StoreError):
        return error
    reason = _REASONS.get(primary_code(error), "the operation failed")
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    translated = StoreError(f"{where}: {reason} ({name}: {error})")
    translated.__cause__ = error
    return translated


# -- files --


def create_directory(path: Path) -> None:
    """Create a directory and its missing parents, accessible to the owner only."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(_OWNER_DIRECTORY, exist_ok=True)
        _sync(folder.parent)


def create_file(path: Path) -> None:
    """Create a file, or restrict an existing one to its owner, before SQLite can create it readable to others."""
    descriptor = os.open(path, _FLAGS, _OWNER_FILE)
    try:
        os.fchmod(descriptor, _OWNER_FILE)
    finally:
        os.close(descriptor)
    _sync(path.parent)


def acquire_lock(path: Path) -> int:
    """Lock a database through the lock file beside it.

    Closing the returned descriptor releases the lock.

    The lock file is never removed: otherwise two processes could each hold a lock on a different
    file.

    Raises:
        StoreError: The lock is already held, by another process or by this one.
    """
    with ExitStack() as undo:
        descriptor = os.open(path.with_name(f"{path.name}.lock"), _FLAGS, _OWNER_FILE)
        undo.callback(os.close, descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreError(
                f"{path} is already open: only one process at a time can use an SQLite store; "
                "stop the other one, or choose another --data-dir"
            ) from None
        undo.pop_all()
        return descriptor


def _sync(directory: Path) -> None:
    # A new file survives a power failure only once its directory entry does.
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# -- opening --


def _fill_space(connection: SqlConnection) -> None:
    connection.execute("CREATE TABLE IF NOT EXISTS probe_space (body BLOB)")
    connection.execute("INSERT INTO probe_space (body) VALUES (zeroblob(?))", (PROBE_BYTES,))


def _free_space(connection: SqlConnection) -> None:
    connection.execute("DROP TABLE IF EXISTS probe_space")


class SqliteDatabase:
    """One connection that writes, several that read, and the lock that keeps other processes out.

    Versions of SQLite before 3.51.3 can damage a file when two connections write or checkpoint at
    the same instant. Here one connection does both.
    """

    # SQLite does not write pages that the same transaction frees.
    space_probe: Sequence[Job] = (_fill_space, _free_space)

    def __init__(
        self,
        path: Path,
        descriptor: int,
        writer: sqlite3.Connection,
        readers: Sequence[sqlite3.Connection],
        undo: ExitStack,
    ) -> None:
        self._path = path
        self._descriptor = descriptor
        self._identity = _identify(path)
        self._writer = writer
        self._idle = deque(readers)
        self._undo = undo

    def check_file(self) -> None:
        """Check that the file is still the one that was opened. Blocks for a system call.

        SQLite would keep writing to a file without a name, which is lost when it is closed.

        Raises:
            StoreError: It was deleted, replaced or overwritten, or cannot be read.
        """
        found = _identify(self._path)
        if found != self._identity:
            what = "replaced by another file" if found else "deleted or moved"
            raise StoreError(f"{self._path} was {what}: {_ADVICE}")
        # SQLite itself would notice when it reads a page that it does not have in its cache.
        try:
            magic = os.pread(self._descriptor, len(_MAGIC), 0)
        except OSError as error:
            raise StoreError(f"{self._path} cannot be read: {error.strerror}") from error
        if magic != _MAGIC:
            raise StoreError(f"{self._path} was overwritten or truncated: {_ADVICE}")

    def check_disk(self) -> None:
        """Check that the file can grow. Blocks for a system call.

        Raises:
            StoreError: The disk is full, was made read-only, or is gone.
        """
        try:
            disk = os.fstatvfs(self._descriptor)
        except OSError as error:
            raise StoreError(f"{self._path} cannot be read: {error.strerror}") from error
        if disk.f_flag & os.ST_RDONLY:
            raise StoreError(f"the file system of {self._path} is read-only")
        blocks = disk.f_bavail if os.geteuid() else disk.f_bfree
        # Some network file systems do not say how large they are.
        if disk.f_blocks and blocks * disk.f_frsize < MIN_FREE_BYTES:
            raise StoreError(f"the disk of {self._path} is full")

    def write(self, jobs: Sequence[Job]) -> list[JobResult]:
        """Run jobs in one transaction, unless the file is gone."""
        try:
            self.check_file()
            results = run_batch(self._writer, jobs)
            self.check_file()
        except StoreError as error:
            return [JobResult(error=error)] * len(jobs)
        return results

    def read(self, job: Callable[[SqlConnection], T]) -> T:
        """Run a job on an idle reader: there are as many as threads that read.

        Raises:
            StoreError: The database could not be read.
        """
        connection = self._idle.pop()
        try:
            connection.execute("BEGIN")
            try:
                return job(connection)
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise to_store_error(error) from error
        finally:
            self._idle.append(connection)

    def close(self) -> None:
        """Close the readers, checkpoint the write-ahead log, close the writer and release the lock."""
        self._undo.close()


def run_batch(connection: sqlite3.Connection, jobs: Sequence[Job]) -> list[JobResult]:
    """Run jobs in one transaction and return the result of each. Never raises an ``Exception``."""
    try:
        return run_transaction(connection, jobs, to_store_error)
    except Exception as error:  # noqa: BLE001  # every error belongs to the callers and must not end the writer
        # A failing rollback is the same fault again; the next BEGIN shows whether it persists.
        with suppress(sqlite3.Error):
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        if primary_code(error) == sqlite3.SQLITE_FULL and len(jobs) > 1:
            # SQLite rolled back the whole transaction. One large job must not fail those that would
            # still fit.
            return [result for job in jobs for result in run_batch(connection, [job])]
        return [JobResult(error=to_store_error(error))] * len(jobs)


def _identify(path: Path) -> tuple[int, int] | None:
    """Return what tells a file from others of the same name, or None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def open_database(
    path: Path, readers: int, busy_seconds: float, is_checked: bool = False
) -> SqliteDatabase:
    """Lock a database file, create or migrate it, and connect to it.

    Args:
        path: the file.
        readers: the number of connections that read.
        busy_seconds: how long to wait for another program's lock.
        is_checked: whether to look for damage first, which reads the whole file.

    Raises:
        StoreError: The file is in use, damaged, not writable, or was written by a newer version.
    """
    try:
        return _open(path.resolve(), readers, busy_seconds, is_checked)
    except OSError as error:
        raise StoreError(f"cannot open {path}: {error.strerror}") from error
    except sqlite3.Error as error:
        raise to_store_error(error, f"cannot open {path}") from error


def _open(path: Path, readers: int, busy_seconds: float, is_checked: bool) -> SqliteDatabase:
    with ExitStack() as undo:
        create_directory(path.parent)
        undo.callback(os.close, acquire_lock(path))
        create_file(path)
        # Closed after the connections: to close any descriptor of the file releases the locks that
        # SQLite has on it, as POSIX has it.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        undo.callback(os.close, descriptor)
        writer = _connect(path, "rw", busy_seconds, undo)
        if is_checked:
            [found] = writer.execute("PRAGMA quick_check(1)").fetchone()
            if found != "ok":
                raise StoreError(
                    f"the database file is damaged ({' '.join(found.split())}): restore a backup,"
                    " or turn check_database off to start with what can be read"
                )
        _prepare(writer)
        undo.callback(_checkpoint, writer)
        idle = tuple(_connect(path, "ro", busy_seconds, undo) for _ in range(readers))
        for reader in idle:
            # The first read opens the write-ahead log and loads the schema; no request should wait
            # for that.
            reader.execute("SELECT count(*) FROM sqlite_schema").fetchall()
        return SqliteDatabase(path, descriptor, writer, idle, undo.pop_all())


def _connect(path: Path, mode: str, busy_seconds: float, undo: ExitStack) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.as_uri()}?mode={mode}",
        uri=True,
        timeout=busy_seconds,
        isolation_level=None,  # transactions are explicit
        check_same_thread=False,  # used by any worker thread, but never by two at once
    )
    undo.callback(connection.close)
    return connection


def _prepare(writer: sqlite3.Connection) -> None:
    # Takes effect in a new file, and in an existing one when it is rewritten.
    writer.execute("PRAGMA auto_vacuum = INCREMENTAL")
    mode = writer.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        raise StoreError(
            f"the file system of the database does not support write-ahead logging (it offers {mode!r})"
        )
    writer.execute("PRAGMA synchronous = FULL")
    writer.execute("PRAGMA foreign_keys = ON")
    writer.execute(f"PRAGMA journal_size_limit = {_MAX_LOG_BYTES}")
    migrate(writer)
    if not _returns_pages(writer):
        _convert(writer)


def _returns_pages(connection: sqlite3.Connection) -> bool:
    return int(connection.execute("PRAGMA auto_vacuum").fetchone()[0]) == _INCREMENTAL


def _file_size(connection: sqlite3.Connection) -> int:
    [pages] = connection.execute("PRAGMA page_count").fetchone()
    [page_size] = connection.execute("PRAGMA page_size").fetchone()
    return int(pages * page_size)


def _convert(writer: sqlite3.Connection) -> None:
    """Rewrite a file that was created without incremental vacuum, so that it can shrink from now on."""
    size = _file_size(writer)
    if size > MAX_CONVERTED_BYTES:
        log.warning("the database keeps the space of deleted records", bytes=size, advice=CONVERT)
        return
    try:
        writer.execute("VACUUM")
    except sqlite3.Error as error:
        # It works as it is; the next start tries again.
        log.warning("the database could not be rewritten", error=str(error))


def return_free_pages(connection: SqlConnection) -> int:
    """Return some of the free pages to the file system, and say how many.

    A file from before incremental vacuum keeps them.
    """
    [mode] = connection.execute("PRAGMA auto_vacuum").fetchone()
    [free] = connection.execute("PRAGMA freelist_count").fetchone()
    count = min(int(free) - KEPT_FREE_PAGES, MAX_RETURNED_PAGES)
    if mode != _INCREMENTAL or count <= 0:
        return 0
    # Each step returns one page.
    connection.execute(f"PRAGMA incremental_vacuum({count})").fetchall()
    return count


def _checkpoint(writer: sqlite3.Connection) -> None:
    # If this fails, nothing is lost: the log stays beside the file and is read when it is next
    # opened.
    with suppress(sqlite3.Error):
        writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


# -- inspection --


@frozen
class DatabaseInfo:
    """What can be seen of a database without changing it."""

    schema_version: int
    is_in_use: bool
    can_shrink: bool = True  # now, or after the next start


def inspect_database(path: Path) -> DatabaseInfo:
    """Inspect an existing database file without changing it, even while a server uses it.

    Raises:
        StoreError: The file cannot be opened.
    """
    try:
        real_path = path.resolve()
        with ExitStack() as undo:
            try:
                undo.callback(os.close, acquire_lock(real_path))
                is_in_use = False
            except StoreError:
                is_in_use = True
            with closing(connect_to_read(real_path, _INSPECT_BUSY_SECONDS)) as connection:
                connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
                is_small = _file_size(connection) <= MAX_CONVERTED_BYTES
                can_shrink = is_small or _returns_pages(connection)
                return DatabaseInfo(schema_version(connection), is_in_use, can_shrink)
    except OSError as error:
        raise StoreError(f"cannot open {path}: {error.strerror}") from error
    except sqlite3.Error as error:
        raise to_store_error(error, f"cannot open {path}") from error


def connect_to_read(path: Path, busy_seconds: float) -> sqlite3.Connection:
    """Connect to a file without creating others beside it. The caller closes the connection."""
    # Without a write-ahead log beside the file even a reader would create one, readable by everyone.
    has_log = any(path.with_name(f"{path.name}{end}").exists() for end in ("-wal", "-journal"))
    options = "mode=ro" if has_log else "mode=ro&immutable=1"
    return sqlite3.connect(
        f"{path.as_uri()}?{options}", uri=True, timeout=busy_seconds, isolation_level=None
    )
