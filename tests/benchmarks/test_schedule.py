"""The load of the other servers is the load of ours."""

from __future__ import annotations

import json
import re
import threading
import time
from pathlib import Path

import pytest
import trio
import trio.testing

from benchmarks import agent, loads
from benchmarks.client.tokens import TOKEN
from benchmarks.servers import frames, schedule
from hermes_trio.agent.interface import AgentContext
from hermes_trio.agents import synthetic
from hermes_trio.core.changes import TextAdded
from hermes_trio.core.dialects.chat import ChatStream
from hermes_trio.core.records import Stamp
from tests.support.agent_harness import EventRecorder, turn

STAMP = Stamp("chatcmpl-0123456789abcdef0123456789abc", 1_700_000_000.0, "hermes-agent")


@pytest.mark.parametrize("load", loads.ALL, ids=lambda load: load.name)
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_both_read_the_same_words(load: loads.Load, mode: str) -> None:
    (ours, wait), theirs = agent.parse(load.words(mode)), schedule.parse_load(load.words(mode))
    assert (ours.tokens, ours.rate, ours.size, ours.stamp, ours.mode, wait) == tuple(theirs)
    assert ours.due(5.0, 3) == theirs.due(5.0, 3)


def test_both_say_the_same_tokens() -> None:
    ours, theirs = synthetic.Load(size=20), schedule.Load(size=20)
    assert ours.token(7) == theirs.token(7)
    stamped = [
        load.token(7).encode() for load in (synthetic.Load(stamp=True), schedule.Load(stamp=True))
    ]
    assert len({len(token) for token in stamped}) == 1
    assert all(TOKEN.match(token) for token in stamped)


@pytest.mark.parametrize("mode", ["sync", "async"])
async def test_ours_waits_before_it_speaks(
    mode: str, autojump_clock: trio.testing.MockClock
) -> None:
    made = agent.factory(AgentContext(turn(f"tokens=2 mode={mode} wait=0.01"), Path()))
    recorder = EventRecorder()
    begun = time.monotonic(), trio.current_time()
    if isinstance(made, agent.AsyncWaitingAgent):
        await made.run(turn(""), recorder.async_emitter())
        assert trio.current_time() - begun[1] == pytest.approx(0.01)
    else:
        made.run(turn(""), recorder.emitter())
        assert time.monotonic() - begun[0] >= 0.01


def test_a_thread_says_all_of_it_unless_interrupted() -> None:
    heard: list[str] = []
    interrupted = threading.Event()
    schedule.speak(schedule.Load(tokens=3, rate=10_000), heard.append, interrupted)
    assert [re.sub(r"\W", "", token) for token in heard] == ["t000001", "t000002", "t000003"]
    interrupted.set()
    schedule.speak(schedule.Load(tokens=3), heard.append, interrupted)
    assert len(heard) == 3


def test_the_frames_are_ours_to_the_byte() -> None:
    dialect = ChatStream(STAMP)
    assert dialect.opening() == frames.ROLE
    assert dialect.render([TextAdded(0, 'a "piece"')]) == frames.text_frame('a "piece"')
    assert json.loads(frames.reply("x"))["choices"][0]["message"]["content"] == "x"
