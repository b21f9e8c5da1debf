"""The one loop of the client: epoll, non-blocking sockets, and the clock."""

from __future__ import annotations

import errno
import select
import socket
import time
from collections import deque

from attrs import define

from benchmarks.client.links import Link, new_link
from benchmarks.client.orders import Order, Report
from benchmarks.client.tokens import Meter, Turn

SECOND = 1_000_000_000
READ = 262_144
SLOW_BUFFER = 4_096
READABLE = select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR


@define
class Wire:
    """A link and its socket."""

    sock: socket.socket
    link: Link
    wants_out: bool = True


class Client:
    """Carries out one order."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._meter = Meter(order.rate, order.wait)
        self._wires: dict[int, Wire] = {}
        self._epoll = select.epoll()
        self._begun = time.monotonic_ns()
        gap = order.ramp / order.streams
        self._starts = deque(
            self._begun + int(number * gap * SECOND) for number in range(order.streams)
        )
        self._later = max(0, order.turns - order.streams)
        self._running = 0
        self._next_read = self._begun
        self._complaint = ""

    def run(self) -> Report:
        """Carry out the order, and return the report."""
        used = time.process_time()
        end = self._begun + int((self._order.seconds or self._order.limit) * SECOND)
        while (self._starts or self._running) and (now := time.monotonic_ns()) < end:
            self._start_due(now)
            self._wait(end)
        now = time.monotonic_ns()
        busy = (time.process_time() - used) / ((now - self._begun) / SECOND)
        report = self._meter.report(self._begun, now, busy, self._complaint)
        for wire in self._wires.values():
            wire.sock.close()
        return report

    def _start_due(self, now: int) -> None:
        while self._starts and self._starts[0] <= now:
            self._starts.popleft()
            self._start(self._wire_with_room())

    def _start(self, wire: Wire) -> None:
        self._running += 1
        wire.link.start(self._meter.begin(time.monotonic_ns()))
        if not wire.wants_out:
            self._flush(wire)

    def _wire_with_room(self) -> Wire:
        if self._order.http2 and self._wires:
            newest = self._wires[next(reversed(self._wires))]
            if newest.link.has_room:
                return newest
        return self._connect()

    def _connect(self) -> Wire:
        sock = socket.socket()
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._order.slow_bytes:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SLOW_BUFFER)
        code = sock.connect_ex((self._order.host, self._order.port))
        assert code in (0, errno.EINPROGRESS), errno.errorcode[code]
        wire = Wire(sock, new_link(self._order, self._meter))
        self._wires[sock.fileno()] = wire
        self._epoll.register(sock.fileno(), self._interest | select.EPOLLOUT)
        return wire

    @property
    def _interest(self) -> int:
        return 0 if self._order.slow_bytes else select.EPOLLIN

    def _wait(self, end: int) -> None:
        until = min(end, self._starts[0] if self._starts else end)
        if self._order.slow_bytes:
            until = min(until, self._next_read)
        timeout = max(0.0, (until - time.monotonic_ns()) / SECOND)
        for number, events in self._epoll.poll(timeout, 4096):
            wire = self._wires.get(number)
            if wire is not None:
                self._serve(wire, events)
        if self._order.slow_bytes and time.monotonic_ns() >= self._next_read:
            self._next_read += int(self._order.slow_every * SECOND)
            for wire in list(self._wires.values()):
                self._read(wire, self._order.slow_bytes)

    def _serve(self, wire: Wire, events: int) -> None:
        if events & select.EPOLLOUT:
            self._flush(wire)
        if events & READABLE:
            self._read(wire, READ)

    def _flush(self, wire: Wire) -> None:
        link = wire.link
        try:
            sent = wire.sock.send(link.unsent)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self._drop(wire, str(error))
            return
        link.unsent = link.unsent[sent:]
        if wire.wants_out != bool(link.unsent):
            wire.wants_out = bool(link.unsent)
            out = select.EPOLLOUT if wire.wants_out else 0
            self._epoll.modify(wire.sock.fileno(), self._interest | out)

    def _read(self, wire: Wire, size: int) -> None:
        try:
            data = wire.sock.recv(size)
        except BlockingIOError:
            return
        except OSError as error:
            self._drop(wire, str(error))
            return
        now = time.monotonic_ns()
        if not data:
            self._drop(wire, "the server closed the connection")
            return
        self._meter.received += len(data)
        ended = wire.link.feed(data, now)
        if wire.link.unsent and not wire.wants_out:
            self._flush(wire)
        for turn in ended:
            self._go_on(wire, turn)

    def _go_on(self, wire: Wire, turn: Turn) -> None:
        self._note(turn, f"status {turn.status}")
        keeps = self._order.reuse or self._order.http2
        if not keeps:
            self._close(wire)
        if self._later:
            self._later -= 1
            self._start(wire if keeps else self._connect())

    def _drop(self, wire: Wire, why: str) -> None:
        for turn in wire.link.cut(time.monotonic_ns()):
            self._note(turn, why)
        self._close(wire)

    def _note(self, turn: Turn, why: str) -> None:
        self._running -= 1
        if not turn.is_good and not self._complaint:
            self._complaint = why

    def _close(self, wire: Wire) -> None:
        del self._wires[wire.sock.fileno()]
        wire.sock.close()
