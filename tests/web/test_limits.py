"""What is refused before an agent runs: sizes, framing, paths, methods, and too many at once."""

from __future__ import annotations

import json
import threading
from contextlib import AsyncExitStack
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from hermes_trio.core.events import Text
from hermes_trio.web.request import MAX_INLINE_BYTES, parse_body
from hermes_trio.web.state import WebOptions
from tests.support.chat_api import said
from tests.support.fakes import CHAT, Pause, ask, ask_stream, make_harness

SMALL = WebOptions(max_body_bytes=1_000)
BODIES = [ask, ask_stream]
ENVELOPE = {"message", "type", "param", "code"}


@pytest.mark.parametrize("length", ["1001", "99999999999999999999", "9" * 5_000, "0001001"])
async def test_a_large_body_is_refused_by_its_length(length: str) -> None:
    harness = make_harness(options=SMALL)
    async with harness.client.open(
        "POST", CHAT, [b"{"], {"Content-Length": length}, is_whole=False
    ) as exchange:
        answer = await exchange.end()
    assert answer.status == 413
    assert (answer.error["code"], set(answer.error)) == ("body_too_large", ENVELOPE)
    assert harness.is_idle


@pytest.mark.parametrize(
    "parts",
    [
        [b"x" * 1_001],
        [b"x" * 100] * 11,
        [b"x"] * 1_001,
        [b"x" * 1_000, b"x"],
        [b"x" * 999, b"", b"xx"],
    ],
)
async def test_a_large_body_is_refused_while_it_comes(parts: list[bytes]) -> None:
    harness = make_harness(options=SMALL)
    async with harness.client.open("POST", CHAT, parts, is_whole=False) as exchange:
        answer = await exchange.end()
    assert answer.status == 413
    assert (answer.error["code"], set(answer.error)) == ("body_too_large", ENVELOPE)
    assert harness.is_idle


async def test_a_body_of_just_the_limit_passes() -> None:
    harness = make_harness(options=SMALL)
    body = json.dumps(ask()).encode().ljust(1_000)
    answer = await harness.client.send_raw(CHAT, *(body[n : n + 1] for n in range(1_000)))
    assert answer.status == 200
    answer = await harness.client.send_raw(CHAT, body, headers={"Content-Length": "1000"})
    assert answer.status == 200


@pytest.mark.parametrize(
    "length", ["abc", "-1", "1.5", "1e3", "٣".encode().decode("latin-1"), "1,1", "0x10"]
)
async def test_a_length_that_is_no_number(length: str) -> None:
    answer = await make_harness().client.send_raw(CHAT, b"{}", headers={"Content-Length": length})
    assert answer.status == 400
    assert answer.error["code"] == "invalid_content_length"
    assert answer.error["param"] == "Content-Length"


async def test_two_framings_exclude_each_other() -> None:
    headers = {"Content-Length": "2", "Transfer-Encoding": "chunked"}
    answer = await make_harness().client.send_raw(CHAT, b"{}", headers=headers)
    assert (answer.status, answer.error["code"]) == (400, "invalid_framing")


@pytest.mark.parametrize("target", ["?x", "", "*", "v1/models", "ftp://server.test/health"])
async def test_a_target_that_is_no_path(target: str) -> None:
    answer = await make_harness().client.get(target)
    assert (answer.status, answer.error["code"]) == (400, "invalid_path")


@pytest.mark.parametrize("target", ["http://server.test/version", "HTTPS://server.test:1/version"])
async def test_a_target_in_absolute_form(target: str) -> None:
    assert (await make_harness().client.get(target)).status == 200


async def test_the_host_of_an_absolute_target_replaces_that_of_the_header() -> None:
    """A page of that host is then of the same origin, and of the other host is not."""
    client = make_harness().client
    for origin, status in (("http://a.test", 200), ("http://b.test", 403)):
        headers = {"Origin": origin, "Host": "b.test"}
        assert (await client.get("http://a.test/version", headers=headers)).status == status


@pytest.mark.parametrize(
    "path",
    [
        "/v1",
        "/v1/chat",
        "/V1/models",
        "/v1/chat/completions/x",
        "/health//live",
        "/\xff",
        "/%00",
        "/v1/../x",
    ],
)
async def test_an_unknown_path(path: str) -> None:
    answer = await make_harness().client.get(path)
    assert answer.status == 404
    assert (answer.error["code"], set(answer.error)) == ("not_found", ENVELOPE)


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", CHAT, "POST"),
        ("POST", "/v1/models", "GET"),
        ("DELETE", "/health", "GET"),
        ("MAKE-COFFEE", "/health", "GET"),
    ],
)
async def test_a_wrong_method(method: str, path: str, allowed: str) -> None:
    answer = await make_harness().client.get(path, method=method)
    assert answer.status == 405
    assert (answer.error["code"], set(answer.error)) == ("method_not_allowed", ENVELOPE)
    assert allowed in answer.headers["allow"].split(", ")


@pytest.mark.parametrize(
    ("method", "path", "said"),
    [
        ("POST", "/v1/responses/compact", "does not compact responses"),
        ("POST", "/v1/responses/input_tokens", "does not count tokens in advance"),
        ("POST", "/v1/responses/input_tokens/", "does not count tokens in advance"),
        ("GET", CHAT, "does not list chat completions"),
    ],
)
async def test_an_operation_that_the_server_does_not_have(
    method: str, path: str, said: str
) -> None:
    client = make_harness().client
    answer = await client.get(path, method=method)
    assert (answer.status, answer.error["code"]) == (404, "not_supported")
    assert said in answer.error["message"]
    assert (await client.get(path, {"Authorization": ""}, method)).status == 401


async def test_such_a_name_is_still_the_id_of_a_response() -> None:
    answer = await make_harness().client.get("/v1/responses/compact")
    assert (answer.status, answer.error["code"]) == (404, "response_not_found")


@pytest.mark.parametrize("body", BODIES)
async def test_too_many_runs_at_once(body: Any) -> None:
    pause = Pause()
    harness = make_harness([pause, Text("Hi")], max_runs=1)
    async with harness.client.post(CHAT, ask_stream()) as exchange:
        await pause.wait_reached()
        refused = await harness.client.send(CHAT, body())
        pause.go()
        assert said(await exchange.end()) == "Hi"
    assert refused.status == 429
    assert refused.headers["retry-after"] == "1"
    assert refused.error["type"] == "rate_limit_error"
    assert refused.error["code"] == "rate_limit_exceeded"
    assert "max 1" in refused.error["message"]
    assert len(harness.agents.turns) == 1
    assert (await harness.client.send(CHAT, body())).status == 200
    assert harness.is_idle


async def test_a_body_that_never_ends_takes_no_slot() -> None:
    harness = make_harness([Text("Hi")], max_runs=1)
    async with harness.client.open("POST", CHAT, [b"{"], is_whole=False):
        await wait_all_tasks_blocked()
        assert harness.state.admission.in_use == 0
        assert (await harness.client.send(CHAT, ask())).status == 200


async def test_a_full_server_does_not_wait_for_a_body() -> None:
    pause = Pause()
    harness = make_harness([pause, Text("Hi")], max_runs=1)
    async with harness.client.post(CHAT, ask_stream()) as running:
        await pause.wait_reached()
        async with harness.client.open("POST", CHAT, [b"{"], is_whole=False) as refused:
            assert (await refused.end()).status == 429
        pause.go()
        await running.end()


@pytest.mark.parametrize(("size", "is_inline"), [(MAX_INLINE_BYTES, True), (200_000, False)])
async def test_a_large_body_is_parsed_in_a_thread(size: int, is_inline: bool) -> None:
    threads: list[threading.Thread] = []

    def parse(raw: bytes) -> int:
        threads.append(threading.current_thread())
        return len(raw)

    harness = make_harness()

    @harness.app.post("/size")
    async def count() -> str:
        return str(await parse_body(parse))

    answer = await harness.client.send_raw("/size", b"x" * size)
    assert answer.body == str(size).encode()
    assert (threads == [threading.current_thread()]) is is_inline


async def test_without_threads_a_large_body_is_parsed_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    harness = make_harness()

    @harness.app.post("/size")
    async def count() -> str:
        return str(await parse_body(len))

    monkeypatch.setattr(trio.to_thread, "run_sync", refuse)
    assert (await harness.client.send_raw("/size", b"x" * 200_000)).body == b"200000"


async def test_zero_means_no_limit() -> None:
    pause = Pause()
    harness = make_harness([pause, Text("Hi")], max_runs=0)
    async with AsyncExitStack() as stack:
        exchanges = [
            await stack.enter_async_context(harness.client.post(CHAT, ask())) for _ in range(5)
        ]
        await wait_all_tasks_blocked()
        assert harness.state.admission.in_use == 5
        pause.go()
        assert [(await exchange.end()).status for exchange in exchanges] == [200] * 5
    assert harness.is_idle


@pytest.mark.parametrize("body", BODIES)
async def test_draining(body: Any) -> None:
    harness = make_harness()
    harness.state.admission.is_draining = True
    answer = await harness.client.send(CHAT, body())
    assert answer.status == 503
    assert answer.headers["retry-after"] == "1"
    assert (answer.error["code"], answer.error["type"]) == ("gateway_draining", "server_error")
    assert (await harness.client.get("/health")).status == 200
    assert (await harness.client.get("/v1/models")).status == 200


@pytest.mark.parametrize("raw", [b"", b"{", b'{"messages": 1}', b"[]"])
async def test_a_refused_request_gives_its_slot_back(raw: bytes) -> None:
    harness = make_harness(max_runs=1)
    for _ in range(3):
        assert (await harness.client.send_raw(CHAT, raw)).status == 400
    assert harness.is_idle
    assert (await harness.client.send(CHAT, ask())).status == 200


async def test_a_websocket_is_closed() -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    await make_harness().client.app({"type": "websocket", "path": "/", "headers": []}, None, send)
    assert sent == [{"type": "websocket.close", "code": 1003}]
