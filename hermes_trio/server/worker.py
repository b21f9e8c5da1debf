"""One of several worker processes: gets its plan from the supervisor, and serves until it is told to stop.

A worker never outlives its supervisor. A thread waits for orders on the channel and reads its end
when the supervisor has died, by whatever signal, even if the event loop is busy. (The alternative on
Linux, ``PR_SET_PDEATHSIG``, is bound to the thread that started the process, and Trio starts processes
from threads that end.)
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

import structlog
import trio

from hermes_trio.core.errors import ConfigurationError
from hermes_trio.server.signals import SignalCallback
from hermes_trio.server.worker_channel import (
    Order,
    Ready,
    Refused,
    WorkerPlan,
    decode_order,
    encode_report,
    own,
    read_plan,
)

log = structlog.get_logger(__name__)

SUPERVISOR = "the supervisor"
SUPERVISOR_LOST = "the end of the supervisor"

OnOrder = Callable[[Order, str], None]  # with what it comes from


def main(descriptor: int) -> NoReturn:
    """Run the worker whose channel is an inherited descriptor, and exit."""
    channel = own(descriptor)
    link = SupervisorLink(channel)
    try:
        plan = link.read_plan()
    except (EOFError, OSError):  # the supervisor is gone
        sys.exit(1)
    link.start()
    sys.exit(run(plan, link))


class SupervisorLink:
    """The worker's end of the channel.

    Until `attach` is called nothing has been opened, so an order ends the process at once.
    """

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._file = channel.makefile("rb")
        self._deliver: OnOrder | None = None
        self._limit_shutdown: Callable[[], None] = lambda: None
        self.is_lost = False  # whether the supervisor has died

    def read_plan(self) -> WorkerPlan:
        """Read the plan, which comes first. Blocks.

        Raises:
            EOFError, OSError: The supervisor is gone.
        """
        return read_plan(self._file)

    def start(self) -> None:
        """Start to wait for orders."""
        threading.Thread(target=self._listen, name="supervisor link", daemon=True).start()

    def attach(self, on_order: OnOrder, limit_shutdown: Callable[[], None]) -> None:
        """Deliver orders to Trio from now on. Call it in Trio.

        `limit_shutdown` is called from the thread when the supervisor is lost, and must see to it
        that the process ends even if the event loop hangs.
        """
        token = trio.lowlevel.current_trio_token()
        self._limit_shutdown = limit_shutdown

        def deliver(order: Order, source: str) -> None:
            token.run_sync_soon(on_order, order, source)

        self._deliver = deliver

    def report(self, report: Ready | Refused) -> None:
        """Tell the supervisor something. Nothing happens if it is gone."""
        with suppress(OSError):
            self._channel.sendall(encode_report(report))

    def _listen(self) -> None:
        with suppress(OSError):  # reset, if the supervisor died before it read a report
            for line in self._file:
                self._obey(decode_order(line), SUPERVISOR)
        self.is_lost = True
        self._limit_shutdown()
        self._obey(Order.STOP_NOW, SUPERVISOR_LOST)

    def _obey(self, order: Order, source: str) -> None:
        if self._deliver is None:
            os._exit(0)
        with suppress(trio.RunFinishedError):  # the process is about to end
            self._deliver(order, source)


class StopRequests:
    """Turns orders and signals into the requests of a shutdown: the first drains, the second ends the drain.

    A service manager may signal every process of a service. So a signal counts as the order to
    drain, and repeating it, or getting both, changes nothing.
    """

    def __init__(self, callback: SignalCallback) -> None:
        self._callback = callback
        self._made = 0

    def obey(self, order: Order, source: str) -> None:
        """Follow an order, unless one at least as strong was followed before."""
        while self._made < order:
            self._made += 1
            self._callback.call(source)

    def drain(self, source: str) -> None:
        """Drain because of a signal."""
        self.obey(Order.DRAIN, source)


def run(plan: WorkerPlan, link: SupervisorLink) -> int:
    """Serve as the plan says. Return the exit code."""
    # Imported here: an order that comes while the frameworks are imported ends the process.
    from hermes_trio.server.worker_server import serve  # noqa: PLC0415

    try:
        serve(plan, link)
    except ConfigurationError as error:
        link.report(Refused(" ".join(str(error).split())))
        return 2
    return 0
