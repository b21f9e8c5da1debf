"""Streams of a real server that are read to their end, however it comes, some of them at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress

import httpx2
from attrs import define, field

from tests.robustness.wires import Heard, Wire, hear
from tests.support.server_process import TIMEOUT, ServerProcess

PATHS = {Wire.CHAT: "/v1/chat/completions", Wire.RESPONSES: "/v1/responses"}


@define
class Turn:
    """One stream as its client knows it."""

    wire: Wire
    text: str
    status: int = 0
    raw: bytes = b""

    @property
    def heard(self) -> Heard:
        """What was told."""
        return hear(self.wire, self.raw if self.status == 200 else b"")

    @property
    def body(self) -> dict[str, object]:
        """The request."""
        if self.wire is Wire.CHAT:
            return {"stream": True, "messages": [{"role": "user", "content": self.text}]}
        return {"stream": True, "input": self.text}

    def run(self, server: ServerProcess, http2: bool) -> Turn:
        """Read to the end."""
        headers = {"Authorization": f"Bearer {server.key}"}
        options = {"http1": not http2, "http2": http2, "trust_env": False, "timeout": TIMEOUT}
        url = server.url + PATHS[self.wire]
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
class Crowd:
    """Turns that are under way."""

    turns: list[Turn] = field(factory=list)
    _futures: list[Future[Turn]] = field(factory=list)

    def begin(self, pool: ThreadPoolExecutor, server: ServerProcess, turn: Turn) -> None:
        """One more; every second speaks HTTP/2."""
        self.turns.append(turn)
        self._futures.append(pool.submit(turn.run, server, len(self.turns) % 2 == 0))

    def have_begun(self) -> bool:
        """Whether each has got something."""
        return all(b"t000001" in turn.raw for turn in self.turns)

    def wait(self) -> list[Heard]:
        """What all of them heard."""
        return [future.result(2 * TIMEOUT).heard for future in self._futures]


@contextmanager
def turning(server: ServerProcess, texts: Sequence[str]) -> Iterator[Crowd]:
    """Turns that have not ended when the block begins; their dialects take turns too."""
    with ThreadPoolExecutor(len(texts)) as pool:
        crowd = Crowd()
        for number, text in enumerate(texts):
            crowd.begin(pool, server, Turn((Wire.CHAT, Wire.RESPONSES)[number // 2 % 2], text))
        yield crowd
