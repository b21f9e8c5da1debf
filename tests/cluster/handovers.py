"""Reach a run from a node that does not execute it: list, follow, reattach, join, cancel, delete.

Each scenario returns what went wrong.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Awaitable, Callable, Sequence

import trio

from tests.cluster.checks import events_of
from tests.cluster.checks import text_of as response_text
from tests.cluster.exchange import Address, Reply, ask, exchange
from tests.cluster.load import CHAT, RESPONSES, RUNS, SESSIONS
from tests.cluster.nodes import Cluster, wait_ended, wait_for
from tests.cluster.races import without_comments
from tests.cluster.records import Records
from tests.crash.frames import frames_of, text_of
from tests.support.dialect_frames import numbered

GRACE = 1.5  # seconds
LONG = "tokens=100000 rate=50"
SHORT = "tokens=60 rate=40 tools=2 think=1"
_RESPONSE_ID = re.compile(rb"resp_[0-9a-f]+")


def _has_id(body: bytes) -> bool:
    return _RESPONSE_ID.search(body) is not None


def _id_of(body: bytes) -> str:
    found = _RESPONSE_ID.search(body)
    assert found is not None
    return found[0].decode()


async def list_all_runs(cluster: Cluster) -> list[str]:
    """Every node lists the runs of all nodes, live and ended."""
    live, ended = set[str](), set[str]()
    for node in cluster.nodes:
        for load, run_ids in ((LONG, live), ("tokens=1", ended)):
            reply = await ask(node, "POST", RUNS, {"input": load})
            run_ids.add(reply.json()["run_id"])
    for run_id in ended:
        await wait_ended(cluster.nodes[0], run_id)
    found = [problem for node in cluster.nodes for problem in await _check_list(node, live, ended)]
    for run_id in live:  # each is stopped from a node that may not be its own
        await ask(cluster.nodes[0], "POST", f"{RUNS}/{run_id}/stop")
        if (run := await wait_ended(cluster.nodes[-1], run_id))["status"] != "cancelled":
            found.append(f"stopped, {run_id} is {run['status']}")
    return found


async def _check_list(node: Address, live: set[str], ended: set[str]) -> list[str]:
    listed = (await ask(node, "GET", f"{RUNS}?limit=100")).json()["data"]
    statuses = {run["run_id"]: run["status"] for run in listed}
    expected = dict.fromkeys(live, "running") | dict.fromkeys(ended, "completed")
    found = [
        f"node {node.port} lists {run_id} as {statuses.get(run_id)}, it is {status}"
        for run_id, status in expected.items()
        if statuses.get(run_id) != status
    ]
    running = (await ask(node, "GET", f"{RUNS}?status=running&limit=100")).json()["data"]
    if missing := live - {run["run_id"] for run in running}:
        found.append(f"node {node.port} does not find that {missing} are running")
    return found


async def reattach_elsewhere(cluster: Cluster) -> list[str]:
    """Under ``grace:N``, a client that comes back on another node keeps the run alive."""
    owner, other = cluster.nodes[0], cluster.nodes[1]
    tokens = int(3 * GRACE * 40)  # far longer than the grace
    body = {"input": f"tokens={tokens} rate=40", "stream": True}
    policy = {"X-Hermes-On-Disconnect": f"grace:{GRACE}"}
    async with exchange(owner, "POST", RESPONSES, body, policy) as first:
        await first.read_until(lambda body: body.count(b"\n\n") > 10)
        run_id, before = _id_of(bytes(first.body)), frames_of(bytes(first.body))
    last = max(frame.number for frame in before)
    rest = await ask(other, "GET", f"{RESPONSES}/{run_id}?stream=true&starting_after={last}")
    whole = await ask(owner, "GET", f"{RESPONSES}/{run_id}?stream=true")
    found = []
    if [*before, *frames_of(rest.body)] != frames_of(whole.body):
        found.append("the stream does not continue byte for byte on another node")
    shown = (await ask(other, "GET", f"{RESPONSES}/{run_id}")).json()
    if shown["status"] != "completed":
        found.append(f"the run ended as {shown['status']}, {shown.get('hermes')}")
    if text_of(frames_of(whole.body)).count("t0") != tokens:
        found.append("text is missing")
    return found


async def leave_for_good(cluster: Cluster) -> list[str]:
    """When the last reader on another node leaves, too, the grace begins anew, and ends the run."""
    owner, other = cluster.nodes[1], cluster.nodes[2]
    policy = {"X-Hermes-On-Disconnect": f"grace:{GRACE}"}
    body = {"input": LONG, "stream": True}
    async with exchange(owner, "POST", RESPONSES, body, policy) as first:
        await first.read_until(_has_id)
        run_id = _id_of(bytes(first.body))
    async with exchange(other, "GET", f"{RESPONSES}/{run_id}?stream=true") as second:
        begun = time.monotonic()
        while time.monotonic() - begun < 2 * GRACE:  # so long it must keep the run alive
            if not await second.read():
                return [f"the reader on another node did not keep the run alive: {second.reply}"]
    left_at = time.monotonic()
    ended = await wait_ended(other, run_id)
    lasted = time.monotonic() - left_at
    found = []
    if (ended["status"], ended.get("reason")) != ("cancelled", "client_disconnected"):
        found.append(f"ended as {ended['status']}, {ended.get('reason')}")
    if lasted < GRACE / 2:
        found.append(f"the grace lasted {lasted:.2f} s instead of {GRACE}")
    return found


async def cancel_and_delete(cluster: Cluster) -> list[str]:
    """Running responses are cancelled and deleted from a node that does not execute them."""
    owner, other, third = cluster.nodes[:3]
    found = []
    started = await ask(owner, "POST", RESPONSES, {"input": LONG, "background": True})
    cancelled = await ask(other, "POST", f"{RESPONSES}/{started.json()['id']}/cancel")
    if cancelled.status != 200 or cancelled.json()["status"] != "cancelled":
        found.append(f"cancelled elsewhere: {cancelled}")
    bodies = {
        (await ask(node, "GET", f"{RESPONSES}/{started.json()['id']}")).body
        for node in cluster.nodes
    }
    if len(bodies) != 1:
        found.append(f"a cancelled response differs between nodes: {bodies}")
    async with exchange(owner, "POST", RESPONSES, {"input": LONG, "stream": True}) as first:
        await first.read_until(_has_id)
        run_id = _id_of(bytes(first.body))
        deleted = await ask(third, "DELETE", f"{RESPONSES}/{run_id}")
        if deleted.status != 200:
            found.append(f"deleted elsewhere: {deleted}")
        rest = await first.read_to_end()
    if not rest.is_whole or not any(frame.is_terminal for frame in frames_of(rest.body)):
        found.append("the stream of a deleted response was not ended properly")
    for node in cluster.nodes:
        reply = await ask(node, "GET", f"{RESPONSES}/{run_id}")
        if reply.status != 404:
            found.append(f"node {node.port} still has a deleted response: {reply}")
    return found


async def delete_session(cluster: Cluster) -> list[str]:
    """A session is deleted from another node; the turn in it is stopped first."""
    owner, other = cluster.nodes[2], cluster.nodes[0]
    await ask(owner, "POST", SESSIONS, {"id": "doomed"})
    path = f"{SESSIONS}/doomed/chat/stream"
    async with exchange(owner, "POST", path, {"message": LONG}) as turn:
        await turn.read_until(lambda body: b"assistant.delta" in body)
        reply = await ask(other, "DELETE", f"{SESSIONS}/doomed")
        found = [] if reply.status == 200 else [f"deleted elsewhere: {reply}"]
        rest = await turn.read_to_end()
    if b"event: done" not in rest.body:
        found.append(f"the stream of a deleted turn was not ended properly: {rest.body[-300:]!r}")
    for node in cluster.nodes:
        reply = await ask(node, "GET", f"{SESSIONS}/doomed")
        if reply.status != 404:
            found.append(f"node {node.port} still has a deleted session: {reply}")
    return found


async def join_by_key(cluster: Cluster) -> list[str]:
    """The same request with the same key on another node gets the identical answer."""
    requests: Sequence[tuple[str, dict[str, object]]] = (
        (RESPONSES, {"input": SHORT, "stream": True}),
        (CHAT, {"messages": [{"role": "user", "content": SHORT}], "stream": True}),
        (RESPONSES, {"input": SHORT}),
    )
    found = []
    for number, (path, body) in enumerate(requests):
        headers = {"Idempotency-Key": f"joined-{number}", "X-Hermes-On-Disconnect": "detach"}
        first, *joined = await _join(cluster, path, body, headers)
        found += [
            f"{path}: joined elsewhere, the answer differs: {reply}"
            for reply in joined
            if without_comments(reply.body) != without_comments(first.body)
        ]
        if sum(reply.is_replay for reply in (first, *joined)) != len(joined):
            found.append(f"{path}: not all answers but one are replays")
    return found


async def _join(
    cluster: Cluster, path: str, body: dict[str, object], headers: dict[str, str]
) -> list[Reply]:
    """Post a request to one node and, once its stream has begun, to the others; return all answers."""
    owner, *others = cluster.nodes
    replies: list[Reply] = []

    async def join(node: Address) -> None:
        replies.append(await ask(node, "POST", path, body, headers))

    async with (
        exchange(owner, "POST", path, body, headers) as first,
        trio.open_nursery() as nursery,
    ):
        if body.get("stream"):
            await first.read_until(lambda body: body.count(b"\n\n") > 5)
        for node in others:
            nursery.start_soon(join, node)
        whole = await first.read_to_end()
    return [whole, *replies]


async def follow_a_session_turn(cluster: Cluster) -> list[str]:
    """The stream of a session turn is the same on every node, live and after any event."""
    await ask(cluster.nodes[0], "POST", SESSIONS, {"id": "followed"})
    path = f"{SESSIONS}/followed/chat/stream"
    streams = dict[int, bytes]()
    async with exchange(cluster.nodes[0], "POST", path, {"message": SHORT}) as first:
        await first.read_until(lambda body: b"assistant.delta" in body)
        run_id = events_of(bytes(first.body))[0][1]["run_id"]

        async def follow(number: int) -> None:
            reply = await ask(cluster.nodes[number], "GET", f"{path}?run_id={run_id}")
            streams[number] = without_comments(reply.body)

        async with trio.open_nursery() as nursery:
            for number in range(1, len(cluster.nodes)):
                nursery.start_soon(follow, number)
            whole = without_comments((await first.read_to_end()).body)
    found = [
        f"node {number} shows another stream" for number in streams if streams[number] != whole
    ]
    frames, dice = numbered(whole), random.Random(run_id)
    for node in cluster.nodes:
        last = dice.choice(sorted(frames))
        reply = await ask(
            node, "GET", f"{path}?run_id={run_id}", headers={"Last-Event-ID": str(last)}
        )
        if numbered(reply.body) != {n: frame for n, frame in frames.items() if n > last}:
            found.append(f"node {node.port}: resumed after {last} it is another stream")
    return found


async def use_a_ticket_elsewhere(cluster: Cluster) -> list[str]:
    """A ticket for a stream is valid on every node."""
    started = await ask(cluster.nodes[0], "POST", RUNS, {"input": SHORT})
    run_id = started.json()["run_id"]
    ticket = (await ask(cluster.nodes[0], "POST", f"{RUNS}/{run_id}/ticket")).json()["ticket"]
    path = f"{RUNS}/{run_id}/events?ticket={ticket}"
    found, anonymous = [], {"Authorization": ""}
    for node in cluster.nodes:
        reply = await ask(node, "GET", path, headers=anonymous)
        if reply.status != 200:
            found.append(f"node {node.port} refuses a ticket of another: {reply}")
    return found


async def answer_for_another_node(cluster: Cluster) -> list[str]:
    """A run that waits for approval is shown so, and answered, on another node."""
    owner, other, third = cluster.nodes[:3]
    run_id = (await ask(owner, "POST", RUNS, {"input": "/ask true"})).json()["run_id"]
    waiting = await wait_for(
        other, f"{RUNS}/{run_id}", lambda reply: reply.json()["status"] == "waiting_for_approval"
    )
    found = [] if waiting.json().get("approval") else [f"no approval is shown: {waiting}"]
    reply = await ask(third, "POST", f"{RUNS}/{run_id}/approval", {"choice": "once"})
    if reply.status != 200 or reply.json()["resolved"] != 1:
        found.append(f"answered elsewhere: {reply}")
    ended = await wait_ended(other, run_id)
    if ended["status"] != "completed" or "not approved" in ended["output"]:
        found.append(f"ended as {ended}")
    return found


async def answer_in_the_chat(cluster: Cluster) -> list[str]:
    """Chat replies end with approval requests, and each next message reaches another node."""
    found = []
    for number, word in enumerate(("yes", "no")):
        session = f"asked-{number}"
        headers = {"X-Hermes-Session-Id": session, "X-Hermes-Approvals": "replies"}
        asked, answering, later = cluster.nodes[:3]
        first = await _say(asked, "/ask echo swept", headers)
        if "Reply **yes** or **no**" not in first:
            found.append(f"the reply does not end with the question: {first}")
        second = await _say(answering, word, headers)
        if ("swept" in second.replace("echo swept", "")) is not (word == "yes"):
            found.append(f"answered with {word} on another node: {second}")
        third = await _say(later, "tokens=2", headers)
        if third.split() != ["t000001............", "t000002............"]:
            found.append(f"the session does not go on: {third}")
        path = f"{SESSIONS}/{session}/messages"
        messages = (await ask(later, "GET", path)).json()["data"]
        if [message["role"] for message in messages].count("user") != 2:
            found.append(f"the session has other messages: {messages}")
    return found


async def withdraw_in_the_chat(cluster: Cluster) -> list[str]:
    """Any other message withdraws the question, on any node, and is answered there."""
    headers = {"X-Hermes-Session-Id": "withdrawn", "X-Hermes-Approvals": "replies"}
    await _say(cluster.nodes[0], "/ask echo swept", headers)
    reply = await _say(cluster.nodes[1], "tokens=2", headers)
    found = [] if "t000002" in reply else [f"the next message is not answered: {reply}"]
    runs = (await ask(cluster.nodes[2], "GET", f"{RUNS}?session_id=withdrawn")).json()["data"]
    statuses = sorted(run["status"] for run in runs)
    return found if statuses == ["cancelled", "completed"] else [*found, f"the runs are {runs}"]


async def _say(node: Address, text: str, headers: dict[str, str]) -> str:
    """Send one message to a chat, streamed; return the text of the reply."""
    body = {"messages": [{"role": "user", "content": text}], "stream": True}
    reply = await ask(node, "POST", CHAT, body, headers)
    assert reply.status == 200, reply
    assert reply.is_whole, reply
    return response_text("chat", reply.body)


SCENARIOS: Sequence[Callable[[Cluster], Awaitable[list[str]]]] = (
    list_all_runs,
    reattach_elsewhere,
    leave_for_good,
    cancel_and_delete,
    delete_session,
    join_by_key,
    follow_a_session_turn,
    use_a_ticket_elsewhere,
    answer_for_another_node,
    answer_in_the_chat,
    withdraw_in_the_chat,
)


async def check_handovers(
    scenario: Callable[[Cluster], Awaitable[list[str]]], cluster: Cluster
) -> list[str]:
    """Play a scenario, and check the records afterwards."""
    found = await scenario(cluster)
    return found + Records(cluster.url).violations()
