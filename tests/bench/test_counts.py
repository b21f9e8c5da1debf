"""What a request costs in tasks and turns of the loop: figures that do not depend on the machine, so they may be tested."""

from __future__ import annotations

import json
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import trio
import trio.testing
from trio.lowlevel import Task

from hermes_trio.core.events import Text
from tests.fakes import CHAT, Stage, ask, ask_stream, bearer, open_rig
from tests.fakes import KEY as API_KEY
from tests.server.raw import read_to_end
from tests.server.running import serving

TASKS = {
    "hermes_trio.server.connection.GuardedTCPServer.run": 1,  # the connection and its request
    "hermes_trio.runs.run.Run.main": 1,  # the tracker
    "hermes_trio.agent.runner.AgentRunner.run": 1,  # the agent
}
MOST_STEPS = 24


class Counting(trio.abc.Instrument):
    """Counts tasks that begin and steps that any of them makes."""

    def __init__(self, ours: Task) -> None:
        self._ours = ours
        self.begun: Counter[str] = Counter()
        self.steps = 0

    def task_spawned(self, task: Task) -> None:
        """A task begins."""
        self.begun[task.name] += 1

    def before_task_step(self, task: Task) -> None:
        """A task has its turn; those of the test itself are not counted."""
        self.steps += task is not self._ours


@contextmanager
def counting() -> Iterator[Counting]:
    """For the length of a block."""
    instrument = Counting(trio.lowlevel.current_task())
    trio.lowlevel.add_instrument(instrument)
    try:
        yield instrument
    finally:
        trio.lowlevel.remove_instrument(instrument)


def post(body: bytes) -> bytes:
    """A request that ends its connection, in one piece."""
    headers = {**bearer(API_KEY), "Host": "a", "Connection": "close", "Content-Length": str(len(body))}
    lines = [f"POST {CHAT} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode() + body


def at_once(port: int) -> trio.SocketStream:
    """A connection that took no task: the kernel accepts it."""
    sock = socket.create_connection(("127.0.0.1", port))
    sock.setblocking(False)
    return trio.SocketStream(trio.socket.from_stdlib_socket(sock))


async def cost_of(body: dict[str, object]) -> Counting:
    """What one turn costs, on a server that is warm."""
    request = post(json.dumps(body).encode())
    async with open_rig(Stage([Text("Hi")], is_async=True)) as rig, serving(rig.client.app) as live:
        for _ in range(2):
            with counting() as counted:
                async with at_once(live.port) as client:
                    await client.send_all(request)
                    assert b"Hi" in await read_to_end(client)
                await trio.testing.wait_all_tasks_blocked()
    return counted


async def test_a_streamed_turn_takes_three_tasks() -> None:
    cost = await cost_of(ask_stream())
    assert cost.begun == TASKS
    assert cost.steps <= MOST_STEPS


async def test_a_whole_turn_takes_no_more() -> None:
    cost = await cost_of(ask())
    assert cost.begun == TASKS
    assert cost.steps <= MOST_STEPS
