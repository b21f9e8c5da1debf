"""TLS: both protocols by negotiation, and the same deadlines."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest
import trio
import trustme

from hermes_trio.server.config import ServerConfig, hypercorn_config
from tests.server.apps import BIG, Demo
from tests.server.test_guards_protocols import TOO_MUCH, refusing, upload
from tests.support.in_process_server import serving
from tests.support.raw_http import H2Client, ask, connect, get, read_to_end, read_until


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def secure(authority: trustme.CA, tmp_path: Path) -> ServerConfig:
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    path = str(tmp_path / "server.pem")
    return hypercorn_config(path, path, graceful_seconds=0.05)


async def connect_tls(
    port: int, authority: trustme.CA, *alpn: str
) -> trio.SSLStream[trio.SocketStream]:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    context.set_alpn_protocols(alpn)
    tcp = await connect(port)
    stream = trio.SSLStream(tcp, context, server_hostname="127.0.0.1", https_compatible=True)
    await stream.do_handshake()
    return stream


async def test_tls_speaks_http_2_if_asked(authority: trustme.CA, secure: ServerConfig) -> None:
    async with (
        serving(Demo(), secure) as live,
        await connect_tls(live.port, authority, "h2", "http/1.1") as stream,
    ):
        assert stream.selected_alpn_protocol() == "h2"
        client = H2Client(stream)
        await client.start()
        assert await client.answer(await client.request(b"/big")) == (200, BIG + b"end")


async def test_tls_speaks_http_1(authority: trustme.CA, secure: ServerConfig) -> None:
    async with (
        serving(Demo(), secure) as live,
        await connect_tls(live.port, authority, "http/1.1") as stream,
    ):
        await stream.send_all(get("/big", "Connection: close"))
        assert (await read_to_end(stream)).endswith(b"%b\r\n3\r\nend\r\n0\r\n\r\n" % BIG)


async def test_no_handshake_is_no_fault(secure: ServerConfig) -> None:
    secure.ssl_handshake_timeout = 0.1
    async with serving(Demo(), secure) as live:
        assert b"HTTP" not in await ask(live.port, get("/"))
        assert await ask(live.port, b"") == b""
    assert live.guards.faults == 0


async def test_a_shutdown_in_the_midst_of_a_handshake(
    authority: trustme.CA, secure: ServerConfig
) -> None:
    async with (
        serving(Demo(), secure) as live,
        await connect_tls(live.port, authority) as idle,
        await connect(live.port) as silent,
    ):
        while len(live.guards.connections) < 2:  # noqa: ASYNC110 - the register has no event, only a length
            await trio.sleep(0.01)
        live.stop.set()
        with trio.fail_after(5):
            await live.stopped.wait()
        assert await read_to_end(silent) == await read_to_end(idle) == b""
    assert live.guards.faults == 0


async def test_a_stalled_reader_on_tls_is_dropped(
    authority: trustme.CA, secure: ServerConfig
) -> None:
    app = Demo()
    async with (
        serving(app, secure, write_seconds=0.1) as live,
        await connect_tls(live.port, authority) as stream,
    ):
        await stream.send_all(get("/flood"))
        await app.ended.wait()


@pytest.mark.parametrize("leave", ["aclose", "unwrap"])
async def test_a_client_with_a_request_left_is_seen_to_leave(
    authority: trustme.CA, secure: ServerConfig, leave: str
) -> None:
    """Also one that only says so within TLS and keeps its socket."""
    app = Demo()
    async with serving(app, secure) as live, trio.open_nursery() as nursery:
        stream = await connect_tls(live.port, authority)
        await stream.send_all(get("/ticks") + get("/"))
        await app.ticks.send(1)
        await read_until(stream, b"data: 1")
        nursery.start_soon(_leave, getattr(stream, leave))
        with trio.fail_after(2):
            await app.ended.wait()
        await stream.transport_stream.aclose()


async def _leave(way: Callable[[], Awaitable[object]]) -> None:
    with suppress(
        trio.BrokenResourceError, trio.ClosedResourceError
    ):  # the server says nothing in return
        await way()


async def test_requests_ahead_of_their_turn_are_answered_in_order(
    authority: trustme.CA, secure: ServerConfig
) -> None:
    async with (
        serving(Demo(), secure) as live,
        await connect_tls(live.port, authority, "http/1.1") as stream,
    ):
        await stream.send_all(get("/big") + get("/"))
        await stream.send_all(get("/early"))
        answers = await read_until(stream, b"HTTP/1.1 401")
        assert b"%b\r\n3\r\nend\r\n0\r\n\r\nHTTP/1.1 200" % BIG in answers


async def test_who_sends_too_much_can_read_why(authority: trustme.CA, secure: ServerConfig) -> None:
    async with (
        serving(refusing, secure) as live,
        await connect_tls(live.port, authority, "http/1.1") as stream,
    ):
        answer = await upload(stream, TOO_MUCH)
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert answer.endswith(b"too much")
