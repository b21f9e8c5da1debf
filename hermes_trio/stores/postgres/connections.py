"""Connections to a PostgreSQL database: open them, run jobs on them, and replace those that were lost.

Everything here blocks; call it in a thread. The number of connections is that of the threads, so no
pool has to queue or grow: a thread takes an idle connection or opens one.

Nothing depends on the session of a connection, so a pooler in transaction mode, such as PgBouncer,
may be in between. Statements are prepared only where there is none.
"""

from __future__ import annotations

import secrets
import select
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, TypeVar

import psycopg
from attrs import frozen
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus

from hermes_trio.stores.base import StoreError
from hermes_trio.stores.postgres import nodes
from hermes_trio.stores.postgres.bulk import BULK_INSERTS
from hermes_trio.stores.postgres.dialect import ADAPTATION, to_postgres
from hermes_trio.stores.postgres.schema import (
    maintain_partitions,
    migrate,
    require_all_records,
    schema_version,
)
from hermes_trio.stores.sql.database import (
    PROBE_BYTES,
    Job,
    JobResult,
    Parameters,
    SqlConnection,
    SqlCursor,
    run_transaction,
)

T = TypeVar("T")

OLDEST_SERVER = 140000
"""Earlier servers do not skip the partitions of other days when they delete a log."""

_DEFAULTS = {
    "connect_timeout": "5",
    "application_name": "hermes-trio",
    # A server that has vanished from the network is noticed within about half a minute.
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}
_MAX_PREPARED = 300  # more than there are statements
_MAX_ATTEMPTS = 4
_BEGIN_SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_USABLE = (TransactionStatus.IDLE, TransactionStatus.INTRANS)
_IN_TRANSACTION = (TransactionStatus.INTRANS, TransactionStatus.INERROR, TransactionStatus.ACTIVE)

# Other servers got in the way; the job sees their changes when it runs again.
_CONFLICTS = (errors.SerializationFailure, errors.DeadlockDetected, errors.UniqueViolation)

_REASONS = {
    "08": "the connection to the database server was lost",
    "25006": "the database is read-only",
    "28": "the database server refuses the user or the password",
    "3D000": "there is no such database",
    "42501": "the user may not do this in the database",
    "53100": "the disk of the database server is full",
    "53300": "the database server has too many connections",
    "57P": "the database server is shutting down or starting",
}


# -- errors --


def to_store_error(error: Exception, where: str = "postgresql store") -> StoreError:
    """Translate an error for a caller; it becomes the cause of the result."""
    if isinstance(error, StoreError):
        return error
    state = getattr(error, "sqlstate", None) or ""
    reason = next(
        (text for start, text in _REASONS.items() if state.startswith(start)),
        "the operation failed",
    )
    if isinstance(error, psycopg.OperationalError) and not state:
        reason = "the database server cannot be reached"
    name = " ".join(filter(None, (type(error).__name__, state)))
    message = " ".join(str(error).split())
    translated = StoreError(f"{where}: {reason} ({name}: {message})")
    translated.__cause__ = error
    return translated


# -- one connection --


class PostgresConnection:
    """A connection that executes the shared statements in few round trips.

    The beginning of a transaction, and statements whose results are not needed, are sent along with
    the next statement whose result is. That statement then raises their errors.
    """

    def __init__(self, driver: psycopg.Connection) -> None:
        self.driver = driver
        self.is_committing = False  # a failure now leaves open whether the changes were saved
        self._begin = ""  # begins a transaction, and has not been sent
        self._pipeline = ExitStack()  # of statements that may not have been sent
        self._is_deferring = False
        self._has_skipped = False  # the server has skipped statements since the last failure

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction has begun and not ended."""
        return bool(self._begin) or self.driver.info.transaction_status in _IN_TRANSACTION

    def execute(self, sql: str, parameters: Parameters = (), /) -> SqlCursor:
        """Execute one statement."""
        self.is_committing = sql == "COMMIT"
        if sql == "BEGIN IMMEDIATE":
            self._begin = "BEGIN"
        elif self._begin and sql in {"COMMIT", "ROLLBACK"}:
            self._begin = ""
        else:
            if sql.startswith("ROLLBACK"):
                self._leave_pipeline()  # or else it would be skipped after an error
            with self._sending(is_last=True):
                return self.driver.execute(to_postgres(sql), parameters, binary=True)
        return self.driver.cursor()

    def executemany(self, sql: str, parameters: Any, /) -> SqlCursor:
        """Execute one statement for each of the parameters, together with the next statement."""
        cursor = self.driver.cursor(binary=True)
        rows, bulk = list(parameters), BULK_INSERTS.get(sql)
        with self._sending(is_last=False):
            if bulk is not None and bulk.takes(rows):
                cursor.execute(bulk.sql, bulk.parameters(rows))
            else:
                cursor.executemany(to_postgres(sql), rows)
        return cursor

    def execute_each(self, sql: str, rows: Sequence[Mapping[str, Any]], /) -> list[int]:
        """Execute a statement for each row without waiting for each; return their row counts."""
        cursor = self.driver.cursor(binary=True)
        bulk = BULK_INSERTS.get(sql)
        if bulk is not None and bulk.takes(rows):
            with self._sending(is_last=True):
                cursor.execute(bulk.sql, bulk.parameters(rows))
            changed = set(cursor.fetchall())
            return [int(bulk.key_of(row) in changed) for row in rows]
        with self._sending(is_last=True):
            cursor.executemany(to_postgres(sql), rows, returning=True)
        return [result.rowcount for result in cursor.results()]

    def read(self, job: Callable[[SqlConnection], T]) -> T:
        """Run a job that reads one state of the database."""
        self._begin = _BEGIN_SNAPSHOT
        result = job(self)
        self.execute("COMMIT")
        return result

    @contextmanager
    def _sending(self, *, is_last: bool) -> Iterator[None]:
        """Send what was deferred along with the statement in the block, unless that is deferred too."""
        self._forget_prepared()
        begin, self._begin = self._begin, ""
        try:
            if not self._is_deferring and (begin or not is_last):
                self._pipeline.enter_context(self.driver.pipeline())
                self._is_deferring = True
            if begin:
                self.driver.execute(begin.encode())
            yield
            if is_last and self._is_deferring:
                self._is_deferring = False
                self._pipeline.close()
        except BaseException:
            self._leave_pipeline()
            raise

    def _leave_pipeline(self) -> None:
        """Leave the pipeline, whatever fails in it, so that a rollback can follow."""
        self._has_skipped = True
        self._is_deferring = False
        with suppress(psycopg.Error):
            self._pipeline.close()

    def _forget_prepared(self) -> None:
        """After a failure, let the driver forget which statements it has prepared.

        It takes for prepared what the server has skipped. Rolling back a transaction makes it
        forget them all.
        """
        if self._has_skipped and self.driver.info.transaction_status in _USABLE:
            self._has_skipped = False
            with self.driver.transaction(force_rollback=True):
                pass


def connect(url: str, application_name: str = "") -> psycopg.Connection:
    """Open a connection without transactions of its own.

    Raises:
        psycopg.OperationalError: The server cannot be reached, or refuses.
        StoreError: The URL cannot be parsed.
    """
    try:
        given = conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        # Its message quotes what it does not understand, which may be the password.
        raise StoreError(
            "the URL of the database cannot be parsed: special characters in it need percent-encoding"
        ) from None
    added = {name: value for name, value in _DEFAULTS.items() if name not in given}
    if application_name:
        added["application_name"] = application_name
    driver = psycopg.connect(
        make_conninfo(url, **added), autocommit=True, context=ADAPTATION, prepare_threshold=None
    )
    if not is_pooled(driver):
        driver.prepare_threshold = 3
        driver.prepared_max = _MAX_PREPARED
    return driver


def is_pooled(driver: psycopg.Connection) -> bool:
    """Return whether a pooler is between us and the server.

    A pooler answers the connection itself and makes up the process id; the server knows its own.
    """
    row = driver.execute("SELECT pg_backend_pid()").fetchone()
    return row is None or row[0] != driver.info.backend_pid


# -- the database --


_PROBE_TABLE = f"probe_{secrets.token_hex(8)}"  # of this process alone
_FILL_SPACE = f"""
    CREATE UNLOGGED TABLE {_PROBE_TABLE} AS
    SELECT repeat(' ', 1000) AS body FROM generate_series(1, {PROBE_BYTES // 1000})
"""  # noqa: S608 - made of constants


def _probe_space(connection: SqlConnection) -> None:
    """Write to a new file: a table keeps the pages that it has, used or not."""
    connection.execute(_FILL_SPACE)
    connection.execute(f"DROP TABLE {_PROBE_TABLE}")


class PostgresDatabase:
    """One connection that writes, and several that read or do single statements."""

    space_probe: Sequence[Job] = (_probe_space,)

    def __init__(self, url: str, *, is_pooled: bool = False) -> None:
        self._url = url
        self.is_pooled = is_pooled  # a pooler is in between
        self.writer_name = ""  # by which others know the connection that writes, "" for any
        self._writer: PostgresConnection | None = None
        self._idle: deque[PostgresConnection] = deque()

    def write(self, jobs: Sequence[Job]) -> list[JobResult]:
        """Run jobs in one transaction; a job that met a conflict runs again, alone."""
        results = self._write_once(jobs)
        for index, job in enumerate(jobs):
            for _ in range(_MAX_ATTEMPTS - 1):
                if not _is_conflict(results[index]):
                    break
                [results[index]] = self._write_once([job])
        return results

    def _write_once(self, jobs: Sequence[Job]) -> list[JobResult]:
        try:
            return self._run_batch(jobs)
        except Exception as error:  # noqa: BLE001  # every error belongs to the callers and must not end the writer
            return [JobResult(error=to_store_error(error))] * len(jobs)

    def _run_batch(self, jobs: Sequence[Job]) -> list[JobResult]:
        while True:
            is_new = self._writer is None
            writer = self._writer = self._writer or PostgresConnection(
                connect(self._url, self.writer_name)
            )
            try:
                return run_transaction(writer, jobs, to_store_error)
            except Exception:
                _roll_back(writer)
                if not writer.driver.closed:
                    raise
                self._writer = None
                # The connection was lost while idle, or before anything could be saved.
                if is_new or writer.is_committing:
                    raise

    def read(self, job: Callable[[SqlConnection], T]) -> T:
        """Run a job on an idle connection, or on a new one.

        Raises:
            StoreError: The database could not be read.
        """
        return self.autocommit(lambda reader: reader.read(job))

    def autocommit(
        self, job: Callable[[PostgresConnection], T], *, is_repeatable: bool = True
    ) -> T:
        """Run a job, each statement of which is a transaction of its own and takes one round trip.

        No lock is held between the statements, so a process that is suspended blocks no other. If
        the connection is lost, a job that is repeatable runs again. Any other fails, and then its
        last statement may or may not have taken effect.

        Raises:
            StoreError: A statement failed.
        """
        try:
            return self._use_reader(job, is_repeatable)
        except psycopg.Error as error:
            raise to_store_error(error) from error

    def open_connection(self) -> psycopg.Connection:
        """Open a separate connection; the caller closes it.

        Raises:
            psycopg.OperationalError: The server cannot be reached, or refuses.
        """
        return connect(self._url)

    def run(self, job: Callable[[psycopg.Connection], T]) -> T:
        """Run a repeatable job, in the SQL of PostgreSQL, as :meth:`autocommit` does."""
        return self.autocommit(lambda reader: job(reader.driver))

    def _use_reader(self, job: Callable[[PostgresConnection], T], is_repeatable: bool) -> T:
        while True:
            try:
                reader, is_new = self._idle.pop(), False
            except IndexError:
                reader, is_new = PostgresConnection(connect(self._url)), True
            if not is_repeatable and _has_input(reader.driver):
                reader.driver.close()  # the server has closed it
                continue
            try:
                return job(reader)
            except psycopg.OperationalError:
                if is_new or not is_repeatable or not reader.driver.closed:
                    raise
            finally:
                _roll_back(reader)
                if not reader.driver.closed:
                    self._idle.append(reader)

    def close(self) -> None:
        """Close every connection."""
        with ExitStack() as stack:
            for connection in self._idle:
                stack.callback(connection.driver.close)
            if self._writer is not None:
                stack.callback(self._writer.driver.close)


def _has_input(driver: psycopg.Connection) -> bool:
    """Return whether the server has sent something on an idle connection, such as its end."""
    poll = select.poll()
    poll.register(driver.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def _is_conflict(result: JobResult) -> bool:
    return result.error is not None and isinstance(result.error.__cause__, _CONFLICTS)


def _roll_back(connection: PostgresConnection) -> None:
    """Leave no transaction open; a connection on which that fails is closed."""
    if connection.driver.closed or not connection.in_transaction:
        return
    try:
        connection.driver.execute("ROLLBACK")
    except psycopg.Error:
        connection.driver.close()


def open_database(url: str, now: float) -> PostgresDatabase:
    """Connect to a database, and create or migrate its tables.

    Raises:
        StoreError: The server cannot be reached or is too old, or the database was written by a
            newer version.
    """
    try:
        with connect(url) as driver:
            if driver.info.server_version < OLDEST_SERVER:
                raise StoreError("the database server is older than PostgreSQL 14")
            migrate(driver)
            require_all_records(driver)
            maintain_partitions(driver, now)
            is_behind_pooler = driver.prepare_threshold is None
    except psycopg.Error as error:
        raise to_store_error(error, "cannot open the postgresql store") from error
    return PostgresDatabase(url, is_pooled=is_behind_pooler)


# -- inspection --


@frozen
class ServerInfo:
    """What can be seen of a database without changing it."""

    version: int
    encoding: str
    is_pooled: bool
    schema_version: int
    living_nodes: int
    loses_commits: bool  # a crash of the server may lose what it acknowledged


def inspect_database(url: str) -> ServerInfo:
    """Inspect a database without changing it, even while a server uses it.

    Raises:
        StoreError: The server cannot be reached, or refuses.
    """
    try:
        with connect(url) as driver:
            settings = driver.execute(
                "SELECT current_setting('server_encoding'), 'off' IN (current_setting('fsync'),"
                " current_setting('synchronous_commit'), current_setting('full_page_writes'))"
            ).fetchone()
            assert settings is not None
            return ServerInfo(
                version=driver.info.server_version,
                encoding=settings[0],
                is_pooled=is_pooled(driver),
                schema_version=schema_version(driver),
                living_nodes=nodes.count_living(driver),
                loses_commits=settings[1],
            )
    except psycopg.Error as error:
        raise to_store_error(error, "cannot open the postgresql store") from error
