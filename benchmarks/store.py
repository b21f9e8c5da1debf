"""``python -m benchmarks.store``.

Measure terminal records per second, with group commit and without, the bytes that a run and a token
write, and the processor time that a run takes, in this process and in that of the database. The
engines take turns, so that a busy moment of the machine affects all.
"""

from __future__ import annotations

import argparse
import itertools
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    ExitStack,
    closing,
    contextmanager,
)
from functools import partial
from pathlib import Path

import trio
from attrs import frozen

from hermes_trio.core.changes import Ended, TextAdded
from hermes_trio.core.log_codec import encode_changes
from hermes_trio.core.messages import Message, MessageItem
from hermes_trio.core.outcome import Outcome, Status
from hermes_trio.core.records import EndedRun, LogBatch, RunHeader, Stamp
from hermes_trio.stores.sql.store import SqlStore
from hermes_trio.stores.sqlite import SqliteOptions, open_sqlite

FINISHERS = (1, 16, 128)
ROUNDS = 2
TEXT = "All that an agent says in one turn of some length. " * 20
TOKENS = len(TEXT.split())
OUTCOME = Outcome(Status.COMPLETED)
HEADINGS = (
    f"{'engine':<11} {'finishers':>9} {'one commit each':>16} {'group commit':>13} {'ratio':>6}"
    f" {'commits/s':>10} {'bytes/run':>10} {'bytes/token':>12} {'CPU us/run':>11} {'database':>9}"
)


@frozen
class Sample:
    """One measurement."""

    runs: int = 0
    commits: int = 0
    written: int = 0  # bytes: the write-ahead log, and what the files grew or checkpoints wrote
    seconds: float = 0.0
    cpu: float = 0.0  # seconds of this process
    database_cpu: float = 0.0

    def __add__(self, other: Sample) -> Sample:
        """Return the sum of two measurements."""
        return Sample(
            self.runs + other.runs,
            self.commits + other.commits,
            self.written + other.written,
            self.seconds + other.seconds,
            self.cpu + other.cpu,
            self.database_cpu + other.database_cpu,
        )

    @property
    def rate(self) -> float:
        """Runs per second."""
        return self.runs / self.seconds


@frozen
class Row:
    """Records per second."""

    engine: str
    finishers: int
    alone: Sample  # one commit each
    together: Sample  # group commit

    def __str__(self) -> str:
        """A line of the table."""
        per_run = self.together.written / self.together.runs
        cpu, database_cpu = (
            1e6 * seconds / self.together.runs
            for seconds in (self.together.cpu, self.together.database_cpu)
        )
        return (
            f"{self.engine:<11} {self.finishers:>9} {self.alone.rate:>16,.0f} {self.together.rate:>13,.0f}"
            f" {self.together.rate / self.alone.rate:>6.1f}"
            f" {self.together.commits / self.together.seconds:>10,.0f}"
            f" {per_run:>10,.0f} {per_run / TOKENS:>12.1f} {cpu:>11,.0f} {database_cpu:>9,.0f}"
        )


@frozen
class Opened:
    """A database to be measured."""

    open: Callable[[], AbstractAsyncContextManager[SqlStore]]
    written: Callable[[], int]  # bytes so far
    database_cpu: Callable[[], float] = float  # seconds of the processes of the database so far


Engine = Callable[[int | None], AbstractContextManager[Opened]]  # given the size of a batch


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.store")
    parser.add_argument(
        "--seconds", type=float, default=3.0, help="how long each figure is measured"
    )
    parser.add_argument(
        "--folder", type=Path, help="where the databases are made; else a temporary folder"
    )
    parser.add_argument(
        "--store",
        action="append",
        metavar="ENGINE",
        help="sqlite; postgresql, for a temporary server with durable settings; or the URL of an empty"
        " database, which is filled; may be repeated. Default: sqlite",
    )
    options = parser.parse_args()
    with ExitStack() as stack:
        engines = {
            _name(store): stack.enter_context(_engine(store, options.folder))
            for store in options.store or ["sqlite"]
        }
        print_line(f"{HEADINGS}   (end_run per second; the rest is with group commit)")
        for finishers in FINISHERS:
            rows = _measure(engines, finishers, options.seconds)
            for row in rows:
                print_line(str(row))
            for row in rows[1:]:
                ratio = row.together.rate / rows[0].together.rate
                print_line(f"  {row.engine} / {rows[0].engine} with group commit: {ratio:.2f}")


def _name(store: str) -> str:
    return store.partition(":")[0]


def _measure(engines: dict[str, Engine], finishers: int, seconds: float) -> Sequence[Row]:
    """Measure each mode of each engine several times in turn."""
    samples = {(name, max_batch): Sample() for name in engines for max_batch in (1, None)}
    for _ in range(ROUNDS):
        for name, max_batch in samples:
            with engines[name](max_batch) as opened:
                samples[name, max_batch] += trio.run(
                    _finish_runs, opened, finishers, seconds / ROUNDS
                )
    return [Row(name, finishers, samples[name, 1], samples[name, None]) for name in engines]


async def _finish_runs(opened: Opened, finishers: int, seconds: float) -> Sample:
    numbers = itertools.count()
    done = 0

    async def finish(store: SqlStore) -> None:
        nonlocal done
        for ended, tail in _runs(numbers):
            await store.end_run(ended, tail)
            done += 1

    async with opened.open() as store:
        commits, written, begun = store.commits, opened.written(), trio.current_time()
        cpu, database_cpu = time.process_time(), opened.database_cpu()
        with trio.move_on_after(seconds):
            async with trio.open_nursery() as nursery:
                for _ in range(finishers):
                    nursery.start_soon(finish, store)
        return Sample(
            done,
            store.commits - commits,
            opened.written() - written,
            trio.current_time() - begun,
            time.process_time() - cpu,
            opened.database_cpu() - database_cpu,
        )


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


# -- engines --


@contextmanager
def _engine(store: str, folder: Path | None) -> Iterator[Engine]:
    if store == "sqlite":
        yield partial(_sqlite, folder)
    elif store == "postgresql":
        # Imported here: it needs pytest.
        from tests.support.postgres import run_postgres  # noqa: PLC0415

        with run_postgres("shared_buffers=128MB", "max_wal_size=4GB", is_safe=True) as server:
            yield lambda max_batch: _postgres(  # an empty one each time
                server.create_database(), max_batch, server.cpu_seconds
            )
    else:
        yield partial(_postgres, store)


@contextmanager
def _sqlite(folder: Path | None, max_batch: int | None) -> Iterator[Opened]:
    options = SqliteOptions() if max_batch is None else SqliteOptions(max_batch=max_batch)
    with tempfile.TemporaryDirectory(dir=folder) as place:
        path = Path(place) / "hermes.db"
        yield Opened(lambda: open_sqlite(path, options), _written_by_process)


def _written_by_process() -> int:
    # The write-ahead log is overwritten after each checkpoint, so the size of files does not tell.
    found = re.search(r"wchar: (\d+)", Path("/proc/self/io").read_text(encoding="ascii"))
    assert found is not None
    return int(found[1])


@contextmanager
def _postgres(
    url: str, max_batch: int | None, database_cpu: Callable[[], float] = float
) -> Iterator[Opened]:
    import psycopg  # noqa: PLC0415 - an extra

    from hermes_trio.stores.postgres import PostgresOptions, open_postgres  # noqa: PLC0415

    options = PostgresOptions() if max_batch is None else PostgresOptions(max_batch=max_batch)
    with closing(psycopg.connect(url, autocommit=True)) as connection:

        def written() -> int:
            row = connection.execute(
                "SELECT pg_current_wal_lsn() - '0/0'::pg_lsn + pg_database_size(current_database())"
            ).fetchone()
            assert row is not None
            return int(row[0])

        yield Opened(lambda: open_postgres(url, options), written, database_cpu)


def print_line(line: str) -> None:
    """Show it at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
