"""Killed in the midst of fast streams: no number stands for two events, and every stream is told to its end."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx2
import pytest
from attrs import define, field

from tests.e2e.test_runs_restart import client_of
from tests.support.dialect_frames import numbered
from tests.support.server_process import LaunchOptions, ServerProcess, kill, serving, start

pytestmark = [pytest.mark.xdist_group("e2e-resume-after-kill"), pytest.mark.slow]

LOAD = "tokens=1000000 rate=1000"
TOKENS = 300  # that each client has seen, at least, when the process dies
_RUN_ID = re.compile(rb'"(?:id|run_id)": "((?:resp|run)_[0-9a-f]+)"')


@define
class Listener:
    """A client of one stream, and how it resumes it."""

    resume: str  # the path, with {run_id} and {last}
    pieces: Iterator[bytes]
    seen: bytes = field(default=b"")

    def listen(self) -> None:
        """Read some of the stream."""
        while b"t%06d" % TOKENS not in self.seen:
            self.seen += next(self.pieces)

    def listen_to_end(self) -> None:
        """Read what was on its way when the process died."""
        with suppress(httpx2.HTTPError):
            for piece in self.pieces:
                self.seen += piece

    def path(self, last: int) -> str:
        """Where the stream continues after an event."""
        found = _RUN_ID.search(self.seen)
        assert found is not None
        return self.resume.format(run_id=found[1].decode(), last=last)


@pytest.mark.parametrize("durability", ["normal", "strict"])
def test_no_number_stands_for_two_events(durability: str, tmp_path: Path) -> None:
    plan = LaunchOptions(tmp_path, ("--agent", "synthetic"), {"stream_durability": durability})
    listeners = listen_until_killed(start(plan))
    with (
        serving(plan, expected="recovered a run of a dead process") as server,
        client_of(server) as client,
    ):
        for listener in listeners:
            seen = numbered(listener.seen)
            whole = numbered(read(client, listener.path(min(seen) - 1)))
            resumed = numbered(read(client, listener.path(max(seen))))
            both = seen.keys() & whole.keys()
            assert {n: seen[n] for n in both} == {n: whole[n] for n in both}
            assert resumed == {n: frame for n, frame in whole.items() if n > max(seen)}
            assert b"process_died" in b"".join(resumed.values())
            if durability == "strict":
                assert seen.keys() <= whole.keys()


def listen_until_killed(server: ServerProcess) -> list[Listener]:
    """What three clients get, each by another API, before their server is killed."""
    try:
        with ExitStack() as stack:
            client = stack.enter_context(client_of(server))
            listeners = [*open_streams(client, stack)]
            for listener in listeners:
                listener.listen()
            kill(server)
            for listener in listeners:
                listener.listen_to_end()
            return listeners
    finally:
        kill(server)


def open_streams(client: httpx2.Client, stack: ExitStack) -> Iterator[Listener]:
    run_id = post(client, "/v1/runs", {"input": LOAD})["run_id"]
    post(client, "/api/sessions", {"id": "s"})
    chat = "/api/sessions/s/chat/stream"
    for method, path, body, resume in (
        ("GET", f"/v1/runs/{run_id}/events", None, "/v1/runs/{run_id}/events?last_seq={last}"),
        (
            "POST",
            "/v1/responses",
            {"input": LOAD, "stream": True},
            "/v1/responses/{run_id}?stream=true&starting_after={last}",
        ),
        ("POST", chat, {"message": LOAD}, f"{chat}?run_id={{run_id}}&last_seq={{last}}"),
    ):
        answer = stack.enter_context(client.stream(method, path, json=body))
        assert answer.status_code == 200, answer.read()
        yield Listener(resume, answer.iter_bytes())


def post(client: httpx2.Client, path: str, body: Mapping[str, object]) -> dict[str, str]:
    answer = client.post(path, json=body)
    assert answer.is_success, answer.text
    return dict(answer.json())


def read(client: httpx2.Client, path: str) -> bytes:
    answer = client.get(path)
    assert answer.status_code == 200, answer.text
    return answer.content
