"""A line to the model's server that delays, truncates, resets, trickles and lies.

Every turn ends once, and invents nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from attrs import define, evolve, field

from hermes_trio.core.messages import CallItem
from hermes_trio.core.records import EndedRun
from tests.robustness.real_connections import ClientRequest, Http1Connection, Target
from tests.robustness.real_footprint import (
    Footprint,
    at_rest,
    faults_at_rest,
    faults_of_all,
    found_in,
    store_of,
)
from tests.robustness.real_proxy import FaultyProxy, proxied
from tests.robustness.real_servers import long_session
from tests.robustness.report import CaseCounter
from tests.robustness.streams import Dialect, ReceivedStream, read_stream
from tests.support.scripted_upstream import (
    Call,
    ReceivedRequest,
    Say,
    ScriptedUpstream,
    Step,
    calls,
    says,
    serve_scripts,
)
from tests.support.server_process import LaunchOptions, ServerProcess, kill, start

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("robustness-upstream"),
    pytest.mark.timeout(900),
]

AT_ONCE = 10
PIECES = ("Grüße, ", "schöne Welt 🌍 und 漢字", " € bis bald")
TEXT = "".join(PIECES)
TURN_SECONDS = 60.0
NOTHING = Footprint(0, 0, 0, 0, 0)
GARBAGE = (
    "ff",
    "c3",
    "f09f",
    "00",
    "0d0a0d0a",
    "0a0a",
    "7d",
    "646174613a207b0a0a",
    "30300d0a",
    "ffffffffffffffff",
)


@define
class ProxiedServer:
    """A server whose model is behind a bad line."""

    server: ServerProcess
    proxy: FaultyProxy
    before: Footprint
    received: dict[str, ReceivedStream] = field(factory=dict)

    async def turns(self, texts: Iterable[str]) -> None:
        """Have turns, some at once."""
        left = iter(list(texts))

        async def client() -> None:
            for text in left:
                self.received[text] = await self._turn(text)

        async with trio.open_nursery() as nursery:
            for _ in range(AT_ONCE):
                nursery.start_soon(client)

    async def _turn(self, text: str) -> ReceivedStream:
        target = Target.of(self.server)
        with trio.fail_after(TURN_SECONDS):
            async with await trio.open_tcp_stream("127.0.0.1", target.port) as stream:
                line = Http1Connection(stream, target)
                await line.ask(
                    ClientRequest("POST", "/v1/responses", {"stream": True, "input": text})
                )
                while not line.is_whole:
                    await line.receive()
                assert line.status == 200, (text, line.body)
                return read_stream(Dialect.RESPONSES, line.body)

    async def check(self, invents_nothing: bool = True) -> None:
        """Each turn has one end and one record, and says what the model said, or the beginning of it."""
        faults = await trio.to_thread.run_sync(
            faults_of_all, self.server, list(self.received.values())
        )
        assert faults == []
        for text, received in self.received.items():
            assert len(received.ends) == 1, text
            if invents_nothing:
                assert TEXT.startswith(received.text), (text, received.text)
                assert received.text == TEXT or received.ends[0] != {"completed"}, (
                    text,
                    received.text,
                )
        assert await trio.to_thread.run_sync(faults_at_rest, self.server, self.before, 40) == []


def answer(asked: ReceivedRequest) -> Sequence[Step]:
    """With a tool, if the user wants one and has had none yet."""
    messages = asked.json["messages"]
    if "tool" in messages[-1]["content"] and messages[-1]["role"] == "user":
        return (Say(PIECES[0]), *calls(Call("terminal", {"command": "echo from-the-tool"})))
    return says(*(PIECES[1:] if messages[-1]["role"] == "tool" else PIECES))


@asynccontextmanager
async def stand(folder: Path, turns: int, **settings: object) -> AsyncIterator[ProxiedServer]:
    """All of it."""
    async with (
        serve_scripts(*[answer] * (2 * turns + 20)) as upstream,
        proxied(_port(upstream)) as proxy,
    ):
        chosen = {
            "base_url": f"http://127.0.0.1:{proxy.port}/v1",
            "upstream_model": "m",
            "drain_seconds": 1,
            "upstream_retries": 0,
        }
        server = await trio.to_thread.run_sync(
            start, LaunchOptions(folder, settings={**chosen, **settings})
        )
        try:
            made = ProxiedServer(server, proxy, NOTHING)
            await made.turns(["hello", "hello with a tool"])
            rest = await trio.to_thread.run_sync(at_rest, server)
            # The connections to the model are kept for the next turn: as many as were used at once,
            # and no more.
            made.before = evolve(rest, descriptors=rest.descriptors + AT_ONCE)
            await made.check()
            made.received.clear()
            yield made
            await trio.to_thread.run_sync(server.stop)
            assert server.complaints("") == [], server.log
        finally:
            await trio.to_thread.run_sync(kill, server)


def _port(upstream: ScriptedUpstream) -> int:
    return int(upstream.base_url.rpartition(":")[2].partition("/")[0])


async def test_cut_after_every_byte(tmp_path: Path, full: bool, cases: CaseCounter) -> None:
    async with stand(tmp_path, 6_000) as made:
        step = 1 if full else 97
        texts = [
            f"cut={n} by={way} {tool}"
            for n in range(0, made.proxy.longest + 1, step)
            for way in ("FIN", "RST")
            for tool in ("", "tool")
        ]
        await made.turns(texts)
        await made.check()
        assert any(received.text and received.text != TEXT for received in made.received.values())
        await _no_half_call_was_made(made)
        cases.add("upstream faults", {"cut after n bytes": len(texts)})


async def _no_half_call_was_made(made: ProxiedServer) -> None:
    with store_of(made.server) as store:
        records = [found_in(store, received.run_id) for received in made.received.values()]
    for record in records:
        assert isinstance(record, EndedRun)
        for item in record.items:
            if isinstance(item, CallItem):
                assert "echo from-the-tool" in str(item.args), item


@long_session
async def test_a_line_that_trickles_and_delays(tmp_path: Path, cases: CaseCounter) -> None:
    async with stand(tmp_path, 400) as made:
        times = 50
        texts = [f"trickle=1 n{n}" for n in range(times)] + [
            f"delay=0.2 tool n{n}" for n in range(times)
        ]
        await made.turns(texts)
        await made.check()
        assert {frozenset(received.ends[0]) for received in made.received.values()} == {
            frozenset({"completed"})
        }
        cases.add("upstream faults", {"byte by byte": times, "delayed": times})


@long_session
async def test_a_line_that_falls_silent(tmp_path: Path, cases: CaseCounter) -> None:
    async with stand(tmp_path, 400, upstream_read_seconds=0.5) as made:
        texts = [f"cut={n} by=stall" for n in range(0, made.proxy.longest, 10)]
        await made.turns(texts)
        await made.check()
        cases.add("upstream faults", {"silent after n bytes": len(texts)})


async def test_garbage_in_between(tmp_path: Path, full: bool, cases: CaseCounter) -> None:
    """What is changed inside a word cannot be known.

    But there is one end, and the record says what the stream said.
    """
    async with stand(tmp_path, 9_000, upstream_read_seconds=1) as made:
        step = 3 if full else 211
        texts = [
            f"insert={n} what={GARBAGE[(n + k) % len(GARBAGE)]}"
            for n in range(0, made.proxy.longest, step)
            for k in range(4 if full else 2)
        ]
        await made.turns(dict.fromkeys(texts))
        await made.check(invents_nothing=False)
        cases.add("upstream faults", {"garbage inserted": len(made.received)})


@long_session
async def test_another_try_where_nothing_was_said(tmp_path: Path, cases: CaseCounter) -> None:
    async with stand(tmp_path, 400, upstream_retries=1) as made:
        texts = [f"cut={n} by=RST" for n in range(0, 200, 20)]
        await made.turns(texts)
        await made.check()
        cases.add("upstream faults", {"cut twice": len(texts)})
