"""No client stalls the others: ``/health`` answers within 100 ms while one floods the server or sends it giants."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import h2.connection
import pytest
import trio
from hyperframe.frame import ContinuationFrame, HeadersFrame

from tests.robustness.latency_probe import probing
from tests.robustness.real_servers import server_in, unless_short
from tests.robustness.report import CaseCounter
from tests.support.raw_http import ask, connect, read_to_end
from tests.support.server_process import ServerProcess

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("robustness-stalls"),
    pytest.mark.timeout(600),
]

LIMIT = 0.1  # seconds
# A stall of the server shows in every attempt, one of a busy machine does not.
ATTEMPTS = 8
CONNECTIONS = 10
MEGABYTES = 9_500_000  # what a body may have, less its frame
CHAT, RESPONSES, RUNS = "/v1/chat/completions", "/v1/responses", "/v1/runs"

Attack = Callable[[ServerProcess], Awaitable[None]]


async def longest_wait(server: ServerProcess, attack: Attack) -> float:
    """The shortest, over some attempts, of the longest times that ``/health`` took beside an attack."""
    best = float("inf")
    for _ in range(ATTEMPTS):
        with probing(server.port) as latency:
            await attack(server)
        best = min(best, latency.longest)
        if best <= LIMIT:
            break
    return best


# Floods, which need no key.

HEAD = [
    (b":method", b"GET"),
    (b":path", b"/"),
    (b":scheme", b"http"),
    (b":authority", b"localhost"),
]


def http2(act: Callable[[h2.connection.H2Connection], None], count: int) -> bytes:
    """The bytes of a connection on which something is done many times."""
    connection = h2.connection.H2Connection()
    connection.initiate_connection()
    for _ in range(count):
        act(connection)
    return connection.data_to_send()


def open_and_reset(connection: h2.connection.H2Connection) -> None:
    number = connection.get_next_available_stream_id()
    connection.send_headers(number, HEAD, end_stream=True)
    connection.reset_stream(number)


def continuations(count: int) -> bytes:
    """Headers that never end."""
    connection = h2.connection.H2Connection()
    connection.initiate_connection()
    head = HeadersFrame(1, connection.encoder.encode(HEAD))
    more = ContinuationFrame(1, connection.encoder.encode([(b"x", b"y" * 100)])).serialize()
    return connection.data_to_send() + head.serialize() + more * count


def pipelined(what: str) -> bytes:
    head = f"{what} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n"
    return (2_000 * f"{head}\r\n" + f"{head}Connection: close\r\n\r\n").encode()


FLOODS: Mapping[str, Callable[[], bytes]] = {
    "HTTP/2 resets": lambda: http2(open_and_reset, 2_000),
    "HTTP/2 pings": lambda: http2(lambda connection: connection.ping(bytes(8)), 20_000),
    "HTTP/2 settings": lambda: http2(lambda connection: connection.update_settings({}), 20_000),
    "HTTP/2 window updates": lambda: http2(
        lambda connection: connection.increment_flow_control_window(1), 20_000
    ),
    "HTTP/2 continuations": lambda: continuations(20_000),
    "pipelined requests": lambda: pipelined("GET /health"),
    "pipelined rejections": lambda: pipelined("POST /v1/runs"),
}


def flood(data: bytes) -> Attack:
    """Send bytes on several connections at once, and read what comes back until each is closed."""

    async def attack(server: ServerProcess) -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(CONNECTIONS):
                nursery.start_soon(send, server.port)

    async def send(port: int) -> None:
        async with await connect(port) as stream, trio.open_nursery() as nursery:
            nursery.start_soon(write, stream)
            await read_to_end(stream)
            nursery.cancel_scope.cancel()

    async def write(stream: trio.SocketStream) -> None:
        with suppress(trio.BrokenResourceError):  # the server has closed it
            await stream.send_all(data)

    return attack


# Giant requests, which need one.


def message(content: Any, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": content}


def chat(*messages: dict[str, Any], **more: Any) -> tuple[str, bytes]:
    return CHAT, json.dumps({"messages": messages, **more}).encode()


def response(content: Any, **more: Any) -> tuple[str, bytes]:
    return RESPONSES, json.dumps({"input": content, **more}).encode()


def parts(count: int) -> list[dict[str, str]]:
    return [{"type": "text", "text": "a"}] * count


def repeated(text: str) -> str:
    return text * (MEGABYTES // len(json.dumps(text)))


LAST = message("tokens=3")
CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}

REQUESTS: Mapping[str, Callable[[], tuple[str, bytes]]] = {
    "one long message": lambda: chat(message(repeated("word ")), LAST),
    "one long message, streamed": lambda: chat(message(repeated("é")), LAST, stream=True),
    "10,000 messages": lambda: chat(*[message("hello")] * 9_999, LAST),
    "100 messages of 1,000 parts": lambda: chat(*[message(parts(1_000))] * 100, LAST),
    "10,000 tools": lambda: chat(
        LAST, tools=[{"type": "function", "function": {"name": f"f{n}"}} for n in range(10_000)]
    ),
    "a model of megabytes": lambda: chat(LAST, model=repeated("m")),
    "a role of megabytes": lambda: chat(message("x", role=repeated("password=1 "))),
    "a field of megabytes": lambda: chat(LAST, **{repeated("secret: 'x' "): 1}),
    "a user of megabytes": lambda: chat(LAST, user=repeated("u")),
    "metadata of megabytes": lambda: response("tokens=3", metadata={"a": repeated("m")}),
    "empty arrays": lambda: (CHAT, b'{"messages": [' + b"[]," * (MEGABYTES // 3) + b"[]]}"),
    "nested arrays": lambda: (CHAT, b'{"messages": ' + b"[" * MEGABYTES),
    "digits": lambda: (CHAT, b'{"messages": ' + b"9" * MEGABYTES + b"}"),
    "fields": lambda: chat(LAST, **{str(n): n for n in range(490_000)}),
    "punctuation": lambda: chat(message(repeated('[{,"\\')), LAST),
    "no JSON": lambda: (CHAT, b"\xff" * MEGABYTES),
    "a long input": lambda: response(repeated("x"), instructions="tokens=3"),
    "long instructions": lambda: response("tokens=3", instructions=repeated("\U0001f600")),
    "10,000 items": lambda: response([*[message("hello")] * 9_999, LAST]),
    "a giant result": lambda: response(
        [CALL, {"type": "function_call_output", "call_id": "c", "output": repeated("r\n")}, LAST]
    ),
    "a giant result in chat": lambda: chat(
        message("f?"),
        {
            **message(None, "assistant"),
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
        {**message(repeated("r "), "tool"), "tool_call_id": "c"},
        LAST,
    ),
    "arguments of megabytes": lambda: response(
        [{**CALL, "arguments": json.dumps({"a": repeated('"')[: MEGABYTES // 8]})}, LAST]
    ),
    "a run": lambda: (RUNS, json.dumps({"input": repeated("run ")}).encode()),
    "a tool result of five megabytes": lambda: response("tokens=1 tools=1 size=5000000"),
    "a tool result of five megabytes, streamed": lambda: response(
        "tokens=1 tools=1 size=5000000", stream=True
    ),
    "an answer of ten megabytes": lambda: chat(message("tokens=10 size=1000000")),
    "an answer of five megabytes, streamed": lambda: response(
        "tokens=10 size=500000", stream=True
    ),
}  # fmt: skip

# For each pattern that looks for secrets, and for every other parser of text: what makes it search
# in vain.
ADVERSARIAL = {
    "private keys": "-----BEGIN PRIVATE KEY-----\n",
    "private keys without an end": "-----BEGIN " + "A" * 40,
    "credentials in URLs": "://a:",
    "pairs": "password=",
    "pairs in quotes": 'token: "\\\\',
    "bearer tokens": "bearer a",
    "keys": "sk-abcdefg ",
    "web tokens": "eyJabcdefghijklmn.",
    "escapes": "\\",
    "control characters": "\x1b[31m\u2028",
    "opened brackets": "$((",
    "quotes": "'\"`",
}

DEMO: Mapping[str, Callable[[str], str]] = {
    "echoed": lambda text: text,
    "as an error": lambda text: f"/fail {text}",
    "as reasoning": lambda text: f"/think {text}",
    "as a command": lambda text: f"/terminal {text}",
    "as a tool call": lambda text: f"/call f {json.dumps({'a': text})}",
}


def request(path: str, body: bytes) -> Attack:
    """Send one request and read the whole answer, which must not be a server error."""

    async def attack(server: ServerProcess) -> None:
        head = (
            f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            f"Authorization: Bearer {server.key}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        answer = await ask(server.port, head.encode() + body)
        assert answer.split(b" ", 2)[1] in {b"200", b"202", b"400", b"413", b"422", b"424"}, answer[
            :500
        ]

    return attack


@pytest.fixture
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServerProcess]:
    expected = "http2_flood|refused a key|the agent raised"
    with server_in(tmp_path, getattr(request, "param", "synthetic"), expected) as running:
        yield running


@pytest.mark.parametrize("name", FLOODS)
async def test_floods(server: ServerProcess, name: str, full: bool, cases: CaseCounter) -> None:
    unless_short(full)
    assert await longest_wait(server, flood(FLOODS[name]())) <= LIMIT
    cases.add("stalls", {f"floods: {name}": 1})


async def test_giant_requests(server: ServerProcess, full: bool, cases: CaseCounter) -> None:
    unless_short(full)
    waits = {name: await longest_wait(server, request(*make())) for name, make in REQUESTS.items()}
    assert {name: wait for name, wait in waits.items() if wait > LIMIT} == {}
    cases.add("stalls", {"giant requests": len(waits)})


@pytest.mark.parametrize("server", ["demo"], indirect=True)
@pytest.mark.parametrize("how", DEMO)
async def test_adversarial_text(
    server: ServerProcess, how: str, full: bool, cases: CaseCounter
) -> None:
    unless_short(full)
    waits = {}
    for name, text in ADVERSARIAL.items():
        long = DEMO[how](text * (500_000 // len(text)))
        waits[name] = await longest_wait(server, request(*chat(message(long), max_tokens=5)))
    assert {name: wait for name, wait in waits.items() if wait > LIMIT} == {}
    cases.add("stalls", {f"adversarial text {how}": len(waits)})
