"""Real servers for tests of this folder, and small things to do with them."""

from __future__ import annotations

import os
import re
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count, islice
from pathlib import Path
from typing import Any

import httpx2
import pytest
from attrs import frozen

from tests.robustness.real_launch import command
from tests.robustness.streams import Dialect, ReceivedStream, read_stream
from tests.support.server_process import TIMEOUT, LaunchOptions, ServerProcess, serving
from tests.support.socket_client import PATH, chat_body

long_session = pytest.mark.long_session
"""Leave a test that takes seconds to ``nox -s robustness``."""


def unless_short(full: bool) -> None:
    """Leave a case that has a shorter sibling to ``nox -s robustness``."""
    if not full:
        pytest.skip("in the full session only")


@frozen
class ChatReply:
    """What came of one request; the body may be cut."""

    status: int
    body: bytes

    @property
    def received(self) -> ReceivedStream:
        """As a chat stream."""
        return read_stream(Dialect.CHAT, self.body)


_APPROVAL_REQUEST = re.compile(rb'event: hermes\.approval\.request\ndata: \{"id": "([^"]+)"')


def chat(
    server: ServerProcess, text: str, seconds: float = TIMEOUT, approve: bool = False
) -> ChatReply:
    """One turn, streamed, to its end or until it breaks off.

    ``approve`` answers the first approval request.
    """
    headers = {"Authorization": f"Bearer {server.key}", "Content-Type": "application/json"}
    body, status = b"", 0
    with httpx2.Client(trust_env=False, timeout=seconds) as http:
        try:
            with http.stream(
                "POST", server.url + PATH, content=chat_body(text), headers=headers
            ) as answer:
                status = answer.status_code
                for piece in answer.iter_raw():
                    body += piece
                    if approve and (found := _APPROVAL_REQUEST.search(body)):
                        url = f"{server.url}/v1/runs/{found[1].decode()}/approval"
                        answered = http.post(url, json={"choice": "once"}, headers=headers)
                        assert answered.status_code == 200, answered.text
                        approve = False
        except httpx2.HTTPError:
            pass
    return ChatReply(status, body)


@contextmanager
def server_in(folder: Path, agent: str, expected: str = "", **more: Any) -> Iterator[ServerProcess]:
    """A server; what begins with ``fault_`` is wrong around it, the rest are its settings."""
    faults = {
        name.removeprefix("fault_"): value
        for name, value in more.items()
        if name.startswith("fault_")
    }
    settings = {name: value for name, value in more.items() if not name.startswith("fault_")}
    plan = LaunchOptions(
        folder, ("--agent", agent), {"drain_seconds": 1, **settings}, command(**faults)
    )
    with serving(plan, expected=expected) as server:
        yield server


@contextmanager
def limited(server: ServerProcess, what: int, most: int) -> Iterator[None]:
    """A resource of a server is scarce for the length of a block."""
    soft, hard = resource.prlimit(server.pid, what)
    resource.prlimit(server.pid, what, (most, hard))
    try:
        yield
    finally:
        resource.prlimit(server.pid, what, (soft, hard))


def limit_with_room(server: ServerProcess, room: int) -> int:
    """The limit of descriptors under which so many more can be opened.

    Each gets the lowest free number.
    """
    taken = {int(name) for name in os.listdir(f"/proc/{server.pid}/fd")}
    free = (number for number in count() if number not in taken)
    return next(islice(free, room, None))


@contextmanager
def being_there(file: Path) -> Iterator[None]:
    """A file that switches a fault on for the length of a block."""
    file.touch()
    try:
        yield
    finally:
        file.unlink()
