"""Sessions in databases of the first version, and in damaged ones."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import attrs
import pytest

from hermes_trio.core.approvals import Grant
from hermes_trio.core.messages import Message, MessageItem, ToolCall, Usage
from hermes_trio.core.outcome import Outcome, Status
from hermes_trio.core.records import EndedRun, Ownership
from hermes_trio.core.sessions import Counters, Session, SessionDeleted, SessionQuery
from hermes_trio.stores.base import StoreError
from hermes_trio.stores.codec import encode_run
from hermes_trio.stores.sqlite import open_sqlite
from hermes_trio.stores.sqlite.schema import MIGRATIONS, migrate
from tests.stores.helpers import completed_runs, writer_connection
from tests.stores.samples import ODD, ended, header, history_texts, texts_of

USED = Outcome(Status.COMPLETED, usage=Usage(1, 2, 3, 4, 5))
CALLING = Message("assistant", "", (ToolCall("c1", "t", "{}"), ToolCall("c2", "t", "{}")))
OLD = [
    attrs.evolve(ended("a", 1.0, kind="chat"), outcome=USED),
    attrs.evolve(ended("b", 2.0, parent="a"), outcome=USED),
    EndedRun(
        header("odd", 3.0, session_id="odd", messages=(Message("user", ODD), CALLING)), (), USED, 0.5
    ),
    EndedRun(
        header("image", 4.0, session_id="image", messages=(Message("user", ({"type": "image_url"},)),)),
        (MessageItem("seen"),), USED, 0.5,
    ),
]  # fmt: skip


@contextmanager
def old_database(path: Path) -> Iterator[sqlite3.Connection]:
    """Create a database of the first schema version."""
    path.parent.mkdir()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        migrate(connection, MIGRATIONS[:1])
        yield connection


def write_old(connection: sqlite3.Connection, run: EndedRun) -> None:
    """Insert an ended run as the first version wrote it."""
    written, at = encode_run(run), run.header.stamp.created_at
    place = (run.header.principal, run.header.session_id)
    connection.execute(
        "INSERT INTO runs (principal, session_id, run_id, kind, parent, conversation, model, status, reason,"
        " created_at, ended_after, owner, accessed_at, header, items, outcome)"
        " VALUES (?, ?, ?, ?, ?, '', 'm', 'completed', '', ?, ?, '', 0, ?, ?, ?)",
        (*place, run.header.run_id, run.header.kind, run.header.parent, at, run.ended_after, written.header,
         written.items, written.outcome),
    )  # fmt: skip
    connection.execute(
        "INSERT INTO sessions VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET updated_at = excluded.updated_at",
        (*place, at, at + run.ended_after),
    )
    [start] = connection.execute(
        "SELECT count(*) FROM messages WHERE principal = ? AND session_id = ?", place
    ).fetchone()
    rows = [(*place, n, run.header.run_id, body) for n, body in enumerate(written.messages, start)]
    connection.executemany("INSERT INTO messages VALUES (?, ?, ?, ?, ?)", rows)


async def test_old_approvals_are_kept_for_requests_without_an_end_user(path: Path) -> None:
    with old_database(path) as connection:
        migrate(connection, MIGRATIONS[:4])
        connection.execute("INSERT INTO approvals VALUES ('ann', 's', 'rm', 1.0)")
    async with open_sqlite(path) as store:
        assert await store.list_grants("ann") == (Grant("ann", "s", "rm", 1.0),)
        assert await store.is_granted("ann", "s", ("rm",))
        assert not await store.is_granted("ann", "s", ("rm",), "openwebui:zoe")


async def test_an_old_database_gets_the_session_fields(path: Path) -> None:
    with old_database(path) as connection:
        for run in OLD:
            write_old(connection, run)
    async with open_sqlite(path) as store:
        image, odd, plain = (await store.list_sessions("ann", SessionQuery())).sessions
        tokens = (1, 2, 3, 4, 5)
        assert plain == Session(
            "ann",
            "s",
            "chat",
            1.0,
            2.5,
            "m",
            preview="ask a",
            counters=Counters(4, 0, 2, 2, 4, 6, 8, 10),
        )
        assert odd.counters == Counters(2, 2, 1, *tokens)
        assert (image.preview, image.counters) == ("", Counters(2, 0, 1, *tokens))
        page = await store.list_messages("ann", "s")
        assert [(each.at, each.run_id) for each in page.messages] == [(1.5, "a")] * 2 + [
            (2.5, "b")
        ] * 2
        assert await history_texts(store, "b") == texts_of("a", "b")
        await store.end_run(ended("c", 9.0))
        assert await completed_runs(store) == ["a", "b", "c"]
        assert await store.find_run("ann", "a") == OLD[0]
        assert await store.delete_session("ann", "s") == SessionDeleted()


async def test_an_old_database_with_damage_still_opens(path: Path) -> None:
    with old_database(path) as connection:
        for run in OLD:
            write_old(connection, run)
        connection.execute("UPDATE messages SET body = '{' WHERE run_id = 'a' AND n = 0")
        connection.execute("UPDATE messages SET run_id = 'gone' WHERE run_id = 'odd'")
        connection.execute("UPDATE runs SET outcome = 'x' WHERE run_id = 'b'")
    async with open_sqlite(path) as store:
        found = {
            one.session_id: one
            for one in (await store.list_sessions("ann", SessionQuery())).sessions
        }
        assert found["s"].preview == "ask b"
        assert found["s"].counters == Counters(4, 0, 2, 1, 2, 3, 4, 5)
        assert {each.at for each in (await store.list_messages("ann", "odd")).messages} == {3.5}
        with pytest.raises(StoreError, match="message 0 of session 's' is damaged"):
            await store.list_messages("ann", "s")


async def test_a_damaged_prompt_is_named(path: Path) -> None:
    async with open_sqlite(path) as store:
        await store.end_run(ended("a"))
        writer_connection(store).execute(
            "UPDATE sessions SET system_prompt = '{', preview = CAST(x'ff' AS TEXT)"
        )
        with pytest.raises(StoreError, match="the system prompt of session 's' is damaged"):
            await store.find_session("ann", "s")
        writer_connection(store).execute("UPDATE sessions SET system_prompt = ''")
        found = await store.find_session("ann", "s")
        assert isinstance(found, Session)
        assert found.preview == "\ufffd"


async def test_deleting_a_session_empties_the_runs_given_up_in_it(path: Path) -> None:
    async with open_sqlite(path) as store:
        await store.end_run(ended("a"))
        await store.begin_run(header("broken"), Ownership("dead"))
        writer_connection(store).execute(
            "UPDATE runs SET header = 'damaged words' WHERE run_id = 'broken'"
        )
        assert await store.take_over_runs("me") == ()
        assert await store.delete_session("ann", "s") == SessionDeleted()
        rows = (
            writer_connection(store).execute("SELECT run_id, length(header) FROM runs").fetchall()
        )
        assert rows == [("broken", 0)]


async def test_lists_and_lookups_use_indexes(path: Path) -> None:
    async with open_sqlite(path) as store:
        for query in (
            "SELECT 1 FROM runs WHERE principal = '' AND session_id = '' AND status = 'in_progress'",
            "SELECT session_id FROM sessions WHERE principal = '' ORDER BY updated_at DESC, session_id DESC LIMIT 5",
            "SELECT 1 FROM sessions WHERE principal = '' AND title = 'T' AND title <> ''",
        ):
            plan = writer_connection(store).execute(f"EXPLAIN QUERY PLAN {query}").fetchall()
            text = " ".join(str(row[-1]) for row in plan)
            assert "SEARCH" in text
            assert "TEMP B-TREE" not in text
