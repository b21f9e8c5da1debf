"""Agents that do not keep to the contract, in real threads.

They harm their own run, never another, never the server.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
import trio
from attrs import define, field
from structlog.testing import capture_logs
from trio.testing import MockClock, wait_all_tasks_blocked

from hermes_trio.agent.emitter import Emitter
from hermes_trio.agent.event_queue import RunEnded
from hermes_trio.agent.interface import AgentContext, TurnRequest
from hermes_trio.core.messages import CallItem
from hermes_trio.core.records import EndedRun
from tests.robustness.invariants import (
    check,
    faults_against_record,
    faults_of_record,
    faults_of_stream,
    stored_run_of_record,
)
from tests.robustness.report import CaseCounter
from tests.robustness.streams import Dialect, ReceivedStream, read_stream
from tests.support.asgi import real_timeout
from tests.support.fakes import AppHarness, ScriptedAgentFactory, open_harness

RESPONSES = "/v1/responses"
STREAM = {"input": "Hi", "stream": True}
Play = Callable[[TurnRequest, Emitter], Any]


@define(eq=False)
class FunctionAgents(ScriptedAgentFactory):
    """Makes agents that do just what a function does."""

    play: Play = field(default=lambda turn, emitter: None)

    def factory(self, context: AgentContext) -> Any:
        """Make an agent without any manners."""
        return _FunctionAgent(self.play)


@define(eq=False)
class _FunctionAgent:
    run: Play


async def judged(harness: AppHarness, received: ReceivedStream) -> EndedRun:
    """The record of a stream, held against all invariants."""
    check(faults_of_stream(received, 0))
    found = await harness.store.find_run("ann", received.run_id)
    assert isinstance(found, EndedRun), found
    check(faults_of_record(stored_run_of_record(found)))
    check(faults_against_record(received, stored_run_of_record(found)))
    return found


async def streamed(play: Play) -> EndedRun:
    """What became of one turn of such an agent; the same server then serves a good one."""
    with capture_logs():
        async with open_harness(FunctionAgents((), play=play)) as harness:
            async with harness.client.post(RESPONSES, STREAM) as exchange:
                await (
                    exchange.over.wait()
                )  # a flood takes a while; only the time limit of the test bounds it
            assert exchange.was_finished
            assert exchange.answer.status == 200, exchange.raw
            received = read_stream(Dialect.RESPONSES, exchange.raw)
            assert received.is_closed
            record = await judged(harness, received)
            harness.agents.play = lambda turn, emitter: "Fine."  # type: ignore[attr-defined]
            good = await harness.client.send(RESPONSES, STREAM)
            assert read_stream(Dialect.RESPONSES, good.body).text == "Fine."
            await harness.until_idle()
            return record


# -- raising --


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("not even this")


RAISED = [ValueError("no"), Unprintable(), SystemExit(3), KeyboardInterrupt(), GeneratorExit(), StopIteration(), RecursionError(),
          MemoryError(), trio.TooSlowError(), RunEnded(), BaseException("all"), ExceptionGroup("g", [ValueError()])]  # fmt: skip
POSITIONS = 7


def raising(position: int, error: BaseException) -> Play:
    def play(turn: TurnRequest, emitter: Emitter) -> None:
        steps: list[Callable[[], Any]] = [
            lambda: emitter.text("a"),
            lambda: emitter.reasoning("b"),
            lambda: emitter.tool_started("c", "terminal", {}),
            lambda: emitter.tool_output("c", "d"),
            lambda: emitter.tool_completed("c", "e"),
            lambda: emitter.text("f"),
        ]
        for number in range(POSITIONS):
            if number == position:
                raise error
            steps[number]()

    return play


@pytest.mark.slow
async def test_raising_anything_anywhere(cases: CaseCounter) -> None:
    for position in range(POSITIONS):
        for error in RAISED:
            record = await streamed(raising(position, error))
            assert str(record.outcome.status) == "failed"
            assert stored_run_of_record(record).text == ("a" if position else "") + (
                "f" if position == 6 else ""
            )
    cases.add("agents", {"exceptions": POSITIONS * len(RAISED)})


# -- wrong types and huge values --


class Nasty:
    def __str__(self) -> str:
        raise ValueError

    def __repr__(self) -> str:
        raise ValueError

    def __eq__(self, other: object) -> bool:
        raise ValueError

    __hash__ = None  # type: ignore[assignment]


def _cycle() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["self"] = value
    return value


def _deep() -> Any:
    value: Any = 1
    for _ in range(5_000):
        value = [value]
    return value


WRONG: list[Any] = [None, 0, 1.5, float("nan"), float("inf"), 10**400, b"bytes", bytearray(b"x"), [1], (1,), {1: 2}, {"a": {1, 2}}, object(), Nasty(),
                    Nasty, _cycle(), _deep(), "\ud800", "\0", "x" * 1_000_000, {Nasty: 1}, {"k": Nasty()}, range(3), lambda: 1, iter([])]  # fmt: skip


def saying(value: Any) -> Play:
    """Says it wherever something can be said.

    What refuses it may do so by raising, in the agent.
    """

    def play(turn: TurnRequest, emitter: Emitter) -> str:
        speak: Any = emitter
        calls: tuple[Callable[[], object], ...] = (
            lambda: speak.text(value),
            lambda: speak.reasoning(value),
            lambda: speak.tool_started(value, "terminal", {}),
            lambda: speak.tool_started("c", value, value),
            lambda: speak.tool_announced(value, value),
            lambda: speak.tool_output("c", value),
            lambda: speak.tool_output(value, value),
            lambda: speak.tool_completed("c", value, value),
            lambda: speak.tool_completed(value, value, value),
            lambda: speak.client_call(value, value, value),
        )
        for call in calls:
            with suppress(ValueError, TypeError, RecursionError):
                call()
        return "end"

    return play


@pytest.mark.slow
async def test_saying_what_is_none_of_the_types(cases: CaseCounter) -> None:
    for value in WRONG:
        record = await streamed(saying(value))
        assert str(record.outcome.status) == "completed", record.outcome
    cases.add("agents", {"wrong types": 10 * len(WRONG)})


def returning(value: Any) -> Play:
    return lambda turn, emitter: value


async def test_returning_what_is_no_result(cases: CaseCounter) -> None:
    for value in WRONG[1:]:
        record = await streamed(returning(value))
        expected = "completed" if isinstance(value, str) else "failed"
        assert str(record.outcome.status) == expected, (value, record.outcome)
    record = await streamed(lambda turn, emitter: None)
    assert str(record.outcome.status) == "failed"  # nothing said, nothing done
    cases.add("agents", {"wrong results": len(WRONG)})


# -- ids --


@pytest.mark.slow
async def test_ids_in_any_order_and_number(full: bool, cases: CaseCounter) -> None:
    rounds = 500 if full else 40
    for seed in range(rounds):
        record = await streamed(_babble(random.Random(seed)))
        calls = [item.call_id for item in record.items if isinstance(item, CallItem)]
        assert len(calls) == len(set(calls))
    cases.add("agents", {"ids in any order": rounds})


def _babble(chance: random.Random) -> Play:
    def play(turn: TurnRequest, emitter: Emitter) -> str:
        for _ in range(chance.randrange(30)):
            call, name = (
                chance.choice(["", "a", "b", "a-2"]),
                chance.choice(["terminal", "_hidden"]),
            )
            chance.choice(
                [
                    partial(emitter.tool_started, call, name, {}),
                    partial(emitter.tool_completed, call, "r"),
                    partial(emitter.tool_output, call, "o"),
                    partial(emitter.text, "t"),
                ]
            )()
        return "end"

    return play


# -- threads --


@pytest.mark.slow
async def test_from_many_threads_at_once(full: bool, cases: CaseCounter) -> None:
    threads, words = 8, 2_000 if full else 200

    def play(turn: TurnRequest, emitter: Emitter) -> None:
        def speak(name: int) -> None:
            emitter.tool_started(f"c{name}", "terminal", {})
            for _ in range(words):
                emitter.text(str(name))
            emitter.tool_completed(f"c{name}", "done")

        crowd = [threading.Thread(target=speak, args=(name,)) for name in range(threads)]
        for each in crowd:
            each.start()
        for each in crowd:
            each.join()

    stored = stored_run_of_record(await streamed(play))
    assert [stored.text.count(str(name)) for name in range(threads)] == [words] * threads
    assert stored.calls == {f"c{name}": "completed" for name in range(threads)}
    cases.add("agents", {"threads at once": threads})


async def test_calls_after_the_end_are_refused_and_heard_by_nobody(cases: CaseCounter) -> None:
    ports: list[Emitter] = []

    def play(turn: TurnRequest, emitter: Emitter) -> str:
        ports.append(emitter)
        return "said"

    record = await streamed(play)
    for late in _late_words(ports[0]):
        with pytest.raises(RunEnded):
            await trio.to_thread.run_sync(late)
    assert stored_run_of_record(record).text == "said"
    cases.add("agents", {"calls after return": 5})


def _late_words(emitter: Emitter) -> list[Callable[[], object]]:
    return [
        lambda: emitter.text("late"),
        lambda: emitter.tool_started("c", "terminal"),
        lambda: emitter.tool_completed("c"),
        lambda: emitter.tool_output("c", "x"),
        lambda: emitter.ask("rm"),
    ]


def test_calls_after_the_server_is_gone(cases: CaseCounter) -> None:
    ports: list[Emitter] = []
    go = threading.Event()
    left: list[BaseException] = []

    def play(turn: TurnRequest, emitter: Emitter) -> str:
        ports.append(emitter)
        go.wait(10)
        try:
            emitter.text("is anybody there?")
        except RunEnded as error:
            left.append(error)
        return "late"

    async def main() -> None:
        with capture_logs():
            async with open_harness(FunctionAgents((), play=play)) as harness:
                assert (await harness.client.send("/v1/runs", {"input": "Hi"})).status == 202
                while not ports:
                    await trio.lowlevel.checkpoint()

    clock = MockClock()
    clock.rate = 1_000.0  # the grace period is over in a moment
    trio.run(main, clock=clock)
    go.set()
    for late in _late_words(ports[0]):
        with pytest.raises(RunEnded):
            late()
    cases.add("agents", {"calls after shutdown": 5})


# -- never ending --


async def test_deaf_agents_hold_their_slots_and_nothing_else(
    mock_clock: MockClock, cases: CaseCounter
) -> None:
    go = threading.Event()

    def play(turn: TurnRequest, emitter: Emitter) -> str:
        emitter.tool_started("c", "terminal", {})
        go.wait(10)
        return "too late"

    with capture_logs():
        async with open_harness(FunctionAgents((), play=play)) as harness:
            async with harness.client.post(RESPONSES, STREAM) as exchange:
                await exchange.frame_where(type="response.output_item.added")
                exchange.disconnect()
                await wait_all_tasks_blocked(0.01)
                mock_clock.jump(6.0)  # the grace period
                await exchange.end()
            with real_timeout():
                await harness.state.services.registry.wait_empty()
            record = await judged(harness, read_stream(Dialect.RESPONSES, exchange.raw))
            assert str(record.outcome.reason) == "client_disconnected"
            assert harness.state.admission.in_use == 1  # the thread is still there
            go.set()
            await harness.until_idle()
    cases.add("agents", {"ignore the interrupt": 1})


# -- a flood --


@pytest.mark.slow
async def test_a_hundred_megabytes(full: bool, cases: CaseCounter) -> None:
    megabytes = 100 if full else 5
    piece = "0123456789abcdef" * 65_536

    def play(turn: TurnRequest, emitter: Emitter) -> None:
        for _ in range(megabytes):
            emitter.text(piece)

    stored = stored_run_of_record(await streamed(play))
    assert len(stored.text) == megabytes * len(piece)
    cases.add("agents", {"megabytes of text": megabytes})
