"""Streams of a real server that are read to their end, however it comes, some of them at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress

import httpx2
from attrs import define, field

from tests.robustness.streams import Dialect, ReceivedStream, read_stream
from tests.support.server_process import TIMEOUT, ServerProcess

PATHS = {Dialect.CHAT: "/v1/chat/completions", Dialect.RESPONSES: "/v1/responses"}


@define
class StreamedTurn:
    """One stream as its client knows it."""

    dialect: Dialect
    text: str
    status: int = 0
    raw: bytes = b""

    @property
    def received(self) -> ReceivedStream:
        """What was told."""
        return read_stream(self.dialect, self.raw if self.status == 200 else b"")

    @property
    def body(self) -> dict[str, object]:
        """The request."""
        if self.dialect is Dialect.CHAT:
            return {"stream": True, "messages": [{"role": "user", "content": self.text}]}
        return {"stream": True, "input": self.text}

    def run(self, server: ServerProcess, http2: bool) -> StreamedTurn:
        """Read to the end."""
        headers = {"Authorization": f"Bearer {server.key}"}
        options = {"http1": not http2, "http2": http2, "trust_env": False, "timeout": TIMEOUT}
        url = server.url + PATHS[self.dialect]
        with (
            suppress(httpx2.HTTPError),
            httpx2.Client(**options) as http,  # type: ignore[arg-type]
            http.stream("POST", url, json=self.body, headers=headers) as answer,
        ):
            self.status = answer.status_code
            for piece in answer.iter_raw():
                self.raw += piece
        return self


@define
class ConcurrentTurns:
    """Turns that are under way."""

    turns: list[StreamedTurn] = field(factory=list)
    _futures: list[Future[StreamedTurn]] = field(factory=list)

    def begin(self, pool: ThreadPoolExecutor, server: ServerProcess, turn: StreamedTurn) -> None:
        """One more; every second speaks HTTP/2."""
        self.turns.append(turn)
        self._futures.append(pool.submit(turn.run, server, len(self.turns) % 2 == 0))

    def have_begun(self) -> bool:
        """Whether each has got something."""
        return all(b"t000001" in turn.raw for turn in self.turns)

    def wait(self) -> list[ReceivedStream]:
        """What all of them heard."""
        return [future.result(2 * TIMEOUT).received for future in self._futures]


@contextmanager
def start_turns(server: ServerProcess, texts: Sequence[str]) -> Iterator[ConcurrentTurns]:
    """Turns that have not ended when the block begins; their dialects take turns too."""
    with ThreadPoolExecutor(len(texts)) as pool:
        crowd = ConcurrentTurns()
        for number, text in enumerate(texts):
            crowd.begin(
                pool, server, StreamedTurn((Dialect.CHAT, Dialect.RESPONSES)[number // 2 % 2], text)
            )
        yield crowd
