"""HTTP/2, in clear text with prior knowledge and over TLS.

The same turns, and a reset stream is a client that left.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trustme
from attrs import frozen
from h2.errors import ErrorCodes
from openai import DefaultHttpxClient, OpenAI

from tests.e2e.conftest import AGENTS, Measured
from tests.e2e.interruptible_agent import interrupt_file
from tests.e2e.sdk import MODEL, asked
from tests.support.raw_http import H2Client
from tests.support.server_process import LaunchOptions, ServerProcess, eventually, serving
from tests.support.socket_client import PATH, chat_body, chat_headers, open_chat_stream
from tests.support.stored_records import turns

pytestmark = pytest.mark.xdist_group("e2e-http2")

SECONDS = 20


@frozen
class Secure:
    """A server with a certificate."""

    server: ServerProcess
    context: ssl.SSLContext


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    folder = tmp_path_factory.mktemp("secure")
    authority = trustme.CA()
    context = ssl.create_default_context()
    authority.configure_trust(context)
    flags = ("--agent", AGENTS, *_certificate(authority, folder))
    with serving(LaunchOptions(folder, flags, {"drain_seconds": 1}), trust=context) as running:
        yield Secure(running, context)


def _certificate(authority: trustme.CA, folder: Path) -> tuple[str, ...]:
    issued = authority.issue_cert("127.0.0.1")
    chain, key = folder / "chain.pem", folder / "key.pem"
    issued.private_key_pem.write_to_path(key)
    for number, part in enumerate(issued.cert_chain_pems):
        part.write_to_path(chain, append=number > 0)
    return "--certfile", str(chain), "--keyfile", str(key)


def test_a_turn_in_clear_text(server: ServerProcess) -> None:
    with open_chat_stream(
        server, "h2-clear", "tokens=50 tools=2", http1=False, http2=True
    ) as stream:
        assert stream.last_chunk()["choices"][0]["finish_reason"] == "stop"
    assert turns(server, "h2-clear")[0].said_by("assistant").count("t0") == 50


@pytest.mark.parametrize("http2", [True, False])
def test_the_client_library_over_tls(secure: Secure, http2: bool) -> None:
    http = DefaultHttpxClient(verify=secure.context, http2=http2, trust_env=False)
    with OpenAI(
        base_url=f"{secure.server.url}/v1", api_key=secure.server.key, http_client=http
    ) as client:
        raw = client.chat.completions.with_raw_response.create(
            model=MODEL, messages=asked("/long 2")
        )
        assert raw.http_version == ("HTTP/2" if http2 else "HTTP/1.1")
        stream = client.chat.completions.create(
            model=MODEL, messages=asked("/terminal echo x\n/long 3"), stream=True
        )
        assert "word3" in "".join(chunk.choices[0].delta.content or "" for chunk in stream)


@asynccontextmanager
async def clear(server: ServerProcess) -> AsyncIterator[H2Client]:
    async with await trio.open_tcp_stream("127.0.0.1", server.port) as stream:
        client = H2Client(stream)
        await client.start()
        yield client


@asynccontextmanager
async def over_tls(secure: Secure) -> AsyncIterator[H2Client]:
    secure.context.set_alpn_protocols(["h2"])
    stream = await trio.open_ssl_over_tcp_stream(
        "127.0.0.1", secure.server.port, ssl_context=secure.context, https_compatible=True
    )
    async with stream:
        await stream.do_handshake()
        assert stream.selected_alpn_protocol() == "h2"
        client = H2Client(stream)
        await client.start()
        yield client


async def ask(client: H2Client, server: ServerProcess, session: str, text: str) -> int:
    head = [
        (b":method", b"POST"),
        (b":path", PATH.encode()),
        (b":scheme", b"http"),
        (b":authority", b"localhost"),
    ]
    fields = chat_headers(server, session).items()
    number = await client.send_head(
        [*head, *((name.lower().encode(), value.encode()) for name, value in fields)], end=False
    )
    client.h2.send_data(number, chat_body(text), end_stream=True)
    await client.flush()
    return number


async def reset_one_of_two(client: H2Client, server: ServerProcess, session: str) -> float:
    """Reset a silent stream; its neighbour goes on. Returns how long the interrupt took."""
    other = await ask(client, server, f"{session}-other", "tokens=20 rate=40")
    gone = await ask(client, server, session, "!silent")
    await client.until_body(gone, lambda body: b"ready" in body)
    client.h2.reset_stream(gone, ErrorCodes.CANCEL)
    await client.flush()
    left = time.monotonic()
    await client.until_body(other, lambda body: b"[DONE]" in body)
    assert b'"finish_reason": "stop"' in client.bodies[other]
    file = interrupt_file(server.plan.data_dir / "workspace", session)
    await trio.to_thread.run_sync(eventually, file.exists, 2)
    return float(file.read_text().split()[0]) - left


def check(server: ServerProcess, session: str) -> None:
    eventually(lambda: bool(turns(server, session)), 1)
    (turn,) = turns(server, session)
    assert (turn.reason, turn.said_by("assistant")) == ("client_disconnected", "ready")
    eventually(lambda: server.is_idle, 1)


async def test_a_reset_stream_in_clear_text(server: ServerProcess, measured: Measured) -> None:
    with trio.fail_after(SECONDS):
        async with clear(server) as client:
            delay = await reset_one_of_two(client, server, "h2-reset")
    measured("seconds_until_interrupt", round(delay, 4))
    assert delay < 1
    check(server, "h2-reset")


async def test_a_reset_stream_over_tls(secure: Secure, measured: Measured) -> None:
    with trio.fail_after(SECONDS):
        async with over_tls(secure) as client:
            delay = await reset_one_of_two(client, secure.server, "h2-tls-reset")
    measured("seconds_until_interrupt", round(delay, 4))
    assert delay < 1
    check(secure.server, "h2-tls-reset")
