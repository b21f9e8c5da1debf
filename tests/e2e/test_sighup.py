"""SIGHUP: a new certificate for new connections, without an end of those that are open."""

from __future__ import annotations

import os
import pty
import signal
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.e2e.conftest import AGENTS
from tests.support.postgres import run_postgres
from tests.support.server_process import (
    LaunchOptions,
    ServerProcess,
    begin,
    eventually,
    kill,
    serving,
)
from tests.support.socket_client import open_chat_stream

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("e2e-sighup")]


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def trust(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


def issue(authority: trustme.CA, folder: Path, organisation: str) -> tuple[str, ...]:
    """Write chain and key of a new certificate over the former ones."""
    issued = authority.issue_cert("127.0.0.1", organization_name=organisation)
    chain, key = folder / "chain.pem", folder / "key.pem"
    issued.private_key_pem.write_to_path(key)
    for number, part in enumerate(issued.cert_chain_pems):
        part.write_to_path(chain, append=number > 0)
    return "--certfile", str(chain), "--keyfile", str(key)


def organisation_at(port: int, trust: ssl.SSLContext) -> str:
    """The organisation in the certificate that a new connection is shown, and that it speaks HTTP/2."""
    trust.set_alpn_protocols(["h2", "http/1.1"])
    with (
        socket.create_connection(("127.0.0.1", port), 10) as tcp,
        trust.wrap_socket(tcp, server_hostname="127.0.0.1") as tls,
    ):
        assert tls.selected_alpn_protocol() == "h2"
        certificate: Any = tls.getpeercert()
    subject = {name: value for [(name, value)] in certificate["subject"]}
    return str(subject["organizationName"])


@pytest.mark.parametrize("http2", [True, False])
def test_a_new_certificate_without_dropping_a_stream(
    tmp_path: Path, authority: trustme.CA, trust: ssl.SSLContext, http2: bool
) -> None:
    flags = ("--agent", AGENTS, *issue(authority, tmp_path, "first"))
    with (
        serving(
            LaunchOptions(tmp_path, flags, {"drain_seconds": 1}), trust, "cannot reload"
        ) as server,
        open_chat_stream(server, "s", "tokens=60 rate=20", http2=http2) as stream,
    ):
        stream.until("t000001")
        assert organisation_at(server.port, trust) == "first"
        issue(authority, tmp_path, "second")
        server.signal(signal.SIGHUP)
        eventually(lambda: "reloaded" in server.log)
        assert organisation_at(server.port, trust) == "second"
        # A key of another certificate is refused as a whole.
        trustme.CA().issue_cert("127.0.0.1").private_key_pem.write_to_path(tmp_path / "key.pem")
        server.signal(signal.SIGHUP)
        eventually(lambda: "cannot reload" in server.log)
        assert organisation_at(server.port, trust) == "second"
        assert stream.last_chunk()["choices"][0]["finish_reason"] == "stop"


@pytest.fixture
def workers(tmp_path: Path, authority: trustme.CA) -> Iterator[ServerProcess]:
    flags = ("--workers", "2", *issue(authority, tmp_path, "first"))
    with run_postgres() as postgres:
        settings = {"store": postgres.create_database(), "drain_seconds": 1}
        with serving(LaunchOptions(tmp_path, flags, settings), expected="a worker ended") as server:
            yield server


def test_the_supervisor_passes_it_on_to_all_workers(
    workers: ServerProcess, tmp_path: Path, authority: trustme.CA, trust: ssl.SSLContext
) -> None:
    eventually(lambda: workers.log.count("a worker is ready") == 2)
    issue(authority, tmp_path, "second")
    workers.signal(signal.SIGHUP)
    eventually(lambda: workers.log.count("reloaded ") == 2)
    assert {organisation_at(workers.port, trust) for _ in range(20)} == {"second"}


def test_a_server_whose_terminal_is_closed_stops(tmp_path: Path) -> None:
    """With a terminal, the signal alone is a reload."""
    leader, follower = pty.openpty()

    def take_terminal() -> None:
        os.setsid()
        os.close(os.open(os.ttyname(follower), os.O_RDWR))  # the first one becomes controlling

    server = begin(LaunchOptions(tmp_path), preexec_fn=take_terminal)
    try:
        eventually(lambda: _is_handled(server.pid))
        os.close(follower)
        server.signal(signal.SIGHUP)
        eventually(lambda: "reloading" in server.log)
        assert server.process.poll() is None
        os.close(leader)
        assert server.wait() == 0
    finally:
        kill(server)


def _is_handled(pid: int) -> bool:
    """Whether a process has a handler for SIGHUP."""
    [mask] = [
        line.split()[1]
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if line.startswith("SigCgt:")
    ]
    return bool(int(mask, 16) & 1 << (signal.SIGHUP - 1))
