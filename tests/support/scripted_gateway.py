"""Another gateway on loopback, whose health routes answer as scripted."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import trio
from attrs import define, field

from tests.support.scripted_upstream import Reply, ScriptedUpstream, Step

OK = {"status": "ok", "platform": "hermes-agent", "version": "0.19.0"}
DETAILED = {
    **OK,
    "gateway_state": "running",
    "platforms": {"telegram": {"state": "connected"}},
    "active_agents": 2,
    "exit_reason": None,
    "updated_at": "2026-01-01T00:00:00",
    "pid": 4711,
}


@define(eq=False)
class ScriptedGateway(ScriptedUpstream):
    """The gateway, and the requests it received."""

    answers: Mapping[str, Sequence[Step]] = field(factory=dict)  # by path; others are a 404

    async def _converse(self, line: Any) -> None:
        while True:
            asked = await line.request()
            self.requests.append(asked)
            for step in self.answers.get(asked.path, [Reply(404)]):
                await line.play(step)
            await line.finish()


@asynccontextmanager
async def serve_gateway(answers: Mapping[str, Sequence[Step]]) -> AsyncIterator[ScriptedGateway]:
    """Serve health routes for as long as the block runs."""
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    gateway = ScriptedGateway(f"http://127.0.0.1:{port}", deque(), answers=answers)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(trio.serve_listeners, gateway.serve, listeners))
        yield gateway
        nursery.cancel_scope.cancel()
