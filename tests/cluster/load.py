"""Clients of every API that keep a cluster busy, and note all that they receive."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from itertools import count

import trio
from attrs import define, field

from hermes_trio.agents.synthetic import Load, parse_load
from tests.cluster.exchange import Address, Reply, ask, exchange
from tests.cluster.nodes import POLL, Cluster
from tests.crash.clients import ObservedResponse
from tests.crash.frames import frames_of
from tests.support.server_process import TIMEOUT

RATE = 200  # pieces of text per second; so what is missing can be told in seconds
RESPONSES, RUNS = "/v1/responses", "/v1/runs"
CHAT, SESSIONS = "/v1/chat/completions", "/api/sessions"
KINDS = ("response", "response", "batch", "background", "run", "chat", "session")
ACCEPTED = {200, 201, 202, 204}

_ID = re.compile(rb'"(?:id|run_id)": "((?:resp|run)_[0-9a-f]+|chatcmpl-[0-9a-f]+)"')


@define
class ObservedTurn:
    """One turn as its client knows it."""

    kind: str
    load: str
    node: int  # which executes it
    reader: int  # from which a client follows what runs in the background
    session: str
    run_id: str = ""
    started: Reply | None = None  # the answer of a request that returns at once
    reply: Reply | None = None  # the stream, or the whole answer
    trouble: str = ""

    @property
    def wanted(self) -> Load:
        """What the agent was asked to do."""
        return parse_load(self.load)

    @property
    def whole_text(self) -> str:
        """The complete text of the agent."""
        return "".join(self.wanted.token(number) for number in range(1, self.wanted.tokens + 1))

    @property
    def body(self) -> bytes:
        """The body of the stream as far as it came."""
        return self.reply.body if self.reply is not None else b""

    def as_response(self) -> ObservedResponse:
        """Return what the checks of ``tests.crash`` want to know of a response."""
        kind = "stream" if self.kind == "response" else self.kind
        seen = ObservedResponse(kind, self.load, self.run_id)
        if self.kind == "batch":
            if self.reply is not None and self.reply.is_whole:
                seen.end = self.reply.json()
            return seen
        seen.frames = frames_of(self.body)
        for frame in seen.frames:
            if frame.is_terminal:
                seen.end = frame.event["response"]
        return seen


@define
class Crowd:
    """Concurrent clients of all nodes, each with one turn after the other.

    A client of a node that refuses or is dead tries the next one. ``unavailable`` are the refusals
    that are no violation; everything else that is no turn is noted as trouble.
    """

    cluster: Cluster
    seed: str
    clients: int = 6
    unavailable: frozenset[int] = frozenset({0})
    seen: list[ObservedTurn] = field(factory=list)
    refusals: int = 0
    _is_over: bool = False
    _numbers: Iterator[int] = field(factory=count)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep the nodes busy until ``finish`` is called and all turns have ended."""
        async with trio.open_nursery() as nursery:
            for number in range(self.clients):
                nursery.start_soon(self._live, random.Random(f"{self.seed}-{number}"), number)
            task_status.started()

    def finish(self) -> None:
        """Begin no more turns."""
        self._is_over = True

    async def _live(self, dice: random.Random, number: int) -> None:
        node = number % len(self.cluster.servers)
        while not self._is_over:
            turn = ObservedTurn(
                dice.choice(KINDS), _some_load(dice), node, dice.randrange(len(self.cluster.servers)),
                f"{self.seed}-{next(self._numbers)}",
            )  # fmt: skip
            await self._take_turn(turn)
            if turn.run_id or turn.trouble:
                self.seen.append(turn)
            else:
                self.refusals += 1
                await trio.sleep(POLL)
            node = dice.randrange(len(self.cluster.servers))

    async def _take_turn(self, turn: ObservedTurn) -> None:
        address = self.cluster.nodes[turn.node]
        try:
            with trio.fail_after(TIMEOUT):
                await _START[turn.kind](self, address, turn)
        except trio.TooSlowError:
            turn.trouble = f"no end within {TIMEOUT} s: {turn.reply}"

    async def _post(
        self, node: Address, path: str, body: dict[str, object], turn: ObservedTurn
    ) -> None:
        """Post a request whose response is the stream, or the whole answer."""
        headers = {"X-Hermes-Session-Id": turn.session} if turn.kind == "chat" else {}
        try:
            async with exchange(node, "POST", path, body, headers) as connection:
                while await connection.read():
                    turn.reply = connection.reply
                    turn.run_id = turn.run_id or _find_id(turn.reply.body)
        except OSError:
            return
        self._judge(turn, connection.reply)

    async def _follow(self, path: str, turn: ObservedTurn) -> None:
        """Read the stream of a run that was started, on whichever node."""
        try:
            async with exchange(self.cluster.nodes[turn.reader], "GET", path) as connection:
                while await connection.read():
                    turn.reply = connection.reply
        except OSError:
            return
        self._judge(turn, connection.reply)

    def _judge(self, turn: ObservedTurn, reply: Reply) -> None:
        if reply.status not in ACCEPTED and reply.status not in self.unavailable:
            turn.trouble = f"{reply.status}: {reply.body[:300]!r}"

    async def _response(self, node: Address, turn: ObservedTurn) -> None:
        body = {"input": turn.load, "stream": turn.kind == "response"}
        await self._post(node, RESPONSES, body, turn)

    async def _background(self, node: Address, turn: ObservedTurn) -> None:
        body = {"input": turn.load, "background": True}
        turn.started = await ask(node, "POST", RESPONSES, body)
        self._judge(turn, turn.started)
        if turn.started.is_whole and turn.started.status == 200:
            turn.run_id = turn.started.json()["id"]
            await self._follow(f"{RESPONSES}/{turn.run_id}?stream=true", turn)

    async def _run(self, node: Address, turn: ObservedTurn) -> None:
        body = {"input": turn.load, "session_id": turn.session}
        turn.started = await ask(node, "POST", RUNS, body)
        self._judge(turn, turn.started)
        if turn.started.is_whole and turn.started.status == 202:
            turn.run_id = turn.started.json()["run_id"]
            await self._follow(f"{RUNS}/{turn.run_id}/events", turn)

    async def _chat(self, node: Address, turn: ObservedTurn) -> None:
        body = {"messages": [{"role": "user", "content": turn.load}], "stream": True}
        await self._post(node, CHAT, body, turn)

    async def _session(self, node: Address, turn: ObservedTurn) -> None:
        made = await ask(node, "POST", SESSIONS, {"id": turn.session})
        self._judge(turn, made)
        if made.status == 201:
            path = f"{SESSIONS}/{turn.session}/chat/stream"
            await self._post(node, path, {"message": turn.load}, turn)


_START = {
    "response": Crowd._response,
    "batch": Crowd._response,
    "background": Crowd._background,
    "run": Crowd._run,
    "chat": Crowd._chat,
    "session": Crowd._session,
}


def _find_id(body: bytes) -> str:
    found = _ID.search(body)
    return found[1].decode() if found else ""


def _some_load(dice: random.Random) -> str:
    words = {
        "tokens": dice.randint(5, 200),
        "rate": RATE,
        "tools": dice.choice((0, 0, 1, 3)),
        "think": dice.choice((0, 0, 2)),
        "mode": dice.choice(("sync", "async")),
    }
    return " ".join(f"{name}={value}" for name, value in words.items())
