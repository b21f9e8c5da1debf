"""A migration to be interrupted: in this process by an exception, in another one by a signal."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from attrs import define

from hermes_trio.stores.migration import (
    BatchLimits,
    CopiedTable,
    MigrationProgress,
    MigrationSource,
    Row,
    SourceTable,
    migrate,
    open_migration,
)


class Interrupted(Exception):
    """Stands for the end of the process."""


@define
class FailingSource:
    """Interrupts the migration when it asks for one row too many."""

    source: MigrationSource
    rows_left: int

    def tables(self) -> Mapping[str, SourceTable]:
        """See the interface."""
        return self.source.tables()

    def read(self, table: CopiedTable, after: tuple[Any, ...] = ()) -> Iterator[Row]:
        """See the interface."""
        for row in self.source.read(table, after):
            if not self.rows_left:
                self.interrupt()
            self.rows_left -= 1
            yield row

    def interrupt(self) -> NoReturn:
        """Raise an exception."""
        raise Interrupted


class BlockingSource(FailingSource):
    """Waits for the end of the process instead."""

    def interrupt(self) -> NoReturn:
        """Tell the parent, and wait for its signal."""
        sys.stdout.write("in a transaction\n")
        sys.stdout.flush()
        sys.stdin.read()
        raise Interrupted


def main(path: str, target_url: str, copied: int) -> None:
    """Copy some rows, and wait in the middle of a transaction."""
    with open_migration(f"sqlite:///{path}", target_url) as (source, target):
        blocking = BlockingSource(source, sys.maxsize)

        def report(progress: MigrationProgress) -> None:
            if progress.phase == "copying" and progress.rows >= copied:
                blocking.rows_left = 3

        migrate(blocking, target, report, BatchLimits(rows=7, bytes=100_000))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
