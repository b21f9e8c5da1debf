"""Routes and scripts for requests that are cut short."""

from __future__ import annotations

import json
from itertools import count
from typing import Any

import trio
from attrs import define, evolve, frozen
from trio.testing import MockClock

from hermes_trio.core.events import Event, Reasoning, Text, ToolCompleted, ToolOutput, ToolStarted
from hermes_trio.runs.spec import Persistence
from hermes_trio.runs.tracker import RunLimits
from tests.robustness.observed_server import ObservedExchange, ObservedServer
from tests.robustness.streams import Dialect
from tests.support.asgi import JSON, NO_HEADERS, Headers
from tests.support.fakes import CHAT, Ask, Step, ask

LIMITS = RunLimits(stall=30.0, save=10.0, approval=60.0)
SHORT = evolve(
    LIMITS, run=5.0
)  # less than a save may take, or the jump of the clock would cut that too
CLIENT_TIMEOUT = 20_000.0  # of the client; by the mock clock
_KEYS = count()  # no key is used twice

HELLO: tuple[Event, ...] = (Text("Hello"), Text(" world"))
TOOLS: tuple[Event, ...] = (
    Reasoning("Let me see."),
    Text("Looking. "),
    ToolStarted("c1", "terminal", {"command": "make"}),
    ToolStarted("c2", "read_file", {"path": "a"}),
    ToolStarted("c3", "_internal"),
    ToolOutput("c1", "building"),
    ToolCompleted("c2", "contents"),
    ToolCompleted("c3", "hidden"),
    ToolCompleted("c1", "built"),
    Text("All "),
    Text("done."),
)
ASKING: tuple[Step, ...] = (
    Text("May I? "),
    ToolStarted("c1", "terminal", {"command": "rm"}),
    Ask("rm", call_id="c1"),
    ToolCompleted("c1", "no"),
    Text("Well."),
)
DANGLING: tuple[Event, ...] = (
    Text("Oh"),
    ToolStarted("c1", "terminal"),
    ToolStarted("c2", "terminal"),
)


@frozen
class AgentScript:
    """The script of the agent."""

    name: str
    steps: tuple[Step, ...]
    end: Exception | None = None


SCRIPTS = (
    AgentScript("hello", HELLO),
    AgentScript("tools", TOOLS),
    AgentScript("asking", ASKING),
    AgentScript("dangling", DANGLING),
    AgentScript("failing", DANGLING, RuntimeError("the agent broke")),
)


@frozen
class Route:
    """The client's request. A run that continues by itself is followed by a second request."""

    name: str
    path: str
    body: dict[str, Any]
    dialect: Dialect | None = None  # None: in one piece
    headers: Headers = NO_HEADERS
    follow: str = ""
    keep: Persistence = Persistence.FULL


_R = "/v1/responses"
ROUTES = (
    Route("chat stream", CHAT, ask(stream=True), Dialect.CHAT, keep=Persistence.FINAL),
    Route("chat stream, named session", CHAT, ask(stream=True), Dialect.CHAT, {"X-Hermes-Session-Id": "s"}),
    Route("chat stream, idempotent", CHAT, ask(stream=True), Dialect.CHAT, {"Idempotency-Key": "{n}"}),
    Route("chat whole", CHAT, ask(), keep=Persistence.FINAL),
    Route("responses stream", _R, {"input": "Hi", "stream": True}, Dialect.RESPONSES),
    Route("responses stream, conversation", _R, {"input": "Hi", "stream": True, "conversation": "c"}, Dialect.RESPONSES),
    Route("responses stream, detached", _R, {"input": "Hi", "stream": True}, Dialect.RESPONSES, {"X-Hermes-On-Disconnect": "detach"}),
    Route("responses stream, not stored", _R, {"input": "Hi", "stream": True, "store": False}, Dialect.RESPONSES, keep=Persistence.NONE),
    Route("responses whole", _R, {"input": "Hi"}),
    Route("responses background", _R, {"input": "Hi", "background": True}, None, {}, _R + "/{id}?stream=true"),
    Route("runs", "/v1/runs", {"input": "Hi"}, None, {}, "/v1/runs/{id}/events"),
    Route("session chat stream", "/api/sessions/s1/chat/stream", {"message": "Hi"}, Dialect.SESSION),
    Route("session chat whole", "/api/sessions/s1/chat", {"message": "Hi"}),
)  # fmt: skip


@define(eq=False)
class RequestScenario:
    """One request, and the one that follows it."""

    server: ObservedServer
    route: Route
    number: int
    clock: MockClock
    exchange: ObservedExchange | None = None
    scope: trio.CancelScope | None = None
    follower: ObservedExchange | None = None

    def exchanges(self) -> list[ObservedExchange]:
        """All requests that were made."""
        return [each for each in dict.fromkeys((self.exchange, self.follower)) if each is not None]

    async def play(self) -> None:
        """Send the request, and follow its run if it continues by itself."""
        headers = {name: value.format(n=next(_KEYS)) for name, value in self.route.headers.items()}
        body = json.dumps(self.route.body).encode()
        await self._run(
            self.server.exchange(
                "POST", self.route.path, body, {**JSON, **headers}, self.route.dialect
            )
        )
        answer = self.exchange.answer if self.exchange is not None else None
        if self.route.follow and answer is not None and answer.status in {200, 202} and answer.body:
            run_id = answer.json.get("run_id") or answer.json["id"]
            dialect = Dialect.RUNS if "run_id" in answer.json else Dialect.RESPONSES
            self.follower = self.server.exchange(
                "GET", self.route.follow.format(id=run_id), b"", {}, dialect
            )
            await self._run(self.follower)

    async def _run(self, exchange: ObservedExchange) -> None:
        exchange._is_kept = self.route.keep is not Persistence.NONE
        self.exchange = exchange
        async with trio.open_nursery() as nursery:
            self.scope = nursery.cancel_scope
            nursery.start_soon(exchange.run, self.server.harness.client.app)
            with trio.move_on_after(CLIENT_TIMEOUT):
                await exchange.over.wait()
            exchange.disconnect()  # for a server that waits for a reader which will never read
            await exchange.over.wait()
