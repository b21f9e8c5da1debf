"""The synthetic agent: exactly the load that was asked for, in a thread and as a task."""

from __future__ import annotations

import re
import threading
import time
from itertools import groupby
from pathlib import Path

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from hermes_trio.agent.interface import AgentContext
from hermes_trio.agents.synthetic import (
    AsyncSyntheticAgent,
    Load,
    SyntheticAgent,
    factory,
    parse_load,
)
from hermes_trio.core.events import (
    AgentFailed,
    Event,
    Finished,
    Reasoning,
    Result,
    Text,
    ToolCompleted,
    ToolStarted,
    Verdict,
)
from hermes_trio.core.messages import Usage
from tests.support.agent_harness import EventRecorder, start, turn
from tests.support.processes import TIMEOUT, in_thread

COUNTS = st.integers(0, 60)
LOADS = st.builds(
    Load,
    tokens=COUNTS,
    tools=st.integers(0, 15),
    size=st.integers(1, 40),
    think=COUNTS,
    stamp=st.booleans(),
)


def message(load: Load) -> str:
    return " ".join(
        f"{name}={int(getattr(load, name))}"
        for name in ("think", "tokens", "size", "stamp", "tools")
    )


def texts(recorder: EventRecorder, kind: type[Text | Reasoning]) -> list[str]:
    return [event.text for event in recorder.events if isinstance(event, kind)]


def check(load: Load, recorder: EventRecorder, result: object) -> None:
    """All that a load promises."""
    said, thought = texts(recorder, Text), texts(recorder, Reasoning)
    assert (len(said), len(thought), len(recorder.calls)) == (load.tokens, load.think, load.tools)
    assert {len(piece) for piece in thought} <= {load.size}
    assert {len(piece) for piece in said} <= {max(load.size, 28) if load.stamp else load.size}
    assert all(len(call[2]) == load.size and not call[3] for call in recorder.calls)
    assert result == Result(usage=Usage(5, load.tokens, reasoning_tokens=load.think))
    assert all(isinstance(event, Reasoning) for event in recorder.events[: load.think])


@given(LOADS)
def test_counts_are_exact_in_a_thread(load: Load) -> None:
    recorder = EventRecorder()
    check(load, recorder, SyntheticAgent(load).run(turn(message(load)), recorder.emitter()))


@given(LOADS)
def test_counts_are_exact_in_a_task(load: Load) -> None:
    recorder = EventRecorder()
    check(
        load,
        recorder,
        trio.run(AsyncSyntheticAgent(load).run, turn(message(load)), recorder.async_emitter()),
    )


@given(LOADS)
def test_a_message_is_read_back(load: Load) -> None:
    assert parse_load(message(load)) == load
    assert parse_load(" ".join(reversed(message(load).split()))) == load


@given(COUNTS, st.integers(0, 80))
def test_tool_calls_are_spread_evenly(tokens: int, tools: int) -> None:
    segments = list(Load(tokens=tokens, tools=tools).segments())
    assert [number for stretch in segments for number in stretch] == list(range(1, tokens + 1))
    lengths = [len(stretch) for stretch in segments]
    assert len(lengths) == tools + 1
    assert max(lengths) - min(lengths) <= 1


def test_tool_calls_come_between_the_tokens() -> None:
    recorder = EventRecorder()
    SyntheticAgent(Load(tokens=6, tools=2)).run(turn(""), recorder.emitter())
    assert [(kind, len(list(run))) for kind, run in groupby(recorder.events, type)] == [
        (Text, 2), (ToolStarted, 1), (ToolCompleted, 1), (Text, 2), (ToolStarted, 1), (ToolCompleted, 1), (Text, 2),
    ]  # fmt: skip


def test_numbers_can_be_seen() -> None:
    recorder = EventRecorder()
    SyntheticAgent(parse_load("tokens=3 size=10")).run(turn(""), recorder.emitter())
    assert recorder.text == "t000001.. t000002.. t000003.. "
    assert [Load(size=size).token(123) for size in (1, 3, 7, 8, 9)] == [
        "3",
        "123",
        "t000123",
        "t000123 ",
        "t000123. ",
    ]


def test_stamps_are_times() -> None:
    before, recorder = time.monotonic_ns(), EventRecorder()
    SyntheticAgent(parse_load("tokens=3 stamp=1 size=40")).run(turn(""), recorder.emitter())
    found = [
        (int(stamp), int(number))
        for stamp, number in re.findall(r"(\d+) t(\d+)\.* ", recorder.text)
    ]
    assert [number for _, number in found] == [1, 2, 3]
    assert before <= found[0][0] <= found[1][0] <= found[2][0] <= time.monotonic_ns()


@pytest.mark.parametrize(
    "text",
    [
        "hello", "tokens", "tokens=", "tokens=-1", "tokens=1.5", "tokens=x", "tokens=99999999", "tokens=²", "size=0", "rate=-1", "rate=x",
        "rate=nan", "rate=inf", "rate=1e-9", "stamp=2", "mode=fast", "colour=red", "tokens=1 tokens=2", "=", "=1",
    ],
)  # fmt: skip
def test_bad_parameters_say_so(text: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=re.escape(text.rsplit(maxsplit=1)[-1])):
        factory(AgentContext(turn(text), tmp_path))


def test_the_mode_chooses_the_agent(tmp_path: Path) -> None:
    assert isinstance(factory(AgentContext(turn(""), tmp_path)), SyntheticAgent)
    assert isinstance(factory(AgentContext(turn("mode=sync"), tmp_path)), SyntheticAgent)
    assert isinstance(
        factory(AgentContext(turn("rate=2.5 mode=async"), tmp_path)), AsyncSyntheticAgent
    )


def test_the_rate_holds_in_a_thread() -> None:
    began = time.monotonic()
    SyntheticAgent(parse_load("tokens=21 rate=200")).run(turn(""), EventRecorder().emitter())
    assert time.monotonic() - began >= 0.1


async def test_lateness_does_not_add_up(autojump_clock: trio.testing.MockClock) -> None:
    times: list[float] = []
    began = trio.current_time()

    def hear(_event: Event) -> None:
        times.append(round(trio.current_time() - began, 6))
        if len(times) == 2:
            autojump_clock.jump(2.5)  # the reader was slow

    await AsyncSyntheticAgent(parse_load("tokens=6 rate=1")).run(
        turn(""), EventRecorder(on_event=hear).async_emitter()
    )
    assert times == [0, 1, 3.5, 3.5, 4, 5]


@pytest.mark.parametrize(
    ("load", "kind", "usage"),
    [
        ("tokens=5 rate=0.001", Text, Usage(0, 1)),
        ("tokens=5", Text, Usage(0, 1)),
        ("think=5", Reasoning, Usage(0, 0, reasoning_tokens=1)),
        ("tokens=2 tools=2", ToolCompleted, Usage(0, 0)),
    ],
)
def test_an_interrupt_ends_it_before_the_next_piece(
    load: str, kind: type[Event], usage: Usage
) -> None:
    agent, reached, results = SyntheticAgent(parse_load(load)), threading.Event(), list[Result]()
    go_on = threading.Event()

    def notice(event: Event) -> None:
        if isinstance(event, kind):
            reached.set()
            assert "rate" in load or go_on.wait(TIMEOUT)

    recorder = EventRecorder(on_event=notice)
    with in_thread(lambda: results.append(agent.run(turn(""), recorder.emitter()))):
        assert reached.wait(TIMEOUT)
        agent.interrupt("enough")
        go_on.set()
    assert results == [Result(verdict=Verdict.INTERRUPTED, usage=usage)]


def test_an_interrupt_before_it_began() -> None:
    agent, recorder = SyntheticAgent(Load()), EventRecorder()
    agent.interrupt("early")
    assert agent.run(turn(""), recorder.emitter()).verdict is Verdict.INTERRUPTED
    assert not recorder.events


@pytest.mark.parametrize("mode", ["sync", "async"])
class TestBridged:
    async def test_a_whole_turn(self, mode: str, tmp_path: Path) -> None:
        with trio.fail_after(5):
            async with trio.open_nursery() as nursery:
                run = await start(
                    nursery, factory, turn(f"mode={mode} tokens=1000 tools=7 think=5"), tmp_path
                )
                await run.to_end()
        spoken = "".join(event.text for event in run.events if isinstance(event, Text))
        assert spoken == "".join(Load().token(number) for number in range(1, 1001))
        last = run.events[-1]
        assert isinstance(last, Finished)
        assert last.result.usage == Usage(4, 1000, reasoning_tokens=5)

    async def test_cancelling(self, mode: str, tmp_path: Path) -> None:
        with trio.fail_after(5):
            async with trio.open_nursery() as nursery:
                run = await start(nursery, factory, turn(f"mode={mode} rate=0.001"), tmp_path)
                await run.until(Text)
                run.scope.cancel()
                with trio.fail_after(1):
                    await run.gone.wait()

    async def test_bad_parameters_fail_the_run(self, mode: str, tmp_path: Path) -> None:
        with trio.fail_after(5):
            async with trio.open_nursery() as nursery:
                run = await start(nursery, factory, turn(f"mode={mode} tokens=many"), tmp_path)
                await run.to_end()
        last = run.events[-1]
        assert isinstance(last, AgentFailed)
        assert (last.kind, "tokens=many" in last.message) == ("ValueError", True)
