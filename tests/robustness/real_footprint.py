"""What a real server has in hand: tasks, threads, descriptors, slots.

After every batch it must be what it was before.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from attrs import frozen

from hermes_trio.core.records import EndedRun, LiveRun, NoRun
from hermes_trio.keys import DEFAULT_PRINCIPAL
from hermes_trio.stores.sql import runs as run_queries
from tests.robustness.invariants import (
    faults_against_record,
    faults_of_record,
    faults_of_stream,
    stored_run_of_record,
)
from tests.robustness.streams import Dialect, ReceivedStream
from tests.robustness.violations import VIOLATIONS, Violation
from tests.support.server_process import ServerProcess
from tests.support.stored_records import unfinished

CALM_SECONDS = 20.0  # only a server that does not come to rest is waited for so long
LOOK_SECONDS = 0.05
_FAILED = frozenset({"incomplete", "failed"})  # what a chat says with "error"


@frozen
class Footprint:
    """What a process has in hand."""

    tasks: int
    threads: int
    descriptors: int
    runs: int
    slots: int

    def beyond(self, before: Footprint) -> list[str]:
        """Where it has more than before."""
        names = ("tasks", "threads", "descriptors", "runs", "slots")
        pairs = [(name, getattr(self, name), getattr(before, name)) for name in names]
        return [f"{name}: {now}, before {then}" for name, now, then in pairs if now > then]


def footprint(server: ServerProcess) -> Footprint:
    """What a server has in hand now. Asking takes a connection, which is the same each time."""
    health = server.health()
    return Footprint(
        tasks=health["tasks"],
        threads=len(os.listdir(f"/proc/{server.pid}/task")),
        descriptors=sum(descriptors(server).values()),
        runs=health["active_agents"],
        slots=health["slots"]["in_use"],
    )


def descriptors(server: ServerProcess) -> Counter[str]:
    """What the process has open, by kind.

    The readers of the store open their log when they first need it.
    """
    kinds: Counter[str] = Counter()
    for name in os.listdir(f"/proc/{server.pid}/fd"):
        with suppress(FileNotFoundError):
            kinds[os.readlink(f"/proc/{server.pid}/fd/{name}").partition(":")[0]] += 1
    del kinds[str(server.plan.data_dir / "hermes.db-wal")]
    return kinds


def memory(server: ServerProcess) -> int:
    """Resident kilobytes."""
    return _kilobytes(server, "VmRSS")


def peak_memory(server: ServerProcess) -> int:
    """The most kilobytes that were ever resident."""
    return _kilobytes(server, "VmHWM")


def _kilobytes(server: ServerProcess, field: str) -> int:
    status = Path(f"/proc/{server.pid}/status").read_text()
    return int(status.partition(f"{field}:")[2].split()[0])


def at_rest(server: ServerProcess) -> Footprint:
    """What a server has in hand once it has been used and let be."""
    return _lowest(server, 1.0)


def _lowest(server: ServerProcess, seconds: float) -> Footprint:
    found, begun = footprint(server), time.monotonic()
    while time.monotonic() - begun < seconds:
        now = footprint(server)
        found = now if not found.beyond(now) else found
        time.sleep(LOOK_SECONDS)
    return found


def faults_at_rest(server: ServerProcess, before: Footprint, idle_threads: int = 0) -> list[str]:
    """What a server keeps that it did not have before, however long one waits.

    And runs that never ended.

    Args:
        idle_threads: Trio keeps those for 10 s; who will not wait so long allows for as many as ran
            at once.
    """
    begun, more = time.monotonic(), ["not looked at"]
    while more and time.monotonic() - begun < CALM_SECONDS:
        more = _more(server, before, idle_threads)
        time.sleep(LOOK_SECONDS if more else 0)
    VIOLATIONS.record(Violation.LEAKED, len(more))
    return more


def _more(server: ServerProcess, before: Footprint, idle_threads: int) -> list[str]:
    now = footprint(server)
    allowed = Footprint(
        before.tasks, before.threads + idle_threads, before.descriptors, before.runs, before.slots
    )
    left = unfinished(server)
    return [*now.beyond(allowed), *([f"{left} runs are in progress"] if left else [])]


@contextmanager
def store_of(server: ServerProcess) -> Iterator[sqlite3.Connection]:
    """The records of a server, as another program may read them at any time."""
    path = server.plan.data_dir / "hermes.db"
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=20)) as connection:
        yield connection


def found_in(store: sqlite3.Connection, run_id: str) -> EndedRun | LiveRun | NoRun:
    """The record of a run."""
    return run_queries.find(store, DEFAULT_PRINCIPAL, run_id)


def faults_of_all(
    server: ServerProcess, streams: Iterable[ReceivedStream], store_failed: bool = False
) -> list[str]:
    """Where streams that were cut anywhere, or went to their end, break an invariant.

    Args:
        store_failed: then a chat, which is stored at its end only, may be missing if its client was
            told.
    """
    with store_of(server) as store:
        return [
            fault for received in streams for fault in _faults_of(store, received, store_failed)
        ]


def _faults_of(
    store: sqlite3.Connection, received: ReceivedStream, store_failed: bool
) -> Iterator[str]:
    about = f"{received.dialect} {received.run_id}"
    first = None if received.dialect is Dialect.RUNS else int(received.dialect is Dialect.SESSION)
    yield from (f"{about}: {fault}" for fault in faults_of_stream(received, first))
    if not received.run_id:
        return
    record = found_in(store, received.run_id)
    if (
        store_failed
        and isinstance(record, NoRun)
        and received.dialect is Dialect.CHAT
        and _FAILED in received.ends
    ):
        return
    VIOLATIONS.record(Violation.STUCK, not isinstance(record, EndedRun))
    if not isinstance(record, EndedRun):
        yield f"{about}: a client knows it, and the store has {type(record).__name__}"
        return
    stored = stored_run_of_record(record)
    yield from (
        f"{about}: {fault}"
        for fault in (*faults_of_record(stored), *faults_against_record(received, stored))
    )
