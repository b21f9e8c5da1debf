"""After a crash: what was logged is what the record and the stream tell."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_trio.core.changes import Change, TextAdded
from hermes_trio.core.dialects import runs, sessions
from hermes_trio.core.dialects.responses import FROM_THE_START, frames_after
from hermes_trio.core.dialects.wire import DONE
from hermes_trio.core.events import Event, Text, ToolStarted
from hermes_trio.core.log_codec import encode_changes
from hermes_trio.core.messages import MessageItem
from hermes_trio.core.outcome import Reason, Status
from hermes_trio.core.records import EndedRun, LiveRun, LogBatch, Ownership, RunHeader
from hermes_trio.core.turn import Turn
from hermes_trio.runs.log import StoredReader
from hermes_trio.runs.recovery import recover
from hermes_trio.runs.spec import Items
from hermes_trio.stores.base import Store
from hermes_trio.stores.sqlite import MemoryStore
from tests.runs.supervisor_harness import header_of, read_all
from tests.support.dialect_frames import numbered
from tests.support.strategies import scripts
from tests.support.turn_rules import check_invariants, feed, played


def no_items(ended: EndedRun) -> Items:
    return ()


async def leave_behind(
    store: Store, header: RunHeader, changes: list[Change], piece: int = 3
) -> None:
    """A run of a process that died after it had logged so much, in several batches."""
    await store.begin_run(header, Ownership("dead process"))
    for first in range(0, len(changes), piece):
        some = changes[first : first + piece]
        batch = LogBatch(header.principal, header.run_id, first, encode_changes(some), len(some))
        await store.append_log([batch])


async def found(store: Store, run_id: str) -> EndedRun:
    record = await store.find_run("ann", run_id)
    assert isinstance(record, EndedRun)
    return record


def without_time(items: tuple[object, ...]) -> list[str]:
    """Adding up floats may move the last digit of a duration."""
    return [repr(item).split("duration=", maxsplit=1)[0] for item in items]


@given(scripts, st.integers(1, 4))
@settings(max_examples=40, deadline=None)
async def test_cut_after_every_prefix_nothing_logged_is_lost(
    script: list[Event], piece: int
) -> None:
    store = MemoryStore()
    logged = feed(Turn(), script)
    for length in range(len(logged) + 1):
        await leave_behind(store, header_of(f"run-{length}"), logged[:length], piece)
    assert await recover(store, "this process", no_items) == len(logged) + 1
    for length in range(len(logged) + 1):
        await check_recovered(store, f"run-{length}", logged[:length])
    store.close()


async def check_recovered(store: Store, run_id: str, logged: list[Change]) -> None:
    record = await found(store, run_id)
    assert (record.outcome.status, record.outcome.reason) == (
        Status.INCOMPLETE,
        Reason.PROCESS_DIED,
    )
    log = await read_all(StoredReader(store, "ann", run_id))
    assert log[: len(logged)] == logged
    check_text(record, log)
    check_streams(record.header, logged, log)


def check_text(record: EndedRun, log: list[Change]) -> None:
    """Items, text and log tell the same."""
    said = "".join(change.text for change in log if isinstance(change, TextAdded))
    assert "".join(item.text for item in record.items if isinstance(item, MessageItem)) == said


def check_streams(header: RunHeader, logged: list[Change], log: list[Change]) -> None:
    """What clients were sent before the crash is the beginning of what they can read now, and that has an end."""
    before, now = frames_after(header, logged), frames_after(header, log)
    assert now.startswith(before)
    assert now.endswith(DONE)
    last = before.count(b"\n\n") - 1
    assert before + frames_after(header, log, last) == now
    assert now.count(b'"type": "response.incomplete"') == 1


@given(scripts)
@settings(max_examples=40, deadline=None)
async def test_the_record_is_the_one_that_a_cut_would_have_made(script: list[Event]) -> None:
    store = MemoryStore()
    await leave_behind(store, header_of("run-1"), feed(Turn(), script))
    await recover(store, "this process", no_items)
    turn, _ = played(script, Reason.PROCESS_DIED)
    record = await found(store, "run-1")
    assert without_time(record.items) == without_time(turn.items)
    assert record.outcome == turn.outcome
    log = await read_all(StoredReader(store, "ann", "run-1"))
    check_invariants(turn, log)
    store.close()


async def test_own_runs_are_left_alone_and_nothing_is_done_twice() -> None:
    store = MemoryStore()
    await leave_behind(store, header_of("theirs"), [TextAdded(0, "so far")])
    await store.begin_run(header_of("ours"), Ownership("this process"))
    assert await recover(store, "this process", no_items) == 1
    before = await read_all(StoredReader(store, "ann", "theirs"))
    assert isinstance(await store.find_run("ann", "ours"), LiveRun)
    assert await recover(store, "this process", no_items) == 0
    assert await read_all(StoredReader(store, "ann", "theirs")) == before


async def test_a_conversation_gains_what_was_said() -> None:
    store, header = MemoryStore(), header_of("run-1", conversation="talk")
    await leave_behind(store, header, [TextAdded(0, "so far")])
    await recover(store, "this process", lambda ended: ({"id": "x", "said": repr(ended.items)},))
    page = await store.list_items("ann", "talk")
    assert [item["id"] for item in page.items] == ["x"]
    assert "so far" in page.items[0]["said"]


async def test_the_next_turn_knows_what_was_said() -> None:
    store = MemoryStore()
    await leave_behind(
        store, header_of("run-1"), feed(Turn(), [Text("so far"), ToolStarted("a", "terminal")])
    )
    await recover(store, "this process", no_items)
    messages = await store.load_history("ann", "run-1")
    assert [message.role for message in messages] == ["user", "assistant", "tool"]
    assert messages[1].content == "so far"


@pytest.mark.parametrize("body", [b"", b"not zlib", encode_changes([])[:-3]])
async def test_a_damaged_log_does_not_stand_in_the_way(body: bytes) -> None:
    store = MemoryStore()
    await store.begin_run(header_of("run-1"), Ownership("dead process"))
    await store.append_log([LogBatch("ann", "run-1", 0, body, 1)])
    await leave_behind(store, header_of("run-2"), [TextAdded(0, "whole")])
    assert await recover(store, "this process", no_items) == 2
    damaged, whole_one = [await store.find_run("ann", name) for name in ("run-1", "run-2")]
    assert isinstance(damaged, EndedRun)
    assert isinstance(whole_one, EndedRun)
    assert damaged.outcome.reason is whole_one.outcome.reason is Reason.PROCESS_DIED
    assert (damaged.items, whole_one.items) == ((), (MessageItem("whole"),))


@pytest.mark.parametrize("lost", [1, 2, 3, 4, 5, 6, 20])
async def test_a_client_ahead_of_the_store_is_told_the_end(lost: int) -> None:
    """It had events that died with the process, and asks for those after its last."""
    header = header_of("run-1")
    logged: list[Change] = [TextAdded(0, f"{number} ") for number in range(3)]
    more: list[Change] = [TextAdded(0, "lost ")] * lost
    store = MemoryStore()
    await leave_behind(store, header, logged)
    await recover(store, "this process", no_items)
    last = frames_after(header, logged + more, FROM_THE_START).count(b"\n\n") - 1
    resumed = frames_after(header, await read_all(StoredReader(store, "ann", "run-1")), last)
    assert resumed.count(b"event: response.incomplete") == 1
    assert resumed.endswith(DONE)


DIALECTS = {"responses": frames_after, "runs": runs.frames_after, "sessions": sessions.frames_after}


@pytest.mark.parametrize("frames_in", DIALECTS.values(), ids=DIALECTS)
@given(script=scripts, stored=st.integers(0, 25))
@settings(max_examples=30, deadline=None)
async def test_no_number_stands_for_two_events(
    frames_in: Callable[..., bytes], script: list[Event], stored: int
) -> None:
    """A client had more events than the store when the process died, and asks for those after its last."""
    header, store = header_of("run-1"), MemoryStore()
    sent = feed(Turn(), script)
    await leave_behind(store, header, sent[:stored])
    await recover(store, "this process", no_items)
    log = await read_all(StoredReader(store, "ann", "run-1"))
    store.close()

    seen, now = numbered(frames_in(header, sent)), numbered(frames_in(header, log))
    assert {number: now[number] for number in seen.keys() & now} == numbered(
        frames_in(header, sent[:stored])
    )
    resumed = frames_in(header, log, max(seen))
    assert numbered(resumed) == {number: now[number] for number in now.keys() - seen.keys()}
    assert b"process_died" in resumed
