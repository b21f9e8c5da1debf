"""Several agents in one server: by model, by prefix, and apart from each other."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from hermes_trio.core.events import Text
from hermes_trio.schema.openapi import OPERATIONS, Operation
from hermes_trio.web.state import ServedProfile, WebOptions
from tests.support.asgi import HttpResponse
from tests.support.chat_api import said
from tests.support.fakes import (
    CHAT,
    KEY,
    OTHER_KEY,
    AppHarness,
    Pause,
    ScriptedAgentFactory,
    ask,
    ask_stream,
    bearer,
)
from tests.support.responses_api import BOB, idle_harness, stream
from tests.web.test_media import DATA, PIXEL

OPTIONS = WebOptions(
    profiles=(
        ServedProfile("coder", "coder"),
        ServedProfile("writer", "Fine writer"),
        ServedProfile("hidden", "hidden", ("bob",)),
    )
)
SAYINGS = {"coder": "I code", "writer": "I write", "hidden": "I hide"}
RESPONSES, RUNS, CONVERSATIONS = "/v1/responses", "/v1/runs", "/v1/conversations"


@asynccontextmanager
async def several(
    profile_agents: dict[str, ScriptedAgentFactory] | None = None, **more: Any
) -> AsyncIterator[AppHarness]:
    """A server with three profiles beside its own agent; ``hidden`` is for Bob."""
    agents = {name: ScriptedAgentFactory((Text(words),)) for name, words in SAYINGS.items()} | (
        profile_agents or {}
    )
    async with idle_harness(
        (Text("I serve"),), options=OPTIONS, profile_agents=agents, **more
    ) as harness:
        yield harness


def content(answer: HttpResponse) -> str:
    """What a chat answer says."""
    assert answer.status == 200, answer.body
    return str(answer.json["choices"][0]["message"]["content"])


def refusal(answer: HttpResponse) -> tuple[int, str]:
    """Status and code of an error."""
    return answer.status, answer.error["code"]


# Which agent


@pytest.mark.parametrize(
    ("path", "model", "words", "shown"),
    [
        ("", "hermes-agent", "I serve", "hermes-agent"),
        ("", "gpt-4o", "I serve", "gpt-4o"),
        ("", None, "I serve", "hermes-agent"),
        ("", "coder", "I code", "coder"),
        ("", "Fine writer", "I write", "Fine writer"),
        ("", "writer", "I serve", "writer"),  # a name of a profile is no model id
        ("/p/coder", "coder", "I code", "coder"),
        ("/p/coder", "Fine writer", "I code", "Fine writer"),
        ("/p/coder", "hidden", "I code", "hidden"),
        ("/p/coder", "gpt-4o", "I code", "gpt-4o"),
        ("/p/writer", None, "I write", "Fine writer"),
    ],
)
async def test_prefix_or_model_choose_the_agent(
    path: str, model: str | None, words: str, shown: str
) -> None:
    asked = {} if model is None else {"model": model}
    async with several() as harness:
        chat = await harness.client.send(f"{path}{CHAT}", ask(**asked))
        response = await harness.client.send(f"{path}{RESPONSES}", {"input": "Hi", **asked})
        streamed = await harness.client.send(f"{path}{CHAT}", ask_stream(**asked))
    assert (content(chat), said(streamed)) == (words, words)
    assert response.json["output"][0]["content"][0]["text"] == words
    assert (chat.json["model"], response.json["model"]) == (shown, shown)


async def test_an_agent_is_told_who_asks_and_for_which_profile() -> None:
    agents = ScriptedAgentFactory((Text("x"),))
    async with several({"coder": agents}) as harness:
        await harness.client.send(f"/p/coder{CHAT}", ask())
        await harness.client.send(f"/p/coder{RESPONSES}", {"input": "Hi"})
        await harness.client.send(CHAT, ask(model="coder"))
        await harness.client.send(CHAT, ask())
    assert [(turn.principal, turn.profile) for turn in agents.turns] == [("ann", "coder")] * 3
    assert [(turn.principal, turn.profile) for turn in harness.agents.turns] == [("ann", "")]


async def test_images_come_from_the_workspace_of_the_profile(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "coder"):
        folder.mkdir(exist_ok=True)
        (folder / "a.png").write_bytes(PIXEL)
    profile_agents = {
        "coder": ScriptedAgentFactory(
            (Text(f"MEDIA:{tmp_path}/a.png MEDIA:{tmp_path}/coder/a.png"),)
        )
    }
    async with several(profile_agents, workspace=tmp_path) as harness:
        for answer in (
            await harness.client.send(f"/p/coder{CHAT}", ask()),
            await harness.client.send(CHAT, ask(model="coder")),
        ):
            assert (
                content(answer) == f"MEDIA:{tmp_path}/a.png ![a.png](data:image/png;base64,{DATA})"
            )


# Who may


async def test_a_model_that_is_not_for_everybody() -> None:
    async with several() as harness:
        for path, body in (
            (CHAT, ask(model="hidden")),
            (RESPONSES, {"input": "Hi", "model": "hidden"}),
        ):
            answer = await harness.client.send(path, body)
            assert refusal(answer) == (404, "model_not_found")
            assert answer.error["param"] == "model"
        assert refusal(await harness.client.send(RUNS, {"input": "Hi", "model": "hidden"})) == (
            404,
            "model_not_found",
        )
        assert content(await harness.client.send(CHAT, ask(model="hidden"), BOB)) == "I hide"
    assert harness.ends == [("completed", "")]


def described(answer: HttpResponse) -> list[str]:
    """The ids of a list of models."""
    assert answer.status == 200
    assert {model["owned_by"] for model in answer.json["data"]} == {"hermes"}
    assert [model["root"] for model in answer.json["data"]] == [
        model["id"] for model in answer.json["data"]
    ]
    return [model["id"] for model in answer.json["data"]]


async def test_each_profile_is_a_model_for_those_who_may_use_it() -> None:
    async with several() as harness:
        client = harness.client
        assert described(await client.get("/v1/models")) == ["hermes-agent", "coder", "Fine writer"]
        assert described(await client.get("/v1/models", BOB)) == [
            "hermes-agent",
            "coder",
            "Fine writer",
            "hidden",
        ]
        assert described(await client.get("/p/writer/v1/models")) == ["Fine writer"]
        assert described(await client.get("/p/hidden/v1/models", BOB)) == ["hidden"]
        assert (await client.get("/v1/models/Fine%20writer")).json["id"] == "Fine writer"
        assert refusal(await client.get("/v1/models/hidden")) == (404, "model_not_found")
        assert (await client.get("/v1/models/hidden", BOB)).json["id"] == "hidden"
        assert (await client.get("/p/coder/v1/models/coder")).status == 200
        assert refusal(await client.get("/p/coder/v1/models/hermes-agent")) == (
            404,
            "model_not_found",
        )
        assert (await client.get("/v1/capabilities")).json["model"] == "hermes-agent"
        assert (await client.get("/p/writer/v1/capabilities")).json["model"] == "Fine writer"


def path_of(operation: Operation) -> str:
    """A path of an operation, with ids that nobody has."""
    return re.sub(r"\{\w+\}", "none", operation.path)


async def ask_for(
    harness: AppHarness, operation: Operation, prefix: str, headers: dict[str, str]
) -> HttpResponse:
    """Ask without a body: what comes back tells whether the route is there."""
    return await harness.client.get(
        f"{prefix}{path_of(operation)}", headers, operation.method.upper()
    )


ALL = [
    pytest.param(operation, id=f"{operation.method} {operation.path}") for operation in OPERATIONS
]


@pytest.mark.parametrize("operation", ALL)
async def test_every_route_is_there_under_a_prefix(operation: Operation) -> None:
    async with several() as harness:
        plain = await ask_for(harness, operation, "", {})
        prefixed = await ask_for(harness, operation, "/p/coder", {})
        assert prefixed.status == plain.status
        assert plain.status < 400 or prefixed.error == plain.error
        assert refusal(await ask_for(harness, operation, "/p/nobody", {})) == (
            404,
            "profile_not_found",
        )
        assert refusal(await ask_for(harness, operation, "/p/hidden", {})) == (
            404,
            "profile_not_found",
        )
        assert (await ask_for(harness, operation, "/p/hidden", BOB)).status == plain.status


@pytest.mark.parametrize("operation", ALL)
async def test_without_a_key_a_prefix_changes_nothing(operation: Operation) -> None:
    async with several() as harness:
        harness.client.headers = {}
        plain = await ask_for(harness, operation, "", {})
        prefixed = await ask_for(harness, operation, "/p/coder", {})
        assert (plain.status == 401) is (prefixed.status == 401) is (not operation.is_open)
        hidden, unknown = [
            await ask_for(harness, operation, f"/p/{name}", {}) for name in ("hidden", "nobody")
        ]
        expected = (404, "profile_not_found") if operation.is_open else (401, "invalid_api_key")
        assert refusal(hidden) == refusal(unknown) == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/p/coder/nowhere", (404, "not_found")),
        ("/p/coder/p/coder/v1/models", (404, "not_found")),
        ("/p", (404, "not_found")),
        ("/p/", (404, "not_found")),
        ("/p//v1/models", (404, "not_found")),
        ("/p/Coder/v1/models", (404, "profile_not_found")),
        ("/p/coder%20/v1/models", (404, "profile_not_found")),
        ("/p/../v1/models", (404, "profile_not_found")),
        ("/p/%0A/v1/models", (404, "profile_not_found")),
    ],
)
async def test_odd_paths(path: str, expected: tuple[int, str]) -> None:
    async with several() as harness:
        answer = await harness.client.get(path)
        assert answer.status == expected[0]
        assert (answer.error["code"] == "profile_not_found") is (expected[1] == "profile_not_found")


# Apart


async def test_responses_of_a_profile_are_its_own() -> None:
    async with several() as harness:
        client = harness.client
        made = (await client.send(f"/p/coder{RESPONSES}", {"input": "Hi"})).json["id"]
        own = (await client.send(RESPONSES, {"input": "Hi", "model": "coder"})).json["id"]
        assert (await client.get(f"/p/coder{RESPONSES}/{made}")).json["id"] == made
        assert (await client.get(f"{RESPONSES}/{own}")).json["id"] == own
        for path in (
            f"{RESPONSES}/{made}",
            f"/p/writer{RESPONSES}/{made}",
            f"/p/coder{RESPONSES}/{own}",
        ):
            for suffix, method in (
                ("", "GET"),
                ("?stream=true", "GET"),
                ("/input_items", "GET"),
                ("/cancel", "POST"),
                ("", "DELETE"),
            ):
                assert refusal(await client.get(f"{path}{suffix}", method=method)) == (
                    404,
                    "response_not_found",
                )
        assert (await client.get(f"/p/coder{RESPONSES}/{made}", BOB)).status == 404
        for path, previous in (
            (RESPONSES, made),
            (f"/p/writer{RESPONSES}", made),
            (f"/p/coder{RESPONSES}", own),
        ):
            answer = await client.send(path, {"input": "Hi", "previous_response_id": previous})
            assert refusal(answer) == (404, "previous_response_not_found")
        again = await client.send(
            f"/p/coder{RESPONSES}", {"input": "Hi", "previous_response_id": made}
        )
        assert again.json["previous_response_id"] == made


async def test_runs_of_a_profile_are_its_own() -> None:
    pause = Pause()
    async with several({"coder": ScriptedAgentFactory((pause, Text("x")))}) as harness:
        client = harness.client
        run = (await client.send(f"/p/coder{RUNS}", {"input": "Hi"})).json["run_id"]
        await pause.wait_reached()
        for prefix in ("", "/p/writer"):
            for suffix, method in (("", "GET"), ("/events", "GET"), ("/stop", "POST")):
                answer = await client.get(f"{prefix}{RUNS}/{run}{suffix}", method=method)
                assert refusal(answer) == (404, "run_not_found")
        assert (await client.get(f"/p/coder{RUNS}/{run}")).json["status"] == "running"
        assert (await client.get(f"/p/coder{RUNS}/{run}/stop", method="POST")).status == 200
        pause.go()


async def test_conversations_of_a_profile_are_its_own() -> None:
    async with several() as harness:
        client = harness.client
        made = (await client.send(f"/p/coder{CONVERSATIONS}", {})).json["id"]
        assert (await client.get(f"/p/coder{CONVERSATIONS}/{made}")).status == 200
        for prefix in ("", "/p/writer"):
            for suffix, method in (("", "GET"), ("", "DELETE"), ("/items", "GET")):
                answer = await client.get(f"{prefix}{CONVERSATIONS}/{made}{suffix}", method=method)
                assert refusal(answer) == (404, "conversation_not_found")
            answer = await client.send(
                f"{prefix}{RESPONSES}", {"input": "Hi", "conversation": made}
            )
            assert refusal(answer) == (404, "conversation_not_found")
        named = {"input": "Hi", "conversation": "shared name"}
        for prefix in ("", "/p/coder", "/p/writer"):
            assert (await client.send(f"{prefix}{RESPONSES}", named)).status == 200
    histories = [len(turn.history) for turn in harness.agents.turns]
    assert histories == [0]


async def test_a_busy_conversation_of_one_profile_does_not_hold_up_another() -> None:
    pause = Pause()
    body = stream(conversation="same")
    async with (
        several({"coder": ScriptedAgentFactory((pause, Text("x")))}) as harness,
        harness.client.post(f"/p/coder{RESPONSES}", body) as busy,
    ):
        await pause.wait_reached()
        assert (await harness.client.send(f"/p/coder{RESPONSES}", body)).status == 409
        assert (await harness.client.send(f"/p/writer{RESPONSES}", body)).status == 200
        pause.go()
        assert (await busy.end()).status == 200


async def test_sessions_of_a_profile_are_its_own() -> None:
    session = {"X-Hermes-Session-Id": "s1"}
    coder = ScriptedAgentFactory((Text("I code"),))
    async with several({"coder": coder}) as harness:
        for _ in range(2):
            await harness.client.send(f"/p/coder{CHAT}", ask("first"), session)
            await harness.client.send(CHAT, ask("second"), session)
        await harness.client.send(CHAT, ask("third", model="coder"), session)
        assert (
            await harness.transcript("s1", "ann/coder")
            == [("user", "first"), ("assistant", "I code")] * 2
        )
    own = [("user", "second"), ("assistant", "I serve")] * 2
    assert [len(turn.history) for turn in harness.agents.turns] == [0, 2]
    assert [len(turn.history) for turn in coder.turns] == [0, 2, 4]
    assert await harness.transcript("s1") == [*own, ("user", "third"), ("assistant", "I code")]


@pytest.mark.parametrize("path", [CHAT, RESPONSES, RUNS])
async def test_the_same_key_under_another_prefix_is_another_request(path: str) -> None:
    body = ask() if path == CHAT else {"input": "Hi"}
    key = {"Idempotency-Key": "k"}
    async with several(max_runs=4) as harness:
        answers = [
            await harness.client.send(f"{prefix}{path}", body, key)
            for prefix in ("", "/p/coder", "/p/writer", "/p/coder")
        ]
    names = [answer.json.get("run_id") or answer.json["id"] for answer in answers]
    assert len(set(names)) == 3
    assert names[1] == names[3]
    assert [answer.headers.get("idempotency-replayed") for answer in answers] == [
        None,
        None,
        None,
        "true",
    ]


async def test_principals_do_not_meet_in_a_profile() -> None:
    async with several() as harness:
        made = (await harness.client.send(f"/p/coder{RESPONSES}", {"input": "Hi"})).json["id"]
        assert (
            await harness.client.get(f"/p/coder{RESPONSES}/{made}", bearer(OTHER_KEY))
        ).status == 404
        assert (await harness.client.get(f"/p/coder{RESPONSES}/{made}", bearer(KEY))).status == 200


# Around


async def test_figures_count_routes_without_prefixes() -> None:
    async with several() as harness:
        await harness.client.get("/p/coder/v1/models")
        await harness.client.get("/p/nobody/v1/models")
        text = (await harness.client.get("/p/coder/metrics")).body.decode()
    assert 'route="/v1/models"' in text
    assert "/p/" not in text


async def test_browsers_may_ask_first() -> None:
    async with several() as harness:
        harness.client.headers = {}
        answer = await harness.client.get(
            f"/p/coder{CHAT}", {"Origin": "http://server.test"}, "OPTIONS"
        )
    assert answer.status == 200
