"""A run as a whole: the one way out, whoever takes it and whenever."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

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
from hermes_trio.core.messages import Message
from hermes_trio.core.outcome import Reason, Status
from hermes_trio.core.record import TurnRecord
from hermes_trio.runs.run import open_run
from hermes_trio.runs.tracker import Limits
from hermes_trio.stores.contract import StoreError
from tests.core.scripts import played
from tests.runs.setting import Notebook, Script, Setting, rest_of

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


def check(changes: list[Change], record: TurnRecord, script: list[Event], reason: Reason) -> None:
    """Wire and store tell the same story, and it is the whole one."""
    turn, _ = played(script, reason)
    end = changes[-1]
    assert isinstance(end, Ended)
    assert (str(end.outcome.status), str(end.outcome.reason)) == (record.status, record.reason)
    assert end.outcome.reason is reason
    assert "".join(change.text for change in changes if isinstance(change, TextAdded)) == turn.text
    assert record.messages[0] == Message("user", "hello")
    said = [str(message.content) for message in record.messages if message.role == "assistant"]
    assert "".join(said) == turn.text


async def read_all(setting: Setting) -> None:
    """A client that reads what there is."""
    async with open_run(setting.services, setting.order) as changes:
        async for _ in changes:
            pass


async def test_a_finished_run_is_saved_before_it_is_told() -> None:
    setting = Setting(Script([*SCRIPT, Finished(Result(session_id="moved"))]))
    async with setting.open() as run:
        changes: list[Change] = []
        async for batch in run.changes:
            changes += batch
            if any(isinstance(change, Ended) for change in batch):
                assert setting.store.records
    [record] = setting.store.records
    assert (record.status, record.session_id, record.run_id) == ("completed", "moved", "run-1")
    assert (record.started_at, record.ended_at, record.principal) == (99.0, 100.0, "ann")
    setting.check_nothing_left()


@pytest.mark.parametrize("script", PREFIXES)
@pytest.mark.parametrize("reason", [Reason.STOP_REQUESTED, Reason.SERVER_SHUTDOWN])
async def test_a_stop_after_any_prefix_tells_and_saves_everything(
    script: list[Event], reason: Reason
) -> None:
    agent = Script(script, holds=True)
    setting = Setting(agent)
    changes: list[Change] = []

    async with setting.open() as run, trio.open_nursery() as nursery:

        async def read() -> None:
            changes.extend(await rest_of(run))

        nursery.start_soon(read)
        await agent.said_all.wait()
        run.stop(reason)
    [record] = setting.store.records
    check(changes, record, script, reason)
    setting.check_nothing_left()


@pytest.mark.parametrize("script", PREFIXES)
async def test_a_client_that_leaves_after_any_prefix_loses_nothing(script: list[Event]) -> None:
    agent = Script(script, holds=True)
    setting = Setting(agent)
    async with trio.open_nursery() as client:
        client.start_soon(read_all, setting)
        await agent.said_all.wait()
        client.cancel_scope.cancel()
    [record] = setting.store.records
    turn, _ = played(script)
    assert (record.status, record.reason) == ("incomplete", "client_disconnected")
    said = [str(message.content) for message in record.messages if message.role == "assistant"]
    assert "".join(said) == turn.text
    setting.check_nothing_left()


async def test_a_reader_that_just_leaves_ends_the_run() -> None:
    setting = Setting(Script([Text("a")], holds=True))
    async with open_run(setting.services, setting.order) as changes:
        await changes.receive()
    assert setting.store.records[0].reason == "client_disconnected"
    setting.check_nothing_left()


async def test_a_reader_that_fails_ends_the_run_as_our_fault() -> None:
    setting = Setting(Script([Text("a")], holds=True))
    with pytest.RaisesGroup(ZeroDivisionError):
        async with open_run(setting.services, setting.order):
            raise ZeroDivisionError
    assert (setting.store.records[0].status, setting.store.records[0].reason) == ("failed", "server_error")
    setting.check_nothing_left()


async def test_a_client_that_leaves_after_the_finish_changes_nothing() -> None:
    setting = Setting(Script([Text("a"), Finished()]))
    with trio.CancelScope() as client:
        async with open_run(setting.services, setting.order) as changes:
            async for batch in changes:
                if isinstance(batch[-1], Ended):
                    client.cancel()
    assert [record.status for record in setting.store.records] == ["completed"]


async def test_an_agent_that_had_finished_is_complete_whatever_comes() -> None:
    """Cut after the agent returned but before the tracker heard of it."""
    agent = Script([Text("all of it"), Finished()], holds=True)
    setting = Setting(agent)
    async with setting.open() as run:
        await agent.said_all.wait()
        await wait_all_tasks_blocked()
        agent.may_end.set()
        await trio.lowlevel.checkpoint()
        run.stop(Reason.STOP_REQUESTED)
        changes = await rest_of(run)
    assert isinstance(changes[-1], Ended)
    assert changes[-1].outcome.status is Status.COMPLETED
    assert setting.store.records[0].status == "completed"


async def test_a_stop_before_the_run_began() -> None:
    setting = Setting(Script([Text("never")]))
    async with setting.open() as run:
        run.stop(Reason.STOP_REQUESTED)
        changes = await rest_of(run)
    assert [type(change) for change in changes] == [Ended]
    assert setting.store.records[0].status == "cancelled"
    setting.check_nothing_left()


async def test_the_first_reason_counts() -> None:
    agent = Script([Text("a")], holds=True)
    setting = Setting(agent)
    async with setting.open() as run:
        await agent.said_all.wait()
        run.stop(Reason.SERVER_SHUTDOWN)
        run.stop(Reason.STOP_REQUESTED)
        await rest_of(run)
    assert setting.store.records[0].reason == "server_shutdown"


async def test_the_time_limit(mock_clock: MockClock) -> None:
    agent = Script([Text("a")], holds=True)
    setting = Setting(agent, Limits(run=30.0))
    async with setting.open() as run:
        await agent.said_all.wait()
        await wait_all_tasks_blocked()
        mock_clock.jump(31.0)
        changes = await rest_of(run)
    check(changes, setting.store.records[0], [Text("a")], Reason.TIMEOUT)
    setting.check_nothing_left()


async def test_a_reader_that_stops_reading(mock_clock: MockClock) -> None:
    agent = Script([Text(str(n)) for n in range(2000)], holds=True)
    setting = Setting(agent, Limits(stall=30.0))
    async with setting.open():
        await wait_all_tasks_blocked(0.01)
        assert not agent.said_all.is_set(), "the agent is held back by its reader"
        mock_clock.jump(31.0)
        await wait_all_tasks_blocked(0.01)
    [record] = setting.store.records
    assert (record.status, record.reason) == ("incomplete", "stalled_reader")
    setting.check_nothing_left()


async def test_a_store_that_refuses_is_told_as_a_failure() -> None:
    async def refuse() -> None:
        raise StoreError("disk full")

    setting = Setting(Script([Text("a"), Finished()]), store=Notebook(refuse))
    async with setting.open() as run:
        changes = await rest_of(run)
    assert isinstance(changes[-1], Ended)
    assert changes[-1].outcome.reason is Reason.SERVER_ERROR
    assert changes[-1].outcome.failure.message == "The answer could not be stored."
    setting.check_nothing_left()


async def test_a_store_that_hangs_is_given_up(mock_clock: MockClock) -> None:
    setting = Setting(Script([Text("a"), Finished()]), Limits(save=10.0), Notebook(trio.sleep_forever))
    changes: list[Change] = []
    async with setting.open() as run, trio.open_nursery() as nursery:

        async def read() -> None:
            changes.extend(await rest_of(run))

        nursery.start_soon(read)
        await wait_all_tasks_blocked(0.01)
        mock_clock.jump(11.0)
    assert isinstance(changes[-1], Ended)
    assert changes[-1].outcome.status is Status.FAILED
    setting.check_nothing_left()


async def test_a_mistake_of_ours_takes_the_same_way_out() -> None:
    faults = iter([True])

    async def fail_once() -> None:
        if next(faults, False):
            raise ZeroDivisionError

    agent = Script([Text("a"), Finished()])
    setting = Setting(agent, store=Notebook(fail_once))
    async with setting.open() as run:
        changes = await rest_of(run)
    assert isinstance(changes[-1], Ended)
    assert [record.status for record in setting.store.records] == ["completed"]
    setting.check_nothing_left()


async def test_every_end_is_counted() -> None:
    seen: list[tuple[str, float]] = []
    setting = Setting(Script([Text("a"), Finished()]))
    services = setting.services
    object.__setattr__(
        services, "on_end", lambda outcome, seconds: seen.append((str(outcome.status), seconds))
    )
    async with open_run(services, setting.order) as changes:
        async for _ in changes:
            pass
    assert [status for status, _ in seen] == ["completed"]
