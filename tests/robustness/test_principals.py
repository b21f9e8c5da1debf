"""One principal never sees another's things.

Every route is tried with every id of somebody else's.
"""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import pytest
import trio
from attrs import frozen
from trio.testing import MockClock

from hermes_trio.core.events import Text
from hermes_trio.schema.openapi import OPERATIONS, Operation
from tests.robustness.mangled_requests import BODIES
from tests.robustness.observed_server import ObservedServer, open_observed_server
from tests.robustness.report import CaseCounter
from tests.robustness.scenarios import LIMITS
from tests.robustness.schedule import repeatable
from tests.support.asgi import HttpResponse
from tests.support.fakes import OTHER_KEY, Ask, bearer

BOB = {**bearer(OTHER_KEY), "Content-Type": "application/json"}
MARK = "only-ann-knows"
OPEN_TO_ALL = {"model_id"}  # names of models are no secret


@frozen
class OwnedObjects:
    """What ann has."""

    ids: dict[str, list[str]]

    def of(self, parameter: str) -> list[str]:
        """The ids to try for a parameter: those of its kind, and those of all others too."""
        return [each for ids in self.ids.values() for each in ids] if parameter in self.ids else []


async def made(server: ObservedServer) -> OwnedObjects:
    """One of everything, ended and live, full of what nobody else may see."""
    client = server.harness.client
    ended = (await client.send("/v1/responses", {"input": MARK, "metadata": {"a": MARK}})).json[
        "id"
    ]
    live = (await client.send("/v1/responses", {"input": MARK, "background": True})).json["id"]
    run = (await client.send("/v1/runs", {"input": MARK, "session_id": "ann-session"})).json[
        "run_id"
    ]
    chat = (
        await client.send("/v1/chat/completions", {"messages": [{"role": "user", "content": MARK}]})
    ).json["id"]
    session = {"id": "ann-titled", "title": MARK, "system_prompt": MARK}
    assert (await client.send("/api/sessions", session)).status == 201
    await client.send("/api/sessions/ann-titled/chat", {"message": MARK})
    item = {"type": "message", "role": "user", "content": MARK}
    body = {"items": [item], "metadata": {"a": MARK}}
    conversation = (await client.send("/v1/conversations", body)).json["id"]
    items = (await client.get(f"/v1/conversations/{conversation}/items")).json["data"]
    return OwnedObjects(
        {
            "response_id": [ended, live],
            "run_id": [run, chat],
            "session_id": ["ann-session", "ann-titled"],
            "conversation_id": [conversation],
            "item_id": [items[0]["id"]],
        }
    )


async def asked_by_bob(
    server: ObservedServer, operation: Operation, path: str, query: str = ""
) -> HttpResponse:
    """The same request that its owner would make."""
    body = BODIES.get((operation.method, operation.path))
    parts = [b"" if body is None else json.dumps(body).encode()]
    target = f"{path}?{query}" if query else path
    async with server.harness.client.open(operation.method.upper(), target, parts, BOB) as exchange:
        with trio.fail_after(1_000):
            await exchange.over.wait()
        return exchange.answer


def targets(operation: Operation, things: OwnedObjects) -> list[str]:
    """The path with every combination of ids."""
    choices = [things.of(name) for name in operation.parameters]
    found = []
    for values in product(*choices):
        path = operation.path
        for name, value in zip(operation.parameters, values, strict=True):
            path = path.replace(f"{{{name}}}", value)
        found.append(path)
    return found


async def everything(server: ObservedServer, things: OwnedObjects) -> dict[str, Any]:
    """All that ann sees, to find that nobody changed it."""
    paths = [
        *(f"/v1/responses/{each}" for each in things.ids["response_id"]),
        *(f"/v1/runs/{each}" for each in things.ids["run_id"]),
        *(f"/api/sessions/{each}/messages" for each in things.ids["session_id"]),
        *(f"/v1/conversations/{each}/items" for each in things.ids["conversation_id"]),
        "/v1/runs?limit=100",
    ]
    return {path: (await server.harness.client.get(path)).json for path in paths}


def with_observed_server(test: Any) -> None:
    async def main() -> None:
        script = (
            Text("Well"),
            Ask("rm"),
            Text("!"),
        )  # bob has agents too: they must not know the mark
        async with open_observed_server(script, max_runs=50, limits=LIMITS) as server:
            await test(server, await made(server))

    with repeatable():
        trio.run(main, clock=MockClock(autojump_threshold=0))


@pytest.mark.slow
def test_every_route_with_every_foreign_id(cases: CaseCounter) -> None:
    tried = 0

    async def play(server: ObservedServer, things: OwnedObjects) -> None:
        nonlocal tried
        before = await everything(server, things)
        for operation in OPERATIONS:
            if not operation.parameters or OPEN_TO_ALL & set(operation.parameters):
                continue
            for path in targets(operation, things):
                query = f"stream=true&run_id={things.ids['run_id'][0]}&limit=100"
                for asked in ("", query):
                    answer = await asked_by_bob(server, operation, path, asked)
                    tried += 1
                    assert answer.status == 404 or _is_own(operation, answer), (
                        operation.path,
                        path,
                        answer,
                    )
                    assert MARK.encode() not in answer.body
        assert await everything(server, things) == before

    with_observed_server(play)
    cases.add("ids of other principals", {"by path": tried})


def _is_own(operation: Operation, answer: HttpResponse) -> bool:
    """A request that is refused before anything is looked up tells nothing."""
    return answer.status == 400 and answer.error["param"] == "run_id" and operation.method == "get"


@pytest.mark.slow
def test_lists_and_continuations(cases: CaseCounter) -> None:
    tried = 0

    async def play(server: ObservedServer, things: OwnedObjects) -> None:
        nonlocal tried
        before = await everything(server, things)
        for operation in OPERATIONS:
            if operation.parameters or operation.method != "get":
                continue
            answer = await asked_by_bob(
                server, operation, operation.path, "limit=100&include_children=true"
            )
            tried += 1
            assert MARK.encode() not in answer.body, operation.path
            for foreign in (each for ids in things.ids.values() for each in ids):
                assert foreign.encode() not in answer.body, operation.path
        for path, body, headers in _continuations(things):
            server.agents.turns.clear()
            answer = await server.harness.client.send(path, body, {**BOB, **headers})
            tried += 1
            assert answer.status == 404 or not any(
                MARK in str(turn.history) for turn in server.agents.turns
            )
        assert await everything(server, things) == before

    with_observed_server(play)
    cases.add("ids of other principals", {"lists and continuations": tried})


def _continuations(things: OwnedObjects) -> list[tuple[str, dict[str, Any], dict[str, str]]]:
    """Requests that name something of ann's in their body or headers."""
    chat = {"messages": [{"role": "user", "content": "Hi"}]}
    found: list[tuple[str, dict[str, Any], dict[str, str]]] = []
    for foreign in (each for ids in things.ids.values() for each in ids):
        found += [
            ("/v1/responses", {"input": "Hi", "previous_response_id": foreign}, {}),
            ("/v1/responses", {"input": "Hi", "conversation": foreign}, {}),
            ("/v1/responses", {"input": "Hi", "conversation": {"id": foreign}}, {}),
            ("/v1/runs", {"input": "Hi", "previous_response_id": foreign}, {}),
            ("/v1/runs", {"input": "Hi", "session_id": foreign}, {}),
            ("/v1/chat/completions", chat, {"X-Hermes-Session-Id": foreign}),
            (f"/api/sessions/{foreign}/fork", {}, {}),
        ]
    return found
