"""A run as a whole: the one way out, whoever takes it and whenever."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import structlog
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from hermes_trio.agent.emitter import AsyncEmitter
from hermes_trio.agent.interface import TurnRequest
from hermes_trio.core.changes import Change, Ended, TextAdded
from hermes_trio.core.events import (
    Event,
    Finished,
    Reasoning,
    Result,
    Text,
    ToolCompleted,
    ToolOutput,
    ToolStarted,
)
from hermes_trio.core.messages import Message, MessageItem, Usage, transcript
from hermes_trio.core.outcome import Reason, Status
from hermes_trio.core.records import EndedRun
from hermes_trio.runs.persistence import RETRY_SECONDS
from hermes_trio.runs.supervisor import request_scoped_run
from hermes_trio.runs.tracker import RunLimits
from hermes_trio.stores.base import StoreError
from tests.support.run_harness import EventReplayAgent, RecordingStore, RunHarness, rest_of
from tests.support.turn_rules import played

SCRIPT: list[Event] = [
    Reasoning("hm"),
    Text("one "),
    ToolStarted("a", "terminal", {"command": "ls"}),
    ToolOutput("a", "half"),
    ToolStarted("b", "_internal"),
    ToolCompleted("a", "whole"),
    Text("two "),
    ToolStarted("c", "terminal"),
    Text("three"),
]
PREFIXES = [SCRIPT[:length] for length in range(len(SCRIPT) + 1)]


def said_by(record: EndedRun) -> str:
    """All text of the agent in the messages that a later turn reads."""
    return "".join(
        str(message.content) for message in transcript(record.items) if message.role == "assistant"
    )


def check(changes: list[Change], record: EndedRun, script: list[Event], reason: Reason) -> None:
    """Wire and store tell the same story, and it is the whole one."""
    turn, _ = played(script, reason)
    end = changes[-1]
    assert isinstance(end, Ended)
    assert end.outcome == record.outcome
    assert end.outcome.reason is reason
    assert "".join(change.text for change in changes if isinstance(change, TextAdded)) == turn.text
    assert said_by(record) == turn.text


async def read_all(harness: RunHarness) -> None:
    """A client that reads what there is."""
    async with request_scoped_run(harness.services, harness.order) as changes:
        async for _ in changes:
            pass


async def test_a_finished_run_is_saved_before_it_is_told() -> None:
    harness = RunHarness(EventReplayAgent([*SCRIPT, Finished(Result(session_id="moved"))]))
    async with harness.open() as run:
        with run.log.subscribe() as reader:
            async for batch in reader:
                if any(isinstance(change, Ended) for change in batch):
                    assert harness.store.records
    [record] = harness.store.records
    assert (record.outcome.status, record.outcome.session_id) == (Status.COMPLETED, "moved")
    assert await harness.store.load_messages("ann", "session-1") == ()
    messages = await harness.store.load_messages("ann", "moved")
    assert messages == (Message("user", "hello"), *transcript(record.items))
    harness.check_nothing_left()


@pytest.mark.parametrize("script", PREFIXES)
@pytest.mark.parametrize("reason", [Reason.STOP_REQUESTED, Reason.SERVER_SHUTDOWN])
async def test_a_stop_after_any_prefix_tells_and_saves_everything(
    script: list[Event], reason: Reason
) -> None:
    agent = EventReplayAgent(script, holds=True)
    harness = RunHarness(agent)
    changes: list[Change] = []

    async with harness.open() as run, trio.open_nursery() as nursery:

        async def read() -> None:
            changes.extend(await rest_of(run))

        nursery.start_soon(read)
        await agent.said_all.wait()
        run.stop(reason)
    [record] = harness.store.records
    check(changes, record, script, reason)
    harness.check_nothing_left()


@pytest.mark.parametrize("script", PREFIXES)
async def test_a_client_that_leaves_after_any_prefix_loses_nothing(script: list[Event]) -> None:
    agent = EventReplayAgent(script, holds=True)
    harness = RunHarness(agent)
    async with trio.open_nursery() as client:
        client.start_soon(read_all, harness)
        await agent.said_all.wait()
        client.cancel_scope.cancel()
    [record] = harness.store.records
    turn, _ = played(script)
    assert (record.outcome.status, record.outcome.reason) == (
        Status.INCOMPLETE,
        Reason.CLIENT_DISCONNECTED,
    )
    assert said_by(record) == turn.text
    harness.check_nothing_left()


async def test_a_reader_that_just_leaves_ends_the_run() -> None:
    harness = RunHarness(EventReplayAgent([Text("a")], holds=True))
    async with request_scoped_run(harness.services, harness.order) as changes:
        await changes.receive()
    assert harness.store.records[0].outcome.reason is Reason.CLIENT_DISCONNECTED
    harness.check_nothing_left()


async def test_a_cancelled_block_waits_for_the_end() -> None:
    harness = RunHarness(EventReplayAgent([Text("a")], holds=True))
    with trio.CancelScope() as request:
        async with request_scoped_run(harness.services, harness.order) as changes:
            await changes.receive()
            request.cancel()
            await trio.sleep_forever()
    assert harness.store.records[0].outcome.reason is Reason.CLIENT_DISCONNECTED
    harness.check_nothing_left()


async def test_a_reader_that_fails_ends_the_run_as_our_fault() -> None:
    harness = RunHarness(EventReplayAgent([Text("a")], holds=True))
    with pytest.RaisesGroup(ZeroDivisionError):
        async with request_scoped_run(harness.services, harness.order):
            raise ZeroDivisionError
    assert harness.store.records[0].outcome.reason is Reason.SERVER_ERROR
    harness.check_nothing_left()


async def test_a_client_that_leaves_after_the_finish_changes_nothing() -> None:
    harness = RunHarness(EventReplayAgent([Text("a"), Finished()]))
    with trio.CancelScope() as request:
        async with request_scoped_run(harness.services, harness.order) as changes:
            async for batch in changes:
                if isinstance(batch[-1], Ended):
                    request.cancel()
    assert [record.outcome.status for record in harness.store.records] == [Status.COMPLETED]


async def test_an_agent_that_had_finished_is_complete_whatever_comes() -> None:
    """Cut after the agent returned but before the tracker heard of it."""
    agent = EventReplayAgent([Text("all of it"), Finished()], holds=True)
    harness = RunHarness(agent)
    async with harness.open() as run:
        await agent.said_all.wait()
        await wait_all_tasks_blocked()
        agent.may_end.set()
        await trio.lowlevel.checkpoint()
        run.stop(Reason.STOP_REQUESTED)
        changes = await rest_of(run)
    assert isinstance(changes[-1], Ended)
    assert changes[-1].outcome.status is Status.COMPLETED
    assert harness.store.records[0].outcome.status is Status.COMPLETED


async def test_a_stop_before_the_run_began() -> None:
    harness = RunHarness(EventReplayAgent([Text("never")]))
    async with harness.open() as run:
        run.stop(Reason.STOP_REQUESTED)
        changes = await rest_of(run)
    assert [type(change) for change in changes] == [Ended]
    assert harness.store.records[0].outcome.status is Status.CANCELLED
    harness.check_nothing_left()


async def test_the_first_reason_counts() -> None:
    agent = EventReplayAgent([Text("a")], holds=True)
    harness = RunHarness(agent)
    async with harness.open() as run:
        await agent.said_all.wait()
        run.stop(Reason.SERVER_SHUTDOWN)
        run.stop(Reason.STOP_REQUESTED)
        await rest_of(run)
    assert harness.store.records[0].outcome.reason is Reason.SERVER_SHUTDOWN


async def test_the_time_limit(mock_clock: MockClock) -> None:
    agent = EventReplayAgent([Text("a")], holds=True)
    harness = RunHarness(agent, RunLimits(run=30.0))
    async with harness.open() as run:
        await agent.said_all.wait()
        await wait_all_tasks_blocked()
        mock_clock.jump(31.0)
        changes = await rest_of(run)
    check(changes, harness.store.records[0], [Text("a")], Reason.TIMEOUT)
    harness.check_nothing_left()


async def test_a_reader_that_stops_reading(mock_clock: MockClock) -> None:
    agent = EventReplayAgent([Text(str(n)) for n in range(2000)], holds=True)
    harness = RunHarness(agent, RunLimits(stall=30.0))
    async with harness.open() as run:
        run.log.subscribe(applies_backpressure=True)
        while run.log.has_room:  # the agent is a thread, and says nothing when it is held back
            await trio.lowlevel.checkpoint()
        mock_clock.jump(31.0)
        await run.ended.wait()
    assert not agent.said_all.is_set(), "the agent is held back by its reader"
    [record] = harness.store.records
    assert record.outcome.reason is Reason.STALLED_READER
    harness.check_nothing_left()


@pytest.mark.parametrize(("ahead", "is_held"), [(20, True), (10_000, False)])
async def test_how_far_an_agent_may_be_ahead(ahead: int, is_held: bool) -> None:
    agent = EventReplayAgent([Text("0123456789")] * 50, holds=True)
    harness = RunHarness(agent, RunLimits(ahead=ahead))
    async with harness.open() as run:
        run.log.subscribe(applies_backpressure=True)
        while not run.log.end:  # it is made in a thread
            await trio.lowlevel.checkpoint()
        await wait_all_tasks_blocked()
        assert agent.said_all.is_set() is not is_held
        run.stop(Reason.STOP_REQUESTED)
    harness.check_nothing_left()


async def test_a_store_that_refuses_is_told_as_a_failure() -> None:
    async def refuse() -> None:
        raise StoreError("disk full")

    harness = RunHarness(EventReplayAgent([Text("a"), Finished()]), store=RecordingStore(refuse))
    async with harness.open() as run:
        changes = await rest_of(run)
    assert isinstance(changes[-1], Ended)
    assert changes[-1].outcome.reason is Reason.SERVER_ERROR
    assert changes[-1].outcome.failure.message == "The answer could not be stored."
    harness.check_nothing_left()


async def test_a_store_that_hangs_is_given_up(mock_clock: MockClock) -> None:
    saving = trio.Event()

    async def hang() -> None:
        saving.set()
        await trio.sleep_forever()

    harness = RunHarness(
        EventReplayAgent([Text("a"), Finished()]), RunLimits(save=10.0), RecordingStore(hang)
    )
    changes: list[Change] = []
    async with harness.open() as run, trio.open_nursery() as nursery:

        async def read() -> None:
            changes.extend(await rest_of(run))

        nursery.start_soon(read)
        await saving.wait()
        mock_clock.jump(11.0)
    assert isinstance(changes[-1], Ended)
    assert changes[-1].outcome.status is Status.FAILED
    harness.check_nothing_left()


async def test_a_mistake_of_the_moment_is_made_good() -> None:
    harness = RunHarness(
        EventReplayAgent([Text("a"), Finished()]), store=RecordingStore(failing(1))
    )
    async with harness.open() as run:
        changes = await rest_of(run)
    assert isinstance(changes[-1], Ended)
    assert [record.outcome.status for record in harness.store.records] == [Status.COMPLETED]
    harness.check_nothing_left()


def failing(times: int) -> Callable[[], Awaitable[None]]:
    """A store that makes a mistake, so many times."""
    faults = iter([True] * times)

    async def fail() -> None:
        if next(faults, False):
            raise ZeroDivisionError

    return fail


async def test_a_mistake_of_ours_takes_the_same_way_out(autojump_clock: MockClock) -> None:
    agent = EventReplayAgent([Text("a"), Finished()])
    harness = RunHarness(agent, store=RecordingStore(failing(2)))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(harness.services.flusher.run)
        async with harness.open() as run:
            changes = await rest_of(run)
        assert isinstance(changes[-1], Ended)
        assert changes[-1].outcome.reason is Reason.SERVER_ERROR
        await trio.sleep(2 * RETRY_SECONDS)
        nursery.cancel_scope.cancel()
    # As it was told, with all that was said: the store took it a moment later.
    assert [record.outcome for record in harness.store.records] == [changes[-1].outcome]
    assert harness.store.records[0].items == (MessageItem("a"),)
    harness.check_nothing_left()


async def test_every_end_is_counted_as_it_was_told() -> None:
    async def refuse() -> None:
        raise StoreError("disk full")

    harness = RunHarness(EventReplayAgent([Text("a"), Finished()]), store=RecordingStore(refuse))
    await read_all(harness)
    assert [outcome.reason for outcome in harness.ends] == [Reason.SERVER_ERROR]


async def test_a_run_logs_its_start_and_its_end_under_its_id() -> None:
    harness = RunHarness(EventReplayAgent([Text("a"), Finished(Result(usage=Usage(3, 4)))]))
    with structlog.testing.capture_logs([structlog.contextvars.merge_contextvars]) as lines:
        await read_all(harness)
    assert structlog.contextvars.get_contextvars() == {}
    start, end = lines
    assert (start["event"], start["run_id"], start["kind"]) == ("run started", "run-1", "chat")
    assert (end["event"], end["run_id"], end["status"], end["reason"]) == (
        "run ended",
        "run-1",
        "completed",
        "",
    )
    assert (end["input_tokens"], end["output_tokens"]) == (3, 4)
    assert end["seconds"] >= 0


async def test_what_an_agent_raises_is_logged_under_the_id_of_its_run() -> None:
    class Failing:
        async def run(self, turn: TurnRequest, emitter: AsyncEmitter) -> None:
            raise ValueError("boom")

    with structlog.testing.capture_logs([structlog.contextvars.merge_contextvars]) as lines:
        await read_all(RunHarness(Failing()))
    [line] = [line for line in lines if line["log_level"] == "error"]
    assert line["run_id"] == "run-1"
    assert str(line["exc_info"]) == "boom"
