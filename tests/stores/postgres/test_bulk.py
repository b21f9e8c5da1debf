"""Inserts of many rows with one statement leave what inserts of one row do."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pytest

from hermes_trio.core.messages import Message
from hermes_trio.core.records import Ownership
from hermes_trio.stores.sql import runs
from tests.stores.samples import RICH_RUN, batch, ended_with_messages, header
from tests.support.postgres import PostgresServer

pytest.importorskip("psycopg")

from hermes_trio.stores.postgres import bulk, connections

OURS = Ownership("n1")
TABLES = ("runs", "sessions", "messages", "log", "item_index")


def ends(is_sharing: bool) -> list[runs.EndJob]:
    """Ends of runs of all kinds; some share a session, and one comes twice."""
    said = [Message("user", "Hi \0 \1"), Message("user", "?"), Message("user", "\ud800")]
    alone = [
        runs.EndJob(
            ended_with_messages(f"run{number}", *said[: number % 4], session_id=f"s{number}"),
            (batch(f"run{number}", 0, 3),),
        )
        for number in range(8)
    ]
    taken = runs.EndJob(ended_with_messages("taken", *said, session_id="t"), (), (), OURS)
    begun = runs.EndJob(ended_with_messages("begun", *said, session_id="b"), (), (), OURS)
    if not is_sharing:
        return [*alone, runs.EndJob(RICH_RUN), taken, begun]
    shared = [
        runs.EndJob(ended_with_messages(f"more{number}", *said, session_id="s1"))
        for number in range(4)
    ]
    return [*alone, *shared, alone[0], taken, begun]


def write(server: PostgresServer, jobs: Sequence[runs.EndJob], at_once: int) -> object:
    """End runs in transactions of some size; return the answers, and what the database holds then."""
    url = server.create_database()
    database = connections.open_database(url, 0.0)
    for run_id, owner in (("taken", "n2"), ("begun", "n1")):
        session_id = run_id[0]
        begun = header(run_id, session_id=session_id)
        database.write([partial(runs.begin, header=begun, ownership=Ownership(owner))])
    results = []
    for start in range(0, len(jobs), at_once):
        results += database.write(jobs[start : start + at_once])
    database.close()
    found = {
        table: server.execute(
            f"SELECT to_jsonb(t) - 'rowid' FROM {table} AS t ORDER BY to_jsonb(t) - 'rowid'", url
        )
        for table in TABLES
    }
    return [result.get() for result in results], found


def test_rows_that_are_too_large_together_are_inserted_one_by_one() -> None:
    insert = bulk.BULK_INSERTS[runs.INSERT_ITEM]
    rows = [{"principal": "ann", "item_id": str(n), "run_id": "r"} for n in range(bulk.MIN_ROWS)]
    assert insert.takes(rows)
    assert not insert.takes([*rows, {**rows[0], "item_id": "x" * bulk.MAX_SIZE}])
    assert not insert.takes([*rows, rows[0]])
    assert not insert.takes(rows[1:])


@pytest.mark.parametrize("is_sharing", [False, True])
def test_ends_together_leave_what_they_leave_alone(
    postgres_server: PostgresServer, is_sharing: bool
) -> None:
    jobs = ends(is_sharing)
    together, alone = (write(postgres_server, jobs, at_once) for at_once in (len(jobs), 1))
    assert together == alone
