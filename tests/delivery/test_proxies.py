"""The documented nginx and Caddy in front of a server: TLS and HTTP/2 to the client, and nothing held back."""

from __future__ import annotations

import re
import ssl
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest
import trustme
from attrs import evolve, frozen

from tests.e2e.conftest import AGENTS, Measured
from tests.e2e.interruptible_agent import interrupt_file
from tests.support.proxies import caddy, free_port, nginx, running
from tests.support.server_process import ROOT, LaunchOptions, ServerProcess, eventually, serving
from tests.support.socket_client import PATH, chat_body, chat_headers, open_chat_stream

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("delivery-proxies")]

GUIDE = (ROOT / "docs/how_to/deploy.md").read_text("utf-8")
KEEPALIVE = 0.4  # seconds
READ_TIMEOUT = 1  # of nginx, in whole seconds


@frozen
class Proxied:
    """A proxy in front of a server: the server at the proxy's address, and how a client gets there."""

    server: ServerProcess
    http2: bool

    @property
    def options(self) -> dict[str, object]:
        """Of a client."""
        return {"http2": self.http2, "http1": not self.http2, "timeout": 400}


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, full: bool) -> Iterator[ServerProcess]:
    settings = (
        {"drain_seconds": 1} if full else {"drain_seconds": 1, "keepalive_seconds": KEEPALIVE}
    )
    folder = tmp_path_factory.mktemp("behind")
    with serving(LaunchOptions(folder, ("--agent", AGENTS), settings)) as running_server:
        yield running_server


def snippet(language: str) -> str:
    """The one block of the guide in a language."""
    [text] = re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)
    assert "127.0.0.1:8642" in text
    return str(text)


def replaced(text: str, *pairs: tuple[str, str]) -> str:
    """A text in which each documented place, which occurs once, has another value."""
    for pattern, value in pairs:
        text, found = re.subn(pattern, value, text)
        assert found == 1, pattern
    return text


def write_certificate(authority: trustme.CA, folder: Path) -> tuple[Path, Path]:
    issued = authority.issue_cert("127.0.0.1")
    chain, key = folder / "chain.pem", folder / "key.pem"
    issued.private_key_pem.write_to_path(key)
    for number, part in enumerate(issued.cert_chain_pems):
        part.write_to_path(chain, append=number > 0)
    return chain, key


def nginx_command(
    folder: Path, server: ServerProcess, port: int, pem: tuple[Path, Path], full: bool
) -> list[str]:
    """The documented configuration; its read timeout is short unless the real time is waited for."""
    site = replaced(
        snippet("nginx"),
        (r"127\.0\.0\.1:8642", f"127.0.0.1:{server.port}"),
        (r"listen 443(?= ssl http2)", f"listen 127.0.0.1:{port}"),
        (r"/etc/ssl/\S+/chain\.pem", str(pem[0])),
        (r"/etc/ssl/\S+/key\.pem", str(pem[1])),
    )  # fmt: skip
    if not full:
        site = replaced(site, (r"proxy_read_timeout 60s", f"proxy_read_timeout {READ_TIMEOUT}s"))
    return nginx(folder, f"events {{}}\nhttp {{\n{site}}}\n")


def caddy_command(
    folder: Path, server: ServerProcess, port: int, pem: tuple[Path, Path]
) -> list[str]:
    """The documented site, with a certificate of the test."""
    tls = f"https://127.0.0.1:{port} {{\n    tls {pem[0]} {pem[1]}\n"
    site = replaced(
        snippet("caddy"),
        (r"127\.0\.0\.1:8642", f"127.0.0.1:{server.port}"),
        (r"chat\.example\.org \{\n", tls),
    )
    return caddy(folder, site)


@contextmanager
def proxied(
    kind: str, folder: Path, server: ServerProcess, authority: trustme.CA, full: bool
) -> Iterator[ServerProcess]:
    """Run a proxy in front of a server; the server at the address of the proxy."""
    port, pem = free_port(), write_certificate(authority, folder)
    if kind == "nginx":
        command = nginx_command(folder, server, port, pem, full)
    else:
        command = caddy_command(folder, server, port, pem)
    trust = ssl.create_default_context()
    authority.configure_trust(trust)
    with running(command, port, {"HOME": str(folder)}):
        yield evolve(server, url=f"https://127.0.0.1:{port}", trust=trust)


@pytest.fixture(scope="module", params=["nginx", "caddy"])
def proxy(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    server: ServerProcess,
    authority: trustme.CA,
    full: bool,
) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp(request.param)
    with proxied(request.param, folder, server, authority, full) as reached:
        yield reached


@pytest.fixture(params=["http2", "http1"])
def front(request: pytest.FixtureRequest, proxy: ServerProcess) -> Proxied:
    return Proxied(proxy, request.param == "http2")


def new_session() -> str:
    return f"s-{uuid.uuid4().hex[:12]}"


def test_a_client_may_speak_http_2(proxy: ServerProcess) -> None:
    with httpx2.Client(verify=proxy.trust, trust_env=False, http2=True) as client:
        answer = client.get(f"{proxy.url}/health", headers={"X-Request-Id": "seen-by-both"})
    assert (answer.status_code, answer.http_version) == (200, "HTTP/2")


def test_the_first_token_is_not_held_back(front: Proxied, measured: Measured) -> None:
    begun = time.monotonic()
    with open_chat_stream(
        front.server, new_session(), "tokens=40 rate=20", **front.options
    ) as stream:
        stream.until("t000001")
        first = time.monotonic() - begun
        assert stream.last_chunk()["choices"][0]["finish_reason"] == "stop"
        whole = time.monotonic() - begun
    measured("seconds_until_first_token", round(first, 3))
    assert first < whole / 2


def test_ten_thousand_tokens(front: Proxied) -> None:
    with open_chat_stream(front.server, new_session(), "tokens=10000", **front.options) as stream:
        text = "".join(stream.rest())
    assert re.findall(r"t(\d{6})", text) == [f"{number:06d}" for number in range(1, 10_001)]
    assert text.endswith("[DONE]")


def test_a_silent_tool_does_not_end_the_stream(
    front: Proxied, full: bool, measured: Measured
) -> None:
    """Keep-alives arrive through the proxy: 3 minutes with ``--full``, else thrice a short read timeout."""
    seconds = 180 if full else 3 * READ_TIMEOUT
    begun, comments = time.monotonic(), 0
    with httpx2.Client(verify=front.server.trust, trust_env=False, **front.options) as client:  # type: ignore[arg-type]
        request = client.stream(
            "POST",
            front.server.url + PATH,
            content=chat_body(f"!tool {seconds}"),
            headers=chat_headers(front.server, new_session()),
        )
        with request as answer:
            assert answer.status_code == 200
            lines = []
            for line in answer.iter_lines():
                comments += line.startswith(":")
                lines.append(line)
    assert "data: [DONE]" in lines
    assert any("awake" in line for line in lines)
    assert time.monotonic() - begun > seconds
    measured("keepalives", comments)
    assert comments >= 0.8 * seconds / (10 if full else 1)


def test_an_abort_reaches_the_agent(
    front: Proxied, server: ServerProcess, measured: Measured
) -> None:
    session = new_session()
    with open_chat_stream(front.server, session, "!silent", **front.options) as stream:
        stream.until('"ready"')
        left = time.monotonic()
    file = interrupt_file(server.plan.data_dir / "workspace", session)
    eventually(file.exists, 2)
    delay = float(file.read_text().split()[0]) - left
    measured("seconds_until_interrupt", round(delay, 3))
    assert delay < 1


def test_a_large_body_passes(front: Proxied) -> None:
    """The limit is that of the server; the default of nginx is 1 MB."""
    text = "/long 1\n" + "x" * 2_000_000
    with httpx2.Client(verify=front.server.trust, trust_env=False, **front.options) as client:  # type: ignore[arg-type]
        answer = client.post(
            front.server.url + PATH,
            content=chat_body(text, stream=False),
            headers=chat_headers(front.server, new_session()),
        )
    assert answer.status_code == 200, answer.text
