"""The connection between supervisor and worker, and the reports that workers give each other."""

from __future__ import annotations

import io
import socket
import subprocess
import sys
from pathlib import Path
from types import MappingProxyType

import pytest
import trio

from hermes_trio.keys import Credentials, GeneratedKey, Keyring, NamedKey, OpenedKeys
from hermes_trio.server.signals import SignalCallback
from hermes_trio.server.worker import StopRequests, SupervisorLink
from hermes_trio.server.worker_channel import (
    Order,
    Ready,
    Refused,
    WorkerPlan,
    decode_order,
    decode_report,
    encode_order,
    encode_plan,
    encode_report,
    own,
    read_plan,
)
from hermes_trio.server.worker_reports import ReportCollector, serve_reports, socket_path
from hermes_trio.settings import Profile, Settings
from hermes_trio.web.workers import WorkerReport, silent
from tests.support.asgi import real_timeout

KEYS = OpenedKeys(
    Keyring((NamedKey("default", "k" * 20),)), GeneratedKey(Path("/data/api-key"), "k" * 20)
)
SETTINGS = Settings(
    store="postgresql://db/hermes",
    workers=2,
    data_dir=Path("/data"),
    profiles=MappingProxyType({"a": Profile(name="a", options=MappingProxyType({"x": [1]}))}),
)
PLAN = WorkerPlan(
    2, SETTINGS, Credentials(KEYS, b"s" * 32), Path("/tmp/x"), (5, 6), {"API_SERVER_KEY": "secret"}
)


# -- the channel --


def test_a_plan_arrives_as_it_was_sent() -> None:
    plan = read_plan(io.BytesIO(encode_plan(PLAN)))
    assert plan == PLAN
    assert plan.settings.profiles["a"].options == {"x": [1]}
    assert plan.credentials.keys.keyring.identify("k" * 20) == KEYS.keyring.identify("k" * 20)


def test_a_plan_shows_no_secret() -> None:
    assert "secret" not in repr(PLAN)
    assert "kkk" not in repr(PLAN)


@pytest.mark.parametrize("size", [0, 3, 20])
def test_a_plan_that_was_cut(size: int) -> None:
    with pytest.raises(EOFError):
        read_plan(io.BytesIO(encode_plan(PLAN)[:size]))


@pytest.mark.parametrize("order", list(Order))
def test_orders_are_lines(order: Order) -> None:
    assert decode_order(encode_order(order)) is order


@pytest.mark.parametrize("report", [Ready(), Refused("store: one\nline? ü")])
def test_reports_are_lines(report: Ready | Refused) -> None:
    line = encode_report(report)
    assert line.count(b"\n") == 1
    assert decode_report(line) == report


def test_sockets_of_a_worker_are_not_inherited() -> None:
    first, second = socket.socketpair()
    with second:
        first.set_inheritable(True)
        with own(first.detach()) as sock:
            assert not sock.get_inheritable()


# -- orders --


def requests_of(*given: tuple[Order, str] | str) -> list[str]:
    """What a shutdown is asked for by orders, and by signals, which are given by name."""
    asked: list[str] = []
    requests = StopRequests(SignalCallback(asked.append))
    for each in given:
        if isinstance(each, str):
            requests.drain(each)
        else:
            requests.obey(*each)
    return asked


def test_an_order_and_a_signal_at_once_are_one_request() -> None:
    assert requests_of("SIGTERM", (Order.DRAIN, "supervisor"), "SIGTERM") == ["SIGTERM"]
    assert requests_of((Order.DRAIN, "supervisor"), "SIGINT") == ["supervisor"]


def test_the_second_order_ends_the_drain() -> None:
    orders = (Order.DRAIN, "supervisor"), (Order.STOP_NOW, "supervisor")
    assert requests_of("SIGTERM", *orders) == ["SIGTERM", "supervisor"]
    assert requests_of(*orders, *orders) == ["supervisor", "supervisor"]


def test_a_lost_supervisor_stops_at_once() -> None:
    assert requests_of((Order.STOP_NOW, "lost")) == ["lost", "lost"]


async def test_a_worker_gets_orders_and_notices_the_end_of_its_supervisor() -> None:
    send, receive = trio.open_memory_channel[tuple[Order, str]](10)
    limits: list[str] = []
    supervisor, worker = socket.socketpair()
    with worker, real_timeout():
        with supervisor:
            link = SupervisorLink(worker)
            link.attach(
                lambda order, source: send.send_nowait((order, source)),
                lambda: limits.append("limited"),
            )
            link.start()
            supervisor.sendall(encode_order(Order.DRAIN))
            assert await receive.receive() == (Order.DRAIN, "the supervisor")
            assert (limits, link.is_lost) == ([], False)
            link.report(Ready())
            assert decode_report(supervisor.recv(100)) == Ready()
        assert await receive.receive() == (Order.STOP_NOW, "the end of the supervisor")
        assert (limits, link.is_lost) == (["limited"], True)
        link.report(Ready())  # nobody reads it, and nothing happens


async def test_a_supervisor_that_dies_before_it_reads_a_report_is_lost_too() -> None:
    send, receive = trio.open_memory_channel[Order](10)
    supervisor, worker = socket.socketpair()
    with worker, real_timeout():
        link = SupervisorLink(worker)
        link.attach(lambda order, _source: send.send_nowait(order), lambda: None)
        link.report(Ready())
        supervisor.close()  # resets the connection, since something is unread
        link.start()
        assert await receive.receive() is Order.STOP_NOW
    assert link.is_lost


WORKER = """
import socket, sys, threading
from hermes_trio.server.worker import SupervisorLink
link = SupervisorLink(socket.socket(fileno=int(sys.argv[1])))
link.start()
print("started", flush=True)
threading.Event().wait()
"""


@pytest.mark.parametrize("order", [encode_order(Order.DRAIN), b""])
def test_an_order_before_anything_is_open_ends_the_process(order: bytes) -> None:
    supervisor, worker = socket.socketpair()
    with supervisor, worker:
        process = subprocess.Popen(
            [sys.executable, "-c", WORKER, str(worker.fileno())],
            pass_fds=(worker.fileno(),),
            stdout=subprocess.PIPE,
        )
        with process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"started\n"
            worker.close()
            supervisor.sendall(order)
            if not order:
                supervisor.close()
            assert process.wait(30) == 0


# -- reports --

FIRST = WorkerReport(1, "", "# one\n")
THIRD = WorkerReport(3, "draining", "# three\n")


async def make_first() -> WorkerReport:
    return FIRST


async def make_third() -> WorkerReport:
    return THIRD


async def test_a_worker_collects_the_reports_of_the_others(tmp_path: Path) -> None:
    collector = ReportCollector(tmp_path, 2, 3)
    with real_timeout():
        async with (
            serve_reports(socket_path(tmp_path, 1), make_first),
            serve_reports(socket_path(tmp_path, 3), make_third),
        ):
            assert await collector.collect() == [FIRST, THIRD]
            assert await ReportCollector(tmp_path, 1, 1).collect() == []
        assert list(await trio.Path(tmp_path).iterdir()) == []
        assert await collector.collect() == [silent(1), silent(3)]


async def test_a_socket_of_a_dead_worker_is_replaced(tmp_path: Path) -> None:
    path = socket_path(tmp_path, 1)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    collector = ReportCollector(tmp_path, 2, 2)
    with real_timeout():
        assert await collector.collect() == [silent(1)]
        async with serve_reports(path, make_first):
            assert await collector.collect() == [FIRST]


async def test_a_worker_that_hangs_is_silent_after_a_deadline(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    with socket.socket(socket.AF_UNIX) as hanging:
        hanging.bind(str(socket_path(tmp_path, 1)))
        hanging.listen()
        began = trio.current_time()
        assert await ReportCollector(tmp_path, 2, 2).collect() == [silent(1)]
    assert trio.current_time() - began == pytest.approx(1.0)


@pytest.mark.parametrize("answer", [b"", b'{"number": 1, "not_r', b"[]", b"null", b'{"x": 1}'])
async def test_a_worker_that_dies_while_it_answers_is_silent(tmp_path: Path, answer: bytes) -> None:
    async def answer_partly(stream: trio.SocketStream) -> None:
        await stream.send_all(answer)
        await stream.aclose()

    with trio.socket.socket(socket.AF_UNIX) as sock, real_timeout():
        await sock.bind(str(socket_path(tmp_path, 1)))
        sock.listen()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, answer_partly, [trio.SocketListener(sock)])
            assert await ReportCollector(tmp_path, 2, 2).collect() == [silent(1)]
            nursery.cancel_scope.cancel()
