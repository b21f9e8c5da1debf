"""One scenario being played: a server, its agent, its clients, and the transcript of it all."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import trio
from attrs import define, field, frozen
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.golden.agent import Checkpoints, Script, ScriptedAgent
from tests.golden.client import Exchange, Request
from tests.golden.driver import KEY, Clock, IdSource, Server, fixed_ids, open_server, turn_view
from tests.golden.transcript import Transcript
from tests.support.asgi import real_timeout

Flow = Callable[["ScenarioRun"], Awaitable[None]]


@frozen
class Scenario:
    """Something to be played and compared."""

    name: str
    about: str
    flow: Flow
    options: dict[str, Any] = field(factory=dict)  # of the server


@define(eq=False)
class ScenarioRun:
    """What a flow works with."""

    transcript: Transcript
    clock: Clock
    ids: IdSource
    mock_clock: MockClock
    cues: Checkpoints = field(factory=Checkpoints)
    decisions: list[str] = field(factory=list)
    script: Script = field(factory=Script)  # of the next turn
    turns: list[Any] = field(factory=list)
    _requests: int = 0
    _starts_held: bool = False  # the next agent waits for ``release("start")``
    _server: Server = field(init=False)

    def make_agent(self, turn: Any) -> ScriptedAgent:
        """The agent of a turn."""
        self.turns.append(turn)
        return ScriptedAgent(self.script, self.clock, self.cues, self.decisions, self._starts_held)

    @property
    def run_id(self) -> str:
        """Of the latest turn."""
        return str(self.turns[-1].run_id)

    @property
    def session_id(self) -> str:
        """Of the latest turn."""
        return str(self.turns[-1].session_id)

    # -- requests --

    @asynccontextmanager
    async def open(
        self, name: str, method: str, path: str, body: Any = None, **headers: str
    ) -> AsyncIterator[Exchange]:
        """Send a request and go on meanwhile. The block's end waits for the answer's."""
        self._requests += 1
        self.ids.restart(f"request {self._requests}")
        given = {key.replace("_", "-"): value for key, value in headers.items()}
        exchange = Exchange(Request(method, path, body, given))
        extra = {
            "X-Hermes-Tool-Items": "function_call",
            "Authorization": f"Bearer {KEY}",
            "X-Request-Id": f"request-{self._requests}",
        }
        async with trio.open_nursery() as nursery:
            nursery.start_soon(exchange.run, self._server.app, extra)
            yield exchange
            await exchange.finished.wait()
        self.transcript.add_exchange(name, exchange)

    async def send(
        self, name: str, method: str, path: str, body: Any = None, **headers: str
    ) -> Exchange:
        """Send a request and wait for the whole answer."""
        async with self.open(name, method, path, body, **headers) as exchange:
            pass
        return exchange

    async def post(self, name: str, path: str, body: Any = None, **headers: str) -> Exchange:
        """POST, with the whole answer."""
        return await self.send(name, "POST", path, body, **headers)

    async def get(self, name: str, path: str, **headers: str) -> Exchange:
        """GET, with the whole answer."""
        return await self.send(name, "GET", path, **headers)

    async def start(
        self, name: str, path: str, body: Any, is_held: bool = False, **headers: str
    ) -> Exchange:
        """POST what starts an agent and does not wait for it.

        The agent does nothing before the answer has arrived, and goes on then unless it is to be held at "start".
        """
        self._starts_held = True
        exchange = await self.post(name, path, body, **headers)
        await self.wait_held("start")
        self._starts_held = False
        if not is_held:
            self.release("start")
        return exchange

    # -- the agent --

    async def wait_held(self, name: str) -> None:
        """Return when the agent waits at a hold (or, for "ask", for an approval) and all before it is delivered."""
        await self.cues.wait_reached(name)

    def release(self, name: str) -> None:
        """Let the agent go on."""
        self.cues.release(name)

    async def jump(self, seconds: float) -> None:
        """Let the server's timers run down, while the agent waits."""
        await wait_all_tasks_blocked()
        self.clock.advance(seconds)
        self.mock_clock.jump(seconds)
        await wait_all_tasks_blocked()

    # -- the transcript --

    async def note_run(self, name: str = "") -> None:
        """Put the latest turn and its record into the transcript, when its agent is gone."""
        await self.cues.wait_idle()
        self.transcript.add("turn", name, turn_view(self.turns[-1]))
        await self.note_record(name)
        if self.decisions:
            self.transcript.add("decisions", name, list(self.decisions))
            self.decisions.clear()

    async def note_record(self, name: str = "") -> None:
        """Put the record of the latest turn into the transcript, as it is now."""
        self.transcript.add("record", name, await self._server.find_record(self.run_id))

    async def run(self, flow: Flow, **options: Any) -> None:
        """Open a server and play."""
        async with open_server(self.make_agent, self.clock, **options) as server:
            self._server = server
            await flow(self)


def run_scenario(scenario: Scenario) -> str:
    """The transcript of a scenario, as a corpus file has it."""
    mock_clock = MockClock()
    transcript = Transcript(scenario.about)

    async def main(ids: IdSource) -> None:
        with real_timeout():
            await ScenarioRun(transcript, Clock(), ids, mock_clock).run(
                scenario.flow, **scenario.options
            )

    with fixed_ids() as ids:
        try:
            trio.run(main, ids, clock=mock_clock)
        except BaseException as error:
            error.add_note(f"in the scenario {scenario.name}")
            raise
    return transcript.text()
