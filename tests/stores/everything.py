"""A store that holds some of everything, and everything that can be read of a store."""

from __future__ import annotations

from typing import Any

import attrs

from hermes_trio.core.approvals import Grant
from hermes_trio.core.changes import TextAdded
from hermes_trio.core.log_codec import encode_changes
from hermes_trio.core.messages import Message, MessageItem
from hermes_trio.core.records import OLDEST, EndedRun, IdempotencyRecord, LogBatch, RunQuery
from hermes_trio.core.sessions import Session, SessionChange, SessionFork, SessionQuery
from hermes_trio.stores.base import Store
from tests.stores.contract.jobs import RICH as RICH_JOB
from tests.stores.samples import (
    COMPLETED,
    ODD,
    RICH_RUN,
    batch,
    begin_and_log,
    conversation,
    end_chain,
    ended,
    ended_with_messages,
    header,
    idempotency_record,
    item,
)

DAY = 86_400
PRINCIPALS = ("ann", "bob", "odd \0 \1 \U0001f600")
RUNS = (
    "live",
    "rich",
    "a",
    "b",
    "c",
    "z-first",
    "a-second",
    "gone",
    "big",
    "hidden",
    "old",
    "early",
    "o\0dd",
)
SESSIONS = ("s", "moved", "named", "fork", "o\0dd", "big")
CLAIM = idempotency_record("rich")
BIG = "\u00e4 large text \0" * 300_000
_UNSTORED = {"store": False}


async def fill(store: Store) -> None:
    """Store some of everything for several principals."""
    await begin_and_log(store, "live", 3)
    await store.end_run(
        RICH_RUN, [batch("rich", 0, 4), batch("rich", 4)], [item("i1"), item(ODD[4:])]
    )
    await end_chain(store, "a", "b", "c")
    await store.delete_run("ann", "b")  # leaves a stub, which "c" continues
    await store.end_run(ended("gone"))
    await store.delete_run("ann", "gone")
    # Of two runs that began at the same time, the one that was stored last is the latest.
    for run_id in ("z-first", "a-second"):
        await store.end_run(ended(run_id, 5.0, conversation="tied"))
    await store.end_run(ended("hidden", 6.0, request=_UNSTORED))
    await _fill_sizes_and_days(store)
    await _fill_sessions(store)
    await store.claim_key(CLAIM)
    await store.claim_key(attrs.evolve(CLAIM, key=ODD[2:], run_id="never begun"))
    await store.grant([Grant("ann", "", "rm", 1.0), Grant("ann", "s", "dd", 2.0, "web:zoe")])
    for principal in PRINCIPALS[1:]:
        await _fill_principal(store, principal)
    await store.find_run("ann", "a")  # counts as used, once something else is written
    await store.save_conversation(conversation("empty"))


async def _fill_sizes_and_days(store: Store) -> None:
    big = ended_with_messages("big", Message("user", BIG), session_id="big")
    body = encode_changes([TextAdded(0, f"{number:x}") for number in range(200_000)])
    await store.end_run(big, [LogBatch("ann", "big", 0, body, 200_000)])
    await store.end_run(ended("old", 1000.5 * DAY), [batch("old", 0)])
    await store.end_run(ended("early", -0.5 * DAY), [batch("early", 0)])


async def _fill_sessions(store: Store) -> None:
    created = Session("ann", "named", "sessions", 7.0, 7.0, title=ODD[2:], system_prompt="be kind")
    await store.create_session(created)
    await store.end_run(ended("o\0dd", 8.0, session_id="o\0dd"))
    await store.fork_session(SessionFork("ann", "s", "fork", "a fork", 9.0))
    change = SessionChange(end_reason="closed", pins=True)
    await store.update_session("ann", "named", change, 10.0)


async def _fill_principal(store: Store, principal: str) -> None:
    run = EndedRun(
        header("a", 2.0, principal=principal, conversation="c"),
        (MessageItem(f"for {principal}"),),
        COMPLETED,
        ended_after=1.0,
    )
    await store.end_run(run, [batch("a", 0, principal=principal)], [item("i1")])
    await store.claim_key(IdempotencyRecord(principal, "/v1/runs", "key", "body", "a", 3.0))
    await store.grant([Grant(principal, "", ODD, 1.0)])
    await store.add_job(attrs.evolve(RICH_JOB, principal=principal), 10)


async def read_everything(store: Store) -> dict[str, Any]:
    """Return the results of all reads of the interface."""
    return {f"{principal}": await _read_principal(store, principal) for principal in PRINCIPALS}


async def _read_principal(store: Store, principal: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "runs": await store.list_runs(principal, RunQuery(limit=100)),
        "by session": await store.list_runs(
            principal, RunQuery(after=OLDEST, newest_first=False, session_id="s")
        ),
        "sessions": await store.list_sessions(principal, SessionQuery(include_children=True)),
        "items by id": await store.find_items(principal, ["i1", "i2", "call_c1", "unknown"]),
        "grants": await store.list_grants(principal),
        "jobs": await store.list_jobs(principal),
        "granted": await store.is_granted(principal, "s", (ODD,)),
    }
    for run_id in RUNS:
        found[f"run {run_id}"] = await store.find_run(principal, run_id)
        found[f"log of {run_id}"] = await _read_log(store, principal, run_id)
        found[f"history of {run_id}"] = await store.load_history(principal, run_id)
    for session_id in SESSIONS:
        found[f"session {session_id}"] = await store.find_session(principal, session_id)
        found[f"transcript of {session_id}"] = await store.load_messages(principal, session_id)
        found[f"messages of {session_id}"] = await store.list_messages(principal, session_id)
    for conversation_id in ("c", "tied", "empty"):
        found[f"conversation {conversation_id}"] = await store.find_conversation(
            principal, conversation_id
        )
        found[f"latest of {conversation_id}"] = await store.find_latest_run(
            principal, conversation_id
        )
        found[f"items of {conversation_id}"] = await store.list_items(principal, conversation_id)
    return found


async def _read_log(store: Store, principal: str, run_id: str) -> list[LogBatch]:
    read: list[LogBatch] = []
    while more := await store.read_log(
        principal, run_id, read[-1].first + read[-1].count if read else 0
    ):
        read += more
    return read
