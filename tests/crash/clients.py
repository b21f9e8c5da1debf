"""Clients that put load on a server until it dies, and record everything they receive.

Each is a thread with a socket.
"""

from __future__ import annotations

import json
import random
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from attrs import define, field, frozen

from hermes_trio.agents.synthetic import Load, parse_load
from tests.crash.frames import Frame, frames_of, parse_answer
from tests.support.server_process import TIMEOUT, ServerProcess

RATE = 200  # pieces of text per second; so what is missing can be told in seconds
PATH = "/v1/responses"
KINDS = ("stream", "stream", "batch", "background")


@define
class ObservedResponse:
    """One response as its client knows it."""

    kind: str
    load: str
    response_id: str = ""
    frames: list[Frame] = field(factory=list)
    end: dict[str, Any] = field(
        factory=dict
    )  # the response of the terminal event, or the whole batch answer
    trouble: str = ""

    @property
    def wanted(self) -> Load:
        """What the agent was asked to do."""
        return parse_load(self.load)

    @property
    def whole_text(self) -> str:
        """The complete text of the agent."""
        return "".join(self.wanted.token(number) for number in range(1, self.wanted.tokens + 1))


@frozen
class Address:
    """The address of a server and its key."""

    port: int
    key: str

    @staticmethod
    def of(server: ServerProcess) -> Address:
        """Of a server that was started."""
        return Address(server.port, server.key)

    def ask(self, method: str, target: str, body: Mapping[str, Any] | None = None) -> bytes:
        """Send a request and return all bytes until the connection ends, however it ends."""
        received = b""
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), TIMEOUT) as sock:
            sock.sendall(self._request(method, target, body))
            while data := sock.recv(65536):
                received += data
        return received

    def _request(self, method: str, target: str, body: Mapping[str, Any] | None) -> bytes:
        content = b"" if body is None else json.dumps(body).encode()
        lines = [
            f"{method} {target} HTTP/1.1",
            "Host: localhost",
            f"Authorization: Bearer {self.key}",
            "Content-Type: application/json",
            f"Content-Length: {len(content)}",
            "Connection: close",
        ]
        return "\r\n".join([*lines, "", ""]).encode() + content


class LoadClients:
    """Several concurrent clients."""

    def __init__(self, server: ServerProcess, count: int, seed: str) -> None:
        self._address = Address.of(server)
        self._is_over = threading.Event()
        self.seen: list[ObservedResponse] = []
        names = [f"{seed}-{number}" for number in range(count)]
        self._threads = [
            threading.Thread(target=self._live, args=(random.Random(name),)) for name in names
        ]

    def begin(self) -> None:
        """Start the clients."""
        for thread in self._threads:
            thread.start()

    def end(self) -> list[ObservedResponse]:
        """Return what the clients saw. The server must be dead, or this blocks."""
        self._is_over.set()
        for thread in self._threads:
            thread.join(TIMEOUT)
            assert not thread.is_alive(), "a client still waits for a dead server"
        return self.seen

    def _live(self, dice: random.Random) -> None:
        while not self._is_over.is_set():
            seen = ObservedResponse(dice.choice(KINDS), _some_load(dice))
            self.seen.append(seen)
            _have_it_done(self._address, seen)
            if not seen.response_id:
                return


def _some_load(dice: random.Random) -> str:
    words = {
        "tokens": dice.randint(5, 200),
        "rate": RATE,
        "tools": dice.choice((0, 0, 1, 3)),
        "think": dice.choice((0, 0, 2)),
        "mode": dice.choice(("sync", "async")),
    }
    return " ".join(f"{name}={value}" for name, value in words.items())


def _have_it_done(address: Address, seen: ObservedResponse) -> None:
    is_background = seen.kind == "background"
    body = {
        "model": "m",
        "input": seen.load,
        "stream": seen.kind == "stream",
        "background": is_background,
    }
    answer = address.ask("POST", PATH, body)
    if seen.kind == "stream":
        _note_stream(seen, answer)
        return
    _note_object(seen, answer)
    if is_background and seen.response_id:
        _note_stream(seen, address.ask("GET", f"{PATH}/{seen.response_id}?stream=true"))


def _note_object(seen: ObservedResponse, raw: bytes) -> None:
    answer = parse_answer(raw)
    if answer is None or not answer.is_whole:
        return
    if answer.status != 200:
        seen.trouble = f"{answer.status}: {answer.body!r}"
        return
    shown = answer.json()
    seen.response_id = shown["id"]
    if shown["status"] != "in_progress":
        seen.end = shown


def _note_stream(seen: ObservedResponse, raw: bytes) -> None:
    answer = parse_answer(raw)
    if answer is None:
        return
    if answer.status != 200:
        seen.trouble = f"{answer.status}: {answer.body!r}"
        return
    seen.frames = frames_of(answer.body)
    for frame in seen.frames:
        event = frame.event
        if event.get("type") == "response.created":
            seen.response_id = event["response"]["id"]
        if frame.is_terminal:
            seen.end = event["response"]
