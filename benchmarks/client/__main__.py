"""``python -m benchmarks.client``.

Reads an order as JSON from standard input, and writes a report as JSON to standard output.
"""

from __future__ import annotations

import gc
import http.client
import json
import os
import sys

import msgspec
from attrs import evolve

from benchmarks.client.loop import Client
from benchmarks.client.orders import Order, Request


def main() -> None:
    """Carry out the order."""
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=Order)
    if order.core >= 0:
        os.sched_setaffinity(0, {order.core})
    if order.setup is not None:
        path = order.request.path.replace("{id}", _id_of(order, order.setup))
        order = evolve(order, request=evolve(order.request, path=path))
    gc.disable()  # nothing here makes cycles worth a pause in the middle of a measurement
    sys.stdout.buffer.write(msgspec.json.encode(Client(order).run()))


def _id_of(order: Order, setup: Request) -> str:
    link = http.client.HTTPConnection(order.host, order.port, timeout=30)
    headers = {**setup.headers, "Content-Type": "application/json"}
    link.request(setup.method, setup.path, setup.body, headers)
    answer = json.loads(link.getresponse().read())
    link.close()
    return str(answer["id"])


if __name__ == "__main__":
    main()
