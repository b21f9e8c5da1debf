"""Which Host headers are accepted: DNS rebinding makes browsers send others."""

from __future__ import annotations

import json

import pytest
import trio
from structlog.testing import capture_logs

from hermes_trio.web.middleware import AllowedHosts
from hermes_trio.web.state import WebOptions
from tests.support.fakes import KEY, make_harness
from tests.support.in_process_server import serving
from tests.support.raw_http import ask, h2_client

LOOPBACK = ("127.0.0.1", 8642)
NETWORK = ("192.0.2.1", 8642)
LOCAL = AllowedHosts(own_names=("box.lan", "Mybox"))
LISTED = AllowedHosts(("Chat.example.org", "*.lan", "2001:DB8::1"))
CLOSE = f"Authorization: Bearer {KEY}\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize(
    "host",
    [
        "", "localhost", "LocalHost:8642", "localhost.", "app.localhost:1", "127.0.0.1:8642", "127.8.9.1", "[::1]:8642",
        "[0:0::1]", "box.lan:8642", "mybox", "[::ffff:127.0.0.1]",
    ],
)  # fmt: skip
def test_local_names_on_a_loopback_address(host: str) -> None:
    assert LOCAL.allows(host, LOOPBACK)
    assert LOCAL.allows(host, ("::1", 8642))
    assert LOCAL.allows(host, ("::ffff:127.0.0.1", 8642))


@pytest.mark.parametrize(
    "host",
    [
        "evil.example", "evil.example:8642", "localhost.evil.example", "notlocalhost", "127.0.0.1.evil.example", "10.0.0.1",
        "evil.example:localhost", "[localhost", "127.0.0.1:8642:1", "other.lan", "*", "*.localhost.x", ".",
    ],
)  # fmt: skip
def test_other_names_on_a_loopback_address(host: str) -> None:
    assert not LOCAL.allows(host, LOOPBACK)
    assert not LOCAL.allows(host, ("::ffff:127.0.0.1", 8642))


@pytest.mark.parametrize(
    "server", [NETWORK, ("2001:db8::1", 8642), ("/run/server.sock", None), None]
)
def test_any_name_elsewhere(server: tuple[str, int | None] | None) -> None:
    """On addresses of the network, on Unix sockets, and where the server does not tell."""
    assert LOCAL.allows("anything.example", server)


@pytest.mark.parametrize("server", [LOOPBACK, NETWORK, None])
@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("chat.example.org:443", True),
        ("CHAT.example.org.", True),
        ("[2001:db8:0::1]:1", True),
        ("a.lan", True),
        ("b.a.lan", True),
        ("lan", False),
        ("x.chat.example.org", False),
        ("evil.example", False),
    ],
)
def test_a_list_holds_everywhere(host: str, allowed: bool, server: tuple[str, int] | None) -> None:
    assert LISTED.allows(host, server) == allowed


def test_the_address_of_the_server_needs_no_entry() -> None:
    """Probes use it, and no site can have it for a name."""
    assert LISTED.allows("192.0.2.1:8642", NETWORK)
    assert LISTED.allows("localhost", LOOPBACK)
    assert not LISTED.allows("192.0.2.2", NETWORK)
    assert not LISTED.allows("localhost", NETWORK)


def test_all() -> None:
    assert AllowedHosts(("*",)).allows("evil.example", LOOPBACK)


@pytest.mark.parametrize("path", ["/", "/health", "/v1/models", "/nowhere"])
async def test_another_site_is_refused_over_http1(path: str) -> None:
    """With a key, too: a page that the browser takes for its own could have stored one."""
    async with serving(make_harness().app) as live:
        port = live.port
        with capture_logs() as lines:
            answer = await ask(
                port, f"GET {path} HTTP/1.1\r\nHost: evil.example:{port}\r\n{CLOSE}".encode()
            )
        good = await ask(
            port, f"GET /health HTTP/1.1\r\nHost: localhost:{port}\r\n{CLOSE}".encode()
        )
    assert answer.startswith(b"HTTP/1.1 421 ")
    error = json.loads(answer.partition(b"\r\n\r\n")[2])["error"]
    assert (error["param"], error["code"]) == ("Host", "host_not_allowed")
    assert "allowed_hosts" in error["message"]
    assert (lines[0]["event"], lines[0].get("host")) == (
        "refused a host",
        f"evil.example:{port}",
    )
    assert good.startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("host", ["a..b", ".b", f"{'a' * 64}.b", "\x80"])
async def test_what_is_no_host_name_is_refused(host: str) -> None:
    """Where any name is accepted."""
    harness = make_harness()
    answer = await harness.client.get("/health", {"Host": host})
    assert (answer.status, answer.error["param"], answer.error["code"]) == (
        400,
        "Host",
        "invalid_host",
    )
    assert (await harness.client.get("/health", {"Host": "é.example:8642"})).status == 200


async def test_another_site_is_refused_in_an_absolute_target() -> None:
    async with serving(make_harness().app) as live:
        request = f"GET http://evil.example/health HTTP/1.1\r\nHost: localhost\r\n{CLOSE}"
        assert (await ask(live.port, request.encode())).startswith(b"HTTP/1.1 421 ")


async def test_another_site_is_refused_over_http2() -> None:
    async with serving(make_harness().app) as live, h2_client(live.port) as client:
        for authority, status in ((b"evil.example", 421), (b"localhost", 200)):
            head = [
                (b":method", b"GET"),
                (b":path", b"/health"),
                (b":scheme", b"http"),
                (b":authority", authority),
            ]
            assert await client.status(await client.send_head(head)) == status


async def test_a_listed_name_on_a_loopback_address() -> None:
    """A proxy on the same machine passes the public name on."""
    app = make_harness(options=WebOptions(allowed_hosts=("chat.example.org",))).app
    async with serving(app) as live:
        for host, status in (("chat.example.org", b"200"), ("evil.example", b"421")):
            answer = await ask(
                live.port, f"GET /health HTTP/1.1\r\nHost: {host}\r\n{CLOSE}".encode()
            )
            assert answer.split(b" ", 2)[1] == status


async def test_a_request_without_a_host() -> None:
    """Only old clients send it, no browser."""
    async with serving(make_harness().app) as live:
        answer = await ask(live.port, b"GET /health HTTP/1.0\r\n\r\n")
    assert answer.split(b" ", 2)[1] == b"200"


async def test_a_preflight_of_another_site_is_refused() -> None:
    harness = make_harness(options=WebOptions(allowed_hosts=("a.test",), cors_origins=("*",)))
    with trio.fail_after(5):
        answer = await harness.client.get(
            "/v1/models", {"Origin": "http://b.test", "Host": "b.test"}, "OPTIONS"
        )
    assert answer.status == 421
    assert "access-control-allow-origin" not in answer.headers
