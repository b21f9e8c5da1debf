"""Two requests to different nodes that only one can win: one winner, and the same answer everywhere after."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import trio
from attrs import define, field

from tests.cluster.checks import events_of
from tests.cluster.exchange import Address, Reply, ask, exchange
from tests.cluster.load import RESPONSES, RUNS, SESSIONS
from tests.cluster.nodes import Cluster, wait_ended
from tests.cluster.records import Records

AT_ONCE = 10  # races that run side by side
TOKENS, RATE = 20, 100
DURATION = TOKENS / RATE  # seconds
BUSY, NOT_PENDING = 409, {"approval_not_pending", "approval_not_active"}


@define
class Race:
    """One race: which nodes take part, in which order, and what went wrong."""

    cluster: Cluster
    dice: random.Random
    name: str
    problems: list[str] = field(factory=list)
    nodes: list[Address] = field(init=False)

    def __attrs_post_init__(self) -> None:
        """Deal out the nodes."""
        self.nodes = self.dice.sample(self.cluster.nodes, len(self.cluster.nodes))

    def expect(self, holds: object, problem: str) -> None:
        """Note a problem unless something holds."""
        if not holds:
            self.problems.append(f"{self.name}: {problem}")


async def run_races(
    race: Callable[[Race], Awaitable[None]],
    cluster: Cluster,
    repetitions: int,
    seed: str,
    at_once: int = AT_ONCE,
) -> list[str]:
    """Run a race many times, some side by side; return what went wrong."""
    problems: list[str] = []
    limiter = trio.CapacityLimiter(at_once)

    async def run_one(number: int) -> None:
        each = Race(cluster, random.Random(f"{seed}-{number}"), f"{race.__name__}-{seed}-{number}")
        async with limiter:
            try:
                await race(each)
            except (AssertionError, trio.TooSlowError, KeyError, ValueError) as error:
                each.problems.append(f"{each.name}: {error!r}")
        problems.extend(each.problems)

    async with trio.open_nursery() as nursery:
        for number in range(repetitions):
            nursery.start_soon(run_one, number)
    return problems + Records(cluster.url).violations()


# -- the races --


async def stop_and_finish(race: Race) -> None:
    """A run is stopped from two other nodes at about the moment at which it ends by itself."""
    owner, second, third = race.nodes[:3]
    load = f"tokens={TOKENS} rate={RATE} mode={race.dice.choice(('sync', 'async'))}"
    started = await ask(owner, "POST", RESPONSES, {"input": load, "background": True})
    run_id = started.json()["id"]
    moments = [race.dice.gauss(DURATION, 0.05) for _ in range(2)]
    cancel, stop = await at_moments(
        moments,
        partial(ask, second, "POST", f"{RESPONSES}/{run_id}/cancel"),
        partial(ask, third, "POST", f"{RUNS}/{run_id}/stop"),
    )
    race.expect(cancel.status == 200, f"cancel: {cancel}")
    race.expect(stop.status == 200, f"stop: {stop}")
    ended = await wait_ended(third, run_id)
    bodies = await read_everywhere(race, f"{RESPONSES}/{run_id}")
    race.expect(ended["status"] in {"completed", "cancelled"}, f"is {ended}")
    stored = json.loads(bodies[0])
    if cancel.status == 200:
        told = cancel.json()
        race.expect(
            told["status"] == stored["status"], f"told {told['status']}: {stored['status']}"
        )
        race.expect(told["output"] == stored["output"], "the canceller was told another output")
    if stop.status == 200:
        told = stop.json()["status"]
        race.expect(
            told in {"stopping", ended["status"]}, f"stop said {told}, it is {ended['status']}"
        )
    await read_everywhere(race, f"{RESPONSES}/{run_id}?stream=true")
    await read_everywhere(race, f"{RUNS}/{run_id}/events")


async def approve_and_time_out(race: Race) -> None:
    """Two nodes answer an approval request, at about the moment at which its time is up."""
    owner, second, third = race.nodes[:3]
    run_id = (await ask(owner, "POST", RUNS, {"input": "/ask true"})).json()["run_id"]
    async with exchange(second, "GET", f"{RUNS}/{run_id}/events") as events:
        await events.read_until(lambda body: b'"approval.request"' in body)
    answer = partial(ask, method="POST", path=f"{RUNS}/{run_id}/approval")
    seconds = float(str(race.cluster.settings["approval_seconds"]))
    is_tight = race.dice.random() < 0.5  # with the time-out; else only with each other
    moments = [
        race.dice.gauss(seconds, 0.05) if is_tight else race.dice.uniform(0, 0.02) for _ in range(2)
    ]
    replies = await at_moments(
        moments,
        partial(answer, second, body={"choice": "once"}),
        partial(answer, race.dice.choice((owner, third)), body={"choice": "deny"}),
    )
    await wait_ended(third, run_id)
    winners = [
        choice
        for choice, reply in zip(("once", "deny"), replies, strict=True)
        if reply.status == 200 and reply.json()["resolved"] == 1
    ]
    for reply in replies:
        is_loser = reply.status == BUSY and reply.error_code in NOT_PENDING
        race.expect(reply.status == 200 or is_loser, f"an answer got {reply}")
    race.expect(len(winners) <= 1, f"{len(winners)} answers won")
    bodies = await read_everywhere(race, f"{RUNS}/{run_id}/events")
    responded = [data for _, data in events_of(bodies[0]) if data["event"] == "approval.responded"]
    race.expect(len(responded) == 1, f"{len(responded)} answers were recorded")
    told = [(data["choice"], data["by"]) for data in responded]
    expected = [(winners[0], "client")] if winners else [("deny", "timeout")]
    race.expect(told == expected, f"recorded {told} instead of {expected}")


async def same_key(race: Race) -> None:
    """All nodes get the same request with the same key."""
    is_stream = race.dice.random() < 0.5
    key = {"Idempotency-Key": race.name}
    body = {"input": f"tokens={TOKENS} rate={RATE}", "stream": is_stream, "user": race.name}
    moments = [race.dice.uniform(0, 0.02) for _ in race.nodes]
    replies = await at_moments(
        moments, *(partial(ask, node, "POST", RESPONSES, body, key) for node in race.nodes)
    )
    for reply in replies:
        race.expect(reply.status == 200 and reply.is_whole, f"answered {reply}")
    bodies = {without_comments(reply.body) for reply in replies}
    race.expect(len(bodies) == 1, f"{len(bodies)} different answers")
    originals = sum(not reply.is_replay for reply in replies)
    race.expect(originals == 1, f"{originals} answers are no replay")
    later = await at_moments(
        [0] * len(race.nodes),
        *(partial(ask, node, "POST", RESPONSES, body, key) for node in race.nodes),
    )
    for reply in later:
        race.expect(reply.is_replay, f"later answered {reply.head!r}")
        race.expect(without_comments(reply.body) in bodies, "later another answer")
    claims = Records(race.cluster.url).rows("SELECT run_id FROM claims WHERE key = %s", race.name)
    race.expect(len(claims) == 1, f"{len(claims)} runs for one key")


async def same_session(race: Race) -> None:
    """All nodes get a turn in the same session: one at a time, the others are told to wait."""
    session = race.name
    await ask(race.nodes[0], "POST", SESSIONS, {"id": session})
    path = f"{SESSIONS}/{session}/chat"
    moments = [race.dice.uniform(0, 0.02) for _ in race.nodes]
    loads = [f"tokens={TOKENS} rate={RATE} size={20 + number}" for number in range(len(race.nodes))]
    replies = await at_moments(
        moments,
        *(
            partial(ask, node, "POST", path, {"message": load})
            for node, load in zip(race.nodes, loads, strict=True)
        ),
    )
    won = [reply.json() for reply in replies if reply.status == 200]
    for reply in replies:
        is_loser = reply.status == BUSY and reply.error_code == "session_busy"
        race.expect(reply.status == 200 or is_loser, f"answered {reply}")
    race.expect(won, "nobody won")
    records = Records(race.cluster.url)
    intervals = sorted(records.interval(turn["run_id"]) for turn in won)
    for (_, ended), (began, _) in itertools.pairwise(intervals):
        race.expect(ended <= began + 0.005, f"two turns at the same time: {intervals}")
    bodies = await read_everywhere(race, f"{SESSIONS}/{session}/messages")
    messages = json.loads(bodies[0])["data"]
    runs = [message["run_id"] for message in messages]
    race.expect(set(runs) == {turn["run_id"] for turn in won}, f"messages of {set(runs)}")
    race.expect(len(messages) == 2 * len(won), f"{len(messages)} messages of {len(won)} turns")
    after = await ask(race.nodes[-1], "POST", path, {"message": "tokens=1"})
    race.expect(after.status == 200, f"the session is not free afterwards: {after}")


async def same_conversation(race: Race) -> None:
    """All nodes get a turn in the same conversation."""
    name = race.name
    body = {"input": f"tokens={TOKENS} rate={RATE}", "conversation": name}
    moments = [race.dice.uniform(0, 0.02) for _ in race.nodes]
    replies = await at_moments(
        moments, *(partial(ask, node, "POST", RESPONSES, body) for node in race.nodes)
    )
    won = [reply.json()["id"] for reply in replies if reply.status == 200]
    for reply in replies:
        is_loser = reply.status == BUSY and reply.error_code == "conversation_busy"
        race.expect(reply.status == 200 or is_loser, f"answered {reply}")
    race.expect(won, "nobody won")
    records = Records(race.cluster.url)
    intervals = sorted(records.interval(run_id) for run_id in won)
    for (_, ended), (began, _) in itertools.pairwise(intervals):
        race.expect(ended <= began + 0.005, f"two turns at the same time: {intervals}")
    bodies = await read_everywhere(race, f"/v1/conversations/{name}/items")
    race.expect(len(json.loads(bodies[0])["data"]) == 2 * len(won), "items of other turns")


RACES: Sequence[Callable[[Race], Awaitable[None]]] = (
    stop_and_finish,
    approve_and_time_out,
    same_key,
    same_session,
    same_conversation,
)


# -- helpers --


async def at_moments(
    moments: Sequence[float], *calls: Callable[[], Awaitable[Reply]]
) -> list[Reply]:
    """Make calls side by side, each after its number of seconds, and return their replies."""
    replies: dict[int, Reply] = {}

    async def call(number: int) -> None:
        await trio.sleep(max(0.0, moments[number]))  # the moment is what is tested
        replies[number] = await calls[number]()

    async with trio.open_nursery() as nursery:
        for number in range(len(calls)):
            nursery.start_soon(call, number)
    return [replies[number] for number in range(len(calls))]


async def read_everywhere(race: Race, path: str) -> list[bytes]:
    """Read the same from every node; it must be the same bytes."""
    replies: list[Any] = [await ask(node, "GET", path) for node in race.nodes]
    bodies = [without_comments(reply.body) for reply in replies]
    race.expect({reply.status for reply in replies} == {200}, f"{path}: {replies}")
    race.expect(len(set(bodies)) == 1, f"{path} differs between nodes: {bodies}")
    return bodies


def without_comments(body: bytes) -> bytes:
    """Return a body without the comments of a stream, which depend on the time."""
    blocks = [block for block in body.split(b"\n\n") if not block.startswith(b":")]
    return b"\n\n".join(blocks)
