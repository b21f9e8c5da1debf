"""Stop the owner of runs for longer than its lease, and continue it: nothing that it writes counts any more."""

from __future__ import annotations

import random

import trio
from attrs import define, field

from tests.cluster.checks import events_of
from tests.cluster.exchange import Address, Reply, ask, exchange
from tests.cluster.load import RESPONSES, RUNS
from tests.cluster.nodes import (
    LOGGED_AFTER_A_DEATH,
    TAKE_OVER,
    Cluster,
    wait_ended,
    wait_idle,
    wait_ready,
)
from tests.cluster.races import without_comments
from tests.cluster.records import Records
from tests.crash.frames import DONE, frames_of
from tests.support.dialect_frames import numbered

STREAMS = 6
LOAD = "tokens=100000 rate={rate} tools=5"
ATTEMPTS = 200
_OPEN_TRANSACTIONS = """
    SELECT pid FROM pg_stat_activity AS activity
    WHERE datname = current_database() AND state = 'idle in transaction'
        AND state_change < clock_timestamp() - INTERVAL '50 ms'
        AND EXISTS (
            SELECT 1 FROM pg_locks WHERE pg_locks.pid = activity.pid AND relation = 'runs'::regclass
                AND mode IN ('RowShareLock', 'RowExclusiveLock')
        )
"""
ENDS = ("completed", "incomplete", "failed", "cancelled")


@define
class Listener:
    """A client of one stream on the owner, which is cut off at any byte."""

    kind: str  # responses or runs
    wanted: int  # bytes that it has at least when the owner stops
    run_id: str = ""
    cut: bytes = b""  # what it had then
    whole: bytes = b""  # and what it got until its connection ended
    resumed: bytes = b""  # what it got elsewhere
    problems: list[str] = field(factory=list)
    has_enough: trio.Event = field(factory=trio.Event)
    was_cut: trio.Event = field(factory=trio.Event)

    async def listen(self, owner: Address, is_stopped: trio.Event) -> None:
        """Read until the owner has stopped; then keep the connection until the owner ends it."""
        async with exchange(owner, "GET", self.path(-1)) as connection:
            while len(connection.body) < self.wanted:
                assert await connection.read(), connection.reply
            self.has_enough.set()
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._cancel_when, is_stopped, scope)
                    while await connection.read():
                        pass
            self.cut = bytes(connection.body)
            self.was_cut.set()
            while await connection.read():
                pass
            self.whole = bytes(connection.body)

    @staticmethod
    async def _cancel_when(is_stopped: trio.Event, scope: trio.CancelScope) -> None:
        await is_stopped.wait()
        scope.cancel()

    def path(self, last: int) -> str:
        """Return where the stream goes on after an event."""
        if self.kind == "runs":
            return f"{RUNS}/{self.run_id}/events?last_seq={last}"
        return f"{RESPONSES}/{self.run_id}?stream=true&starting_after={last}"

    @property
    def kept(self) -> bytes:
        """The whole events of what it had when the owner stopped."""
        return self.cut[: self.cut.rfind(b"\n\n") + 2]

    @property
    def last(self) -> int:
        """The number of the last whole event."""
        if self.kind == "runs":
            return max((data["seq"] for _, data in events_of(self.kept)), default=-1)
        return max((frame.number for frame in frames_of(self.kept)), default=-1)


async def pause_owner(
    cluster: Cluster, seconds: float, seed: str, is_strict: bool, in_transaction: bool = False
) -> list[str]:
    """Stop a node for some seconds while it executes runs; return what went wrong.

    It may have to be stopped in the middle of a transaction, whose locks nobody else can release.
    """
    dice = random.Random(seed)
    owner_number = dice.randrange(len(cluster.servers))
    owner, others = cluster.nodes[owner_number], cluster.others(owner_number)
    listeners = [
        await _begin(owner, dice, "runs" if number % 2 else "responses")
        for number in range(STREAMS)
    ]
    is_stopped = trio.Event()
    records = Records(cluster.url)
    async with trio.open_nursery() as nursery:
        for listener in listeners:
            nursery.start_soon(listener.listen, owner, is_stopped)
        for listener in listeners:
            await listener.has_enough.wait()
        if in_transaction:
            await _pause_in_transaction(cluster, owner_number, dice)
        else:
            cluster.pause(owner_number)
        stopped_at = trio.current_time()
        is_stopped.set()
        for listener in listeners:
            await listener.was_cut.wait()
        try:
            await _resume_elsewhere(listeners, others)
            before = records.snapshot()
            await trio.sleep_until(stopped_at + seconds)  # so long it is stopped: that is the test
        finally:
            cluster.resume(owner_number)
        with trio.move_on_after(TAKE_OVER) as scope:
            await wait_ready(owner)
            await wait_idle(owner)
        nursery.cancel_scope.deadline = trio.current_time() + TAKE_OVER
    problems = ["the owner did not recover, or its clients still wait"] * (
        scope.cancelled_caught or nursery.cancel_scope.cancelled_caught
    )
    if records.snapshot() != before:
        problems.append("the owner changed records of runs that it had lost")
    for listener in listeners:
        for node in cluster.nodes:
            problems += await _check(listener, node, is_strict)
    problems += await _check_alive(owner)
    problems += records.violations()
    return problems + [f"logged: {line}" for line in cluster.complaints(LOGGED_AFTER_A_DEATH)]


async def _pause_in_transaction(cluster: Cluster, number: int, dice: random.Random) -> None:
    """Stop a node again and again until it holds locks on runs."""
    records = Records(cluster.url)
    for _ in range(ATTEMPTS):
        cluster.pause(number)
        # What has reached PostgreSQL is done by then; what other nodes have open is closed.
        await trio.sleep(0.1)
        if records.rows(_OPEN_TRANSACTIONS):
            return
        cluster.resume(number)
        await trio.sleep(dice.uniform(0, 0.05))  # somewhere between two transactions
    raise AssertionError("the node never had a transaction open when it was stopped")


async def _begin(owner: Address, dice: random.Random, kind: str) -> Listener:
    listener = Listener(kind, wanted=dice.randrange(1500, 6000))
    load = LOAD.format(rate=dice.choice((50, 200)))
    if kind == "runs":
        started = await ask(owner, "POST", RUNS, {"input": load})
        listener.run_id = started.json()["run_id"]
    else:
        started = await ask(owner, "POST", RESPONSES, {"input": load, "background": True})
        listener.run_id = started.json()["id"]
    return listener


async def _resume_elsewhere(listeners: list[Listener], others: list[Address]) -> None:
    """Continue every stream on other nodes, after the last whole event, at once."""

    async def resume(listener: Listener, node: Address) -> None:
        try:
            reply = await ask(node, "GET", listener.path(listener.last), seconds=TAKE_OVER + 5)
            ended = await wait_ended(node, listener.run_id, TAKE_OVER)
        except (trio.TooSlowError, AssertionError) as error:
            listener.problems.append(
                f"does not come to its end while its owner is stopped: {error!r}"
            )
            return
        if reply.status != 200 or not reply.is_whole:
            listener.problems.append(f"cannot be resumed: {reply}")
        listener.resumed = without_comments(reply.body)
        if ended.get("reason") != "process_died":
            listener.problems.append(f"ended with {ended.get('reason')}")

    async with trio.open_nursery() as nursery:
        for number, listener in enumerate(listeners):
            nursery.start_soon(resume, listener, others[number % len(others)])


async def _check(listener: Listener, node: Address, is_strict: bool) -> list[str]:
    """Check that what came before the cut and what came after it is the stored stream, byte for byte."""
    reply: Reply = await ask(node, "GET", listener.path(-1))
    stored, kept = without_comments(reply.body), without_comments(listener.kept)
    found = list(listener.problems)
    if is_strict:
        if kept + listener.resumed != stored:
            found.append(
                f"{len(kept)} + {len(listener.resumed)} bytes are not the {len(stored)} of the stored stream"
            )
    elif not stored.endswith(listener.resumed) or not listener.resumed:
        found.append("the resumed stream is not the end of the stored one")
    later = without_comments(listener.whole)[len(kept) :]
    if _has_end(later) and not stored.endswith(later):
        found.append(f"its owner announced an end of its own: {later[-300:]!r}")
    if is_strict and not numbered(listener.whole).items() <= numbered(reply.body).items():
        found.append("its owner sent events that are not stored")
    return [f"{listener.kind} {listener.run_id} on {node.port}: {problem}" for problem in found]


def _has_end(body: bytes) -> bool:
    marks = (f'"{kind}.{end}"'.encode() for kind in ("response", "run") for end in ENDS)
    return DONE in body or any(mark in body for mark in marks)


async def _check_alive(owner: Address) -> list[str]:
    """The node that was stopped works again."""
    reply = await ask(owner, "POST", RESPONSES, {"input": "tokens=3"})
    is_good = reply.status == 200 and reply.json()["status"] == "completed"
    return [] if is_good else [f"it does not work after the pause: {reply}"]
