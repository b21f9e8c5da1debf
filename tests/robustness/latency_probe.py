"""Measures, from a process of its own, how long a server takes to answer ``GET /health`` while something else happens.

``python -m tests.robustness.latency_probe PORT`` asks over and over on one connection until its
input ends, then prints the longest answer time in seconds and the number of answers.
"""

from __future__ import annotations

import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from attrs import define

from tests.support.server_process import ROOT, TIMEOUT

PAUSE = 0.002  # seconds between an answer and the next request
_REQUEST = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


@define
class Latency:
    """What a probe measured; valid after its block."""

    longest: float = 0.0
    answers: int = 0


@contextmanager
def probing(port: int) -> Iterator[Latency]:
    """Probe a server for the length of the block."""
    command = [sys.executable, "-m", "tests.robustness.latency_probe", str(port)]
    latency = Latency()
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as probe:
        try:
            assert probe.stdout is not None
            assert probe.stdout.readline() == "ready\n"
            yield latency
            longest, answers = probe.communicate(timeout=TIMEOUT)[0].split()
        finally:
            probe.kill()
    latency.longest, latency.answers = float(longest), int(answers)
    assert answers != "0"


def _ask(connection: socket.socket) -> float:
    begun = time.perf_counter()
    connection.sendall(_REQUEST)
    answer = b""
    while b'"status"' not in answer:
        data = connection.recv(65_536)
        if not data:
            raise ConnectionError("the server closed the connection of the probe")
        answer += data
    return time.perf_counter() - begun


def main() -> None:
    """Probe until the input ends."""
    with socket.create_connection(("127.0.0.1", int(sys.argv[1])), TIMEOUT) as connection:
        _ask(connection)
        print("ready", flush=True)  # noqa: T201 - its result
        longest, answers = 0.0, 0
        while not select.select([sys.stdin], [], [], PAUSE)[0]:
            longest, answers = max(longest, _ask(connection)), answers + 1
        print(longest, answers)  # noqa: T201


if __name__ == "__main__":
    main()
