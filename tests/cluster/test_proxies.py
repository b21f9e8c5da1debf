"""The documented proxies in front of two nodes: streams, uploads, clients that leave, nodes that stop."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio

from tests.cluster.exchange import Address, ask, exchange
from tests.cluster.nodes import Cluster, run_cluster, wait_ended, wait_idle
from tests.support.postgres import PostgresServer
from tests.support.server_process import ROOT, TIMEOUT

GUIDE = (ROOT / "docs/how_to/run_several_nodes.md").read_text("utf-8")
NGINX = (ROOT / "deploy/nginx.conf").read_text("utf-8")
PROGRAMS = {"nginx": "/usr/sbin", "haproxy": "/usr/sbin"}
RESPONSES = "/v1/responses"

HAPROXY_FRAME = """
global
    maxconn 1000
defaults
    mode http
    timeout connect 2s
    timeout client 60s
frontend clients
    bind 127.0.0.1:{port}
    default_backend hermes_trio
{backend}
"""
NGINX_FRAME = """
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
{config}
"""


def program(name: str) -> str:
    """The path of a proxy; skips where it is not installed."""
    found = shutil.which(name) or shutil.which(name, path=PROGRAMS[name])
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def with_nodes(text: str, cluster: Cluster) -> str:
    """A configuration of the documentation, with the addresses of real nodes."""
    for number, node in enumerate(cluster.nodes, 1):
        text, found = re.subn(rf"\bnode{number}:8642\b", f"127.0.0.1:{node.port}", text)
        assert found == 1
    return text


def nginx_command(folder: Path, cluster: Cluster, port: int) -> list[str]:
    """The file of the repository, with paths that this user can write to."""
    config = with_nodes(NGINX, cluster).replace("listen 8080", f"listen 127.0.0.1:{port}")
    paths = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temporary = "".join(f"{name}_temp_path {folder}/{name};\n" for name in paths)
    config = config.replace("http {", f"http {{\naccess_log off;\n{temporary}")
    path = folder / "nginx.conf"
    path.write_text(NGINX_FRAME.format(folder=folder, config=config))
    return [program("nginx"), "-c", str(path), "-e", f"{folder}/error.log"]


def haproxy_command(folder: Path, cluster: Cluster, port: int) -> list[str]:
    """The backend of the guide."""
    [backend] = re.findall(r"```text\n(backend hermes_trio\n.*?)```", GUIDE, re.DOTALL)
    path = folder / "haproxy.cfg"
    path.write_text(HAPROXY_FRAME.format(port=port, backend=with_nodes(backend, cluster)))
    return [program("haproxy"), "-f", str(path)]


@contextmanager
def running(command: list[str], port: int) -> Iterator[None]:
    """Run a proxy until the end of the block."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        try:
            end = time.monotonic() + TIMEOUT
            while True:
                assert process.poll() is None, process.communicate()[0]
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    assert time.monotonic() < end
            yield
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def two_nodes(
    durable_postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    url = durable_postgres.create_database()
    with run_cluster(tmp_path_factory.mktemp("proxied"), url, count=2) as cluster:
        yield cluster


@pytest.fixture(params=["nginx", "haproxy"])
def proxy(request: pytest.FixtureRequest, tmp_path: Path, two_nodes: Cluster) -> Iterator[Address]:
    """A proxy in front of both nodes."""
    port = free_port()
    make = nginx_command if request.param == "nginx" else haproxy_command
    with running(make(tmp_path, two_nodes, port), port):
        yield Address(port, two_nodes.nodes[0].key)


def background(text: str) -> dict[str, object]:
    return {"input": text, "background": True}


async def test_ten_thousand_tokens(proxy: Address) -> None:
    body = {"input": "tokens=10000 rate=0", "stream": True}
    reply = await ask(proxy, "POST", RESPONSES, body)
    assert reply.is_whole
    assert reply.body.count(b"event: response.output_text.delta\n") >= 1
    assert reply.body.endswith(b"data: [DONE]\n\n")
    done = re.search(rb'"type": "response.output_text.done".*?"text": "([^"]*)"', reply.body)
    assert done is not None
    assert len(done[1].split()) == 10_000


async def test_tokens_are_not_held_back(proxy: Address) -> None:
    """The first arrives while the agent still works."""
    body = {"input": "tokens=20 rate=10", "stream": True}
    async with exchange(proxy, "POST", RESPONSES, body) as connection:
        began = trio.current_time()
        await connection.read_until(lambda text: b"response.output_text.delta" in text)
        assert trio.current_time() - began < 1.5
        assert not connection.reply.is_whole


async def test_an_abort_reaches_the_agent(proxy: Address, two_nodes: Cluster) -> None:
    body = {"input": "tokens=10000 rate=20", "stream": True}
    async with exchange(proxy, "POST", RESPONSES, body) as connection:
        await connection.read_until(lambda text: b"response.output_text.delta" in text)
    with trio.fail_after(5):
        for node in two_nodes.nodes:
            await wait_idle(node)


async def test_any_node_serves_any_run(proxy: Address) -> None:
    """Requests go to both nodes in turn, and each finds, follows and stops every run."""
    for _ in range(4):
        reply = await ask(proxy, "POST", RESPONSES, background("tokens=10000 rate=50"))
        run_id = str(reply.json()["id"])
        assert (await ask(proxy, "GET", f"{RESPONSES}/{run_id}")).json()["id"] == run_id
        async with exchange(proxy, "GET", f"{RESPONSES}/{run_id}?stream=true") as followed:
            await followed.read_until(lambda text: b"response.output_text.delta" in text)
            stopped = await ask(proxy, "POST", f"{RESPONSES}/{run_id}/cancel")
            assert stopped.json()["status"] == "cancelled"
            assert (await followed.read_to_end()).is_whole


async def test_a_node_that_is_gone_is_not_noticed(proxy: Address, two_nodes: Cluster) -> None:
    reply = await ask(proxy, "POST", RESPONSES, background("tokens=3"))
    run_id = str(reply.json()["id"])
    await wait_ended(two_nodes.nodes[0], run_id)
    two_nodes.servers[1].process.kill()
    two_nodes.servers[1].process.wait()
    try:
        with trio.fail_after(10):  # HAProxy notices within two checks
            while True:
                replies = [await ask(proxy, "GET", f"{RESPONSES}/{run_id}") for _ in range(6)]
                if {each.status for each in replies} == {200}:
                    break
                await trio.sleep(0.2)
    finally:
        two_nodes.restart(1)
