"""The documented proxies in front of two nodes: streams, uploads, clients that leave, nodes that stop."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from tests.cluster.exchange import Address, ask, exchange
from tests.cluster.nodes import Cluster, run_cluster, wait_ended, wait_idle
from tests.support.postgres import PostgresServer
from tests.support.proxies import free_port, nginx, program, running
from tests.support.server_process import ROOT

GUIDE = (ROOT / "docs/how_to/run_several_nodes.md").read_text("utf-8")
NGINX = (ROOT / "deploy/nginx.conf").read_text("utf-8")
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


def with_nodes(text: str, cluster: Cluster) -> str:
    """A configuration of the documentation, with the addresses of real nodes."""
    for number, node in enumerate(cluster.nodes, 1):
        text, found = re.subn(rf"\bnode{number}:8642\b", f"127.0.0.1:{node.port}", text)
        assert found == 1
    return text


def nginx_command(folder: Path, cluster: Cluster, port: int) -> list[str]:
    """The file of the repository, with paths that this user can write to."""
    config = with_nodes(NGINX, cluster).replace("listen 8080", f"listen 127.0.0.1:{port}")
    return nginx(folder, config)


def haproxy_command(folder: Path, cluster: Cluster, port: int) -> list[str]:
    """The backend of the guide."""
    [backend] = re.findall(r"```text\n(backend hermes_trio\n.*?)```", GUIDE, re.DOTALL)
    path = folder / "haproxy.cfg"
    path.write_text(HAPROXY_FRAME.format(port=port, backend=with_nodes(backend, cluster)))
    return [program("haproxy"), "-f", str(path)]


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
