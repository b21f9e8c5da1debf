"""``hermes-trio store migrate``: move records, show the progress, and print what was verified."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TextIO

import click

from hermes_trio.stores.base import StoreError
from hermes_trio.stores.migration import Comparison, MigrationProgress, migrate, open_migration

_HEADINGS = ("table", "principal", "rows", "hash", "target")
_MAX_PRINCIPAL_CHARS = 40
_HASH_DIGITS = 16
_ERASE_LINE = "\r\x1b[K"


class ProgressLine:
    """One line on a terminal that is written again and again; nothing elsewhere."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_shown = stream.isatty()

    def show(self, progress: MigrationProgress) -> None:
        """Replace the line."""
        if self._is_shown:
            total = f" of {progress.total:,}" if progress.total else ""
            line = f"{progress.phase}: {progress.rows:,}{total} rows ({progress.table})"
            self._stream.write(f"{_ERASE_LINE}{line}")
            self._stream.flush()

    def erase(self) -> None:
        """Leave an empty line."""
        if self._is_shown:
            self._stream.write(_ERASE_LINE)
            self._stream.flush()


def main(source_url: str, target_url: str) -> int:
    """Move the records and return the exit code: 0 if the target has all of them.

    Raises:
        ConfigurationError: A URL names no database that can be used for this.
    """
    progress = ProgressLine(sys.stderr)
    try:
        with open_migration(source_url, target_url) as (source, target):
            compared = migrate(source, target, progress.show)
    except StoreError as error:
        progress.erase()
        click.echo(f"Error: {' '.join(str(error).split())}", err=True)
        return 1
    progress.erase()
    for line in format_comparisons(compared):
        click.echo(line)
    different = sum(not each.is_equal for each in compared)
    if different:
        click.echo(
            f"Error: the target differs from the source in {different} of {len(compared)} places:"
            " begin again with an empty database",
            err=True,
        )
        return 1
    rows = sum(each.source.rows for each in compared)
    click.echo(f"{rows:,} rows were moved and verified. Start the server with the new URL.")
    return 0


def format_comparisons(compared: Sequence[Comparison]) -> Iterator[str]:
    """Return the lines of the table: what each principal has in each table."""
    rows = [
        (
            each.table,
            _printable(each.principal),
            f"{each.source.rows:,}",
            each.source.hash[:_HASH_DIGITS],
            "equal"
            if each.is_equal
            else f"DIFFERENT: {each.target.rows:,} rows, {each.target.hash[:_HASH_DIGITS]}",
        )
        for each in compared
    ]
    widths = [max(map(len, column)) for column in zip(_HEADINGS, *rows, strict=True)]
    for row in (_HEADINGS, *rows):
        cells = (f"{cell:{width}}" for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()


def _printable(name: str) -> str:
    text = name if name.isprintable() else ascii(name)[1:-1]
    return text if len(text) <= _MAX_PRINCIPAL_CHARS else f"{text[:_MAX_PRINCIPAL_CHARS]}..."
