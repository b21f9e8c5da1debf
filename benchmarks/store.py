"""``python -m benchmarks.store``.

How many terminal records per second, with group commit and without.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import trio
from attrs import frozen

from hermes_trio.core.changes import Ended, TextAdded
from hermes_trio.core.log_codec import encode_changes
from hermes_trio.core.messages import Message, MessageItem
from hermes_trio.core.outcome import Outcome, Status
from hermes_trio.core.records import EndedRun, LogBatch, RunHeader, Stamp
from hermes_trio.stores.base import Store
from hermes_trio.stores.sqlite import SqliteOptions, open_sqlite
from hermes_trio.stores.sqlite.store import DEFAULTS

FINISHERS = (1, 16, 128)
TEXT = "All that an agent says in one turn of some length. " * 20
OUTCOME = Outcome(Status.COMPLETED)


@frozen
class Row:
    """Records per second."""

    finishers: int
    alone: float  # one commit each
    together: float  # group commit

    def __str__(self) -> str:
        """A line of the table."""
        ratio = self.together / self.alone
        return f"{self.finishers:>9} {self.alone:>16,.0f} {self.together:>16,.0f} {ratio:>7.1f}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.store")
    parser.add_argument(
        "--seconds", type=float, default=3.0, help="how long each figure is measured"
    )
    parser.add_argument(
        "--folder", type=Path, help="where the databases are made; else a temporary folder"
    )
    options = parser.parse_args()
    print_line(
        f"{'finishers':>9} {'one commit each':>16} {'group commit':>16} {'ratio':>7}   (end_run per second)"
    )
    for finishers in FINISHERS:
        print_line(str(_measure(finishers, options.seconds, options.folder)))


def _measure(finishers: int, seconds: float, folder: Path | None) -> Row:
    """Both ways in one go, in turns, so that a busy moment of the machine is shared."""
    alone, together = 0.0, 0.0
    for _ in range(2):
        alone += _rate(SqliteOptions(max_batch=1), finishers, seconds / 2, folder) / 2
        together += _rate(DEFAULTS, finishers, seconds / 2, folder) / 2
    return Row(finishers, alone, together)


def _rate(options: SqliteOptions, finishers: int, seconds: float, folder: Path | None) -> float:
    with tempfile.TemporaryDirectory(dir=folder) as place:
        return trio.run(_finish_runs, Path(place) / "hermes.db", options, finishers, seconds)


async def _finish_runs(path: Path, options: SqliteOptions, finishers: int, seconds: float) -> float:
    numbers = itertools.count()
    done = 0

    async def finish(store: Store) -> None:
        nonlocal done
        for ended, tail in _runs(numbers):
            await store.end_run(ended, tail)
            done += 1

    async with open_sqlite(path, options) as store:
        begun = trio.current_time()
        with trio.move_on_after(seconds):
            async with trio.open_nursery() as nursery:
                for _ in range(finishers):
                    nursery.start_soon(finish, store)
        return done / (trio.current_time() - begun)


def _runs(numbers: Iterator[int]) -> Iterator[tuple[EndedRun, tuple[LogBatch, ...]]]:
    for number in numbers:
        stamp = Stamp(f"resp_{number:028x}", float(number), "m")
        header = RunHeader(
            "ann", stamp, "responses", f"session-{number}", (Message("user", "hello"),)
        )
        body = encode_changes([TextAdded(0, TEXT), Ended(OUTCOME)])
        yield (
            EndedRun(header, (MessageItem(TEXT),), OUTCOME, 1.0),
            (LogBatch("ann", stamp.run_id, 0, body, 2),),
        )


def print_line(line: str) -> None:
    """Show it at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
