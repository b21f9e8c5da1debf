"""Move a store to another database: copy every row, resume after an interruption, and verify.

This works on rows and knows no records, so whatever the tables hold arrives unchanged. The columns
are those that both catalogues name. Rows are copied in the order of their primary key, in batches
of bounded size; the transaction of a batch also writes down how far it came, so that an interruption
at any point neither loses nor repeats a row.

Both databases are read completely, the source before anything is copied. What was found there
identifies it when an interrupted migration is resumed, and is what the target is compared with at the
end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, Protocol

from attrs import define, frozen

from hermes_trio.core.errors import ConfigurationError
from hermes_trio.stores.base import StoreError
from hermes_trio.stores.factory import (
    POSTGRES_EXTRA,
    InMemory,
    PostgresUrl,
    SqliteFile,
    StoreLocation,
    parse_store_url,
)

NOT_COPIED = frozenset(
    {
        "probe",
        "nodes",
        "commands",
        "session_locks",
        "run_slots",
        "schema_version",
        "store_migration",
    }
)
"""Tables that belong to running servers and to the database itself."""

_PRINCIPAL = "principal"
_HASH_BYTES = 16
_REPORTED_ROWS = 1_000  # between two reports while a table is read

Row = tuple[Any, ...]
ColumnKind = Literal["text", "bytes", "integer", "real"]

# -- what is copied --


@frozen
class SourceTable:
    """A table of the source."""

    columns: frozenset[str]
    key: tuple[str, ...]  # the primary key
    has_rowid: bool = False  # in addition to the columns


@frozen
class TargetColumn:
    """A column of the target that can be written."""

    name: str
    kind: ColumnKind
    expression: str = ""  # computes the value in the source, if that has no such column


@frozen
class CopiedTable:
    """A table with the columns that are copied."""

    name: str
    columns: tuple[TargetColumn, ...]
    key: tuple[str, ...]

    def index(self, column: str) -> int:
        """Return the place of a column in a row."""
        return [each.name for each in self.columns].index(column)


@frozen
class CopyPosition:
    """How far a migration has come."""

    tables: int = 0  # that are complete
    after: tuple[Any, ...] = ()  # the key of the last row copied of the next table; empty: none yet
    rows: int = 0  # copied of that table


class MigrationSource(Protocol):
    """A database that is read."""

    def tables(self) -> Mapping[str, SourceTable]:
        """Return the tables by name."""
        ...

    def read(self, table: CopiedTable, after: tuple[Any, ...] = ()) -> Iterator[Row]:
        """Return the rows behind a key, in the order of the keys, one after the other."""
        ...


class MigrationTarget(Protocol):
    """A database that is written, and read again."""

    def tables(self) -> Mapping[str, tuple[TargetColumn, ...]]:
        """Return the tables by name, with the columns that can be written."""
        ...

    def begin(self, source: str, tables: Sequence[CopiedTable]) -> CopyPosition:
        """Begin a migration, or return the position of the unfinished one from the same source.

        Raises:
            StoreError: The database holds something else.
        """
        ...

    def prepare(self, source: MigrationSource) -> None:
        """Prepare the tables for the rows of the source."""
        ...

    def batch(self, expected: CopyPosition) -> AbstractContextManager[None]:
        """Write in one transaction.

        Raises:
            StoreError: Another process has moved the position.
        """
        ...

    def write(self, table: CopiedTable, rows: Iterator[Row]) -> None:
        """Write rows, in a batch."""
        ...

    def save_position(self, position: CopyPosition) -> None:
        """Save the position, in a batch."""
        ...

    def read(self, table: CopiedTable) -> Iterator[Row]:
        """Return all rows in any order, one after the other."""
        ...

    def finish(self) -> None:
        """Mark the migration as finished. Only then will servers open the database."""
        ...


def plan_copy(
    source: Mapping[str, SourceTable], target: Mapping[str, tuple[TargetColumn, ...]]
) -> tuple[CopiedTable, ...]:
    """Return what is to be copied, in the order of the names.

    Raises:
        StoreError: The target has no place for something in the source.
    """
    tables = []
    for name, found in sorted(source.items()):
        if name in NOT_COPIED:
            continue
        if name not in target:
            raise StoreError(f"the target has no table {name}: use the same version for both")
        missing = sorted(found.columns - {column.name for column in target[name]})
        if missing:
            raise StoreError(
                f"the target has no column {name}.{missing[0]}: use the same version for both"
            )
        available = found.columns | ({"rowid"} if found.has_rowid else set())
        columns = (
            column for column in target[name] if column.name in available or column.expression
        )
        tables.append(CopiedTable(name, tuple(columns), found.key))
    return tuple(tables)


# -- fingerprints --


@define
class RowDigest:
    """The number of some rows and a hash that does not depend on their order."""

    rows: int = 0
    total: int = 0

    def add(self, row: Row) -> None:
        """Add a row."""
        self.rows += 1
        parts = [_to_bytes(value) for value in row]
        text = b"".join(b"%d:%b," % (len(part), part) for part in parts)
        self.total += int.from_bytes(blake2b(text, digest_size=_HASH_BYTES).digest())

    @property
    def hash(self) -> str:
        """The hash, as hexadecimal digits."""
        return (self.total % (1 << 8 * _HASH_BYTES)).to_bytes(_HASH_BYTES).hex()


def _to_bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else repr(value).encode()


TableDigests = Mapping[tuple[str, str], RowDigest]
"""What the rows of each table and principal are, by both names."""


def _digest(
    tables: Sequence[CopiedTable],
    read: Callable[[CopiedTable], Iterator[Row]],
    report: Callable[[str, int], None],
) -> TableDigests:
    digests: defaultdict[tuple[str, str], RowDigest] = defaultdict(RowDigest)
    count = 0
    for table in tables:
        principal = table.index(_PRINCIPAL)
        for row in read(table):
            digests[table.name, row[principal]].add(row)
            count += 1
            if count % _REPORTED_ROWS == 0:
                report(table.name, count)
    return digests


def _fingerprint(tables: Sequence[CopiedTable], digests: TableDigests) -> str:
    found = sorted((*key, digest.rows, digest.hash) for key, digest in digests.items())
    return blake2b(repr((tables, found)).encode(), digest_size=_HASH_BYTES).hexdigest()


@frozen
class Comparison:
    """What one principal has in one table of both databases."""

    table: str
    principal: str
    source: RowDigest
    target: RowDigest

    @property
    def is_equal(self) -> bool:
        """Whether the rows are the same."""
        return (self.source.rows, self.source.hash) == (self.target.rows, self.target.hash)


# -- copying --


@frozen
class BatchLimits:
    """What one transaction writes at most; its last row may exceed the size."""

    rows: int = 2_000
    bytes: int = 8_000_000


DEFAULT_LIMITS = BatchLimits()


@frozen
class MigrationProgress:
    """How far a migration is."""

    phase: Literal["reading", "copying", "verifying"]
    table: str
    rows: int  # done, of all tables
    total: int = 0  # 0 if it is not known yet


Report = Callable[[MigrationProgress], None]


@define
class _Batch:
    """Rows for one transaction."""

    table: CopiedTable
    source: Iterator[Row]
    begin: CopyPosition
    rows: int = 0  # taken from the source
    last: Row = ()
    is_last: bool = False  # nothing is left of the table

    def take(self, limits: BatchLimits) -> Iterator[Row]:
        """Return rows until a limit is reached."""
        size = 0
        while self.rows < limits.rows and size < limits.bytes:
            row = next(self.source, None)
            if row is None:
                self.is_last = True
                return
            self.rows, self.last = self.rows + 1, row
            size += sum(len(value) for value in row if isinstance(value, (str, bytes)))
            yield row

    @property
    def end(self) -> CopyPosition:
        """The position after these rows."""
        if self.is_last:
            return CopyPosition(self.begin.tables + 1)
        after = tuple(self.last[self.table.index(name)] for name in self.table.key)
        return CopyPosition(self.begin.tables, after, self.begin.rows + self.rows)


def migrate(
    source: MigrationSource,
    target: MigrationTarget,
    report: Report,
    limits: BatchLimits = DEFAULT_LIMITS,
) -> tuple[Comparison, ...]:
    """Copy everything, or what an interrupted migration has not copied yet, and compare.

    The migration is finished only if everything is equal. ``report`` is called often while something
    is read, and once after every transaction.

    Raises:
        StoreError: The target cannot take the source, or a database failed. Call this again to
            resume.
    """
    tables = plan_copy(source.tables(), target.tables())
    expected = _digest(
        tables, source.read, lambda table, rows: report(MigrationProgress("reading", table, rows))
    )
    position = target.begin(_fingerprint(tables, expected), tables)
    target.prepare(source)
    sizes = _count_rows(tables, expected)
    total = sum(sizes)
    for reached in _copy_rest(tables, source, target, position, limits):
        name = tables[min(reached.tables, len(tables) - 1)].name
        done = sum(sizes[: reached.tables]) + reached.rows
        report(MigrationProgress("copying", name, done, total))
    found = _digest(
        tables,
        target.read,
        lambda table, rows: report(MigrationProgress("verifying", table, rows, total)),
    )
    compared = _compare(expected, found)
    if all(each.is_equal for each in compared):
        target.finish()
    return compared


def _copy_rest(
    tables: Sequence[CopiedTable],
    source: MigrationSource,
    target: MigrationTarget,
    position: CopyPosition,
    limits: BatchLimits,
) -> Iterator[CopyPosition]:
    """Copy what is behind a position, and yield the new one after every transaction."""
    while position.tables < len(tables):
        number, table = position.tables, tables[position.tables]
        rows = source.read(table, position.after)
        while position.tables == number:
            batch = _Batch(table, rows, position)
            with target.batch(position):
                target.write(table, batch.take(limits))
                target.save_position(batch.end)
            position = batch.end
            yield position


def _count_rows(tables: Sequence[CopiedTable], digests: TableDigests) -> list[int]:
    return [
        sum(digest.rows for (name, _), digest in digests.items() if name == table.name)
        for table in tables
    ]


def _compare(source: TableDigests, target: TableDigests) -> tuple[Comparison, ...]:
    nothing = RowDigest()
    return tuple(
        Comparison(*key, source.get(key, nothing), target.get(key, nothing))
        for key in sorted({*source, *target})
    )


# -- opening --


@contextmanager
def open_migration(
    source_url: str, target_url: str
) -> Iterator[tuple[MigrationSource, MigrationTarget]]:
    """Open the databases that two URLs name: the source only to read it, and only if no server uses it.

    Raises:
        ConfigurationError: A URL names no database that can be used for this.
        StoreError: A database cannot be opened, is in use, or has the schema of another version.
    """
    source = _parse(source_url, "SOURCE_URL")
    target = _parse(target_url, "TARGET_URL")
    if not isinstance(source, SqliteFile):
        raise ConfigurationError("SOURCE_URL: only an SQLite database can be moved: sqlite:///path")
    if not isinstance(target, PostgresUrl):
        raise ConfigurationError(
            "TARGET_URL: records can only be moved to PostgreSQL: postgresql://…"
        )
    try:
        from hermes_trio.stores.postgres.migration_target import open_target  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigurationError(
            f"TARGET_URL: PostgreSQL needs more packages: {POSTGRES_EXTRA} ({error})"
        ) from error
    from hermes_trio.stores.sqlite.migration_source import open_source  # noqa: PLC0415 - slow to import

    with ExitStack() as stack:
        opened = stack.enter_context(open_source(source.path))
        yield opened, stack.enter_context(open_target(target.url))


def _parse(url: str, name: str) -> StoreLocation:
    try:
        return parse_store_url(url, Path()) if url else InMemory()
    except ValueError as error:
        raise ConfigurationError(f"{name}: {error}") from None
