"""A scripted model server: plain sockets and threads, on loopback."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from attrs import define, field, frozen

USAGE = {
    "prompt_tokens": 11,
    "completion_tokens": 7,
    "total_tokens": 18,
    "prompt_tokens_details": {"cached_tokens": 3},
    "completion_tokens_details": {"reasoning_tokens": 2},
}


@frozen
class ScriptedCall:
    """A tool call of the model."""

    call_id: str
    name: str
    args: dict[str, Any]


@define(eq=False)
class ScriptedAnswer:
    """One answer of the model."""

    text: Sequence[str] = ()
    reasoning: Sequence[str] = ()
    calls: Sequence[ScriptedCall] = ()
    status: int = 200
    hold: threading.Event | None = None  # the stream pauses after the text until this is set
    said: threading.Event = field(factory=threading.Event)  # set when the text has been written
    finish: str = ""

    def chunks(self) -> Iterator[dict[str, Any]]:
        for piece in self.reasoning:
            yield {"reasoning_content": piece}
        for piece in self.text:
            yield {"content": piece}
        for index, call in enumerate(self.calls):
            function = {"name": call.name, "arguments": json.dumps(call.args)}
            yield {
                "tool_calls": [
                    {"index": index, "id": call.call_id, "type": "function", "function": function}
                ]
            }

    @property
    def finish_reason(self) -> str:
        return self.finish or ("tool_calls" if self.calls else "stop")


class Upstream(ThreadingHTTPServer):
    """Answers each streaming request with the next answer of the script."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.script: deque[ScriptedAnswer] = deque()
        self.requests: list[dict[str, Any]] = []
        self.released = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def play(self, *answers: ScriptedAnswer) -> None:
        self.script.clear()
        self.requests.clear()
        self.script.extend(answers)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect early, which some tests do."""


@contextmanager
def upstream() -> Iterator[Upstream]:
    """Serve within a block."""
    server = Upstream()
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
    )
    thread.start()
    try:
        yield server
    finally:
        server.released.set()
        server.shutdown()
        server.server_close()
        thread.join(5)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Upstream

    def log_message(self, *_args: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self._json(200, {"object": "list", "data": [{"id": "scripted", "object": "model"}]})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not asked.get("stream"):  # a side errand of the agent, as making a title
            self._json(200, _whole(ScriptedAnswer(["aside"]), asked))
            return
        self.server.requests.append(asked)
        answer = (
            self.server.script.popleft()
            if self.server.script
            else ScriptedAnswer(["the script is over"])
        )
        if answer.status != 200:
            self._json(
                answer.status, {"error": {"message": f"scripted {answer.status}", "type": "x"}}
            )
        else:
            self._stream(answer, asked)

    def _stream(self, answer: ScriptedAnswer, asked: dict[str, Any]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for delta in answer.chunks():
            self._event(_chunk(asked, delta, None))
        answer.said.set()
        if answer.hold is not None:
            answer.hold.wait(20)
        self._event(_chunk(asked, {}, answer.finish_reason))
        self._event({**_chunk(asked, {}, None), "choices": [], "usage": USAGE})
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def _event(self, data: dict[str, Any]) -> None:
        self.wfile.write(f"data: {json.dumps(data)}\n\n".encode())
        self.wfile.flush()

    def _json(self, status: int, data: dict[str, Any]) -> None:
        body = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _chunk(asked: dict[str, Any], delta: dict[str, Any], finish: str | None) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": asked["model"],
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }


def _whole(answer: ScriptedAnswer, asked: dict[str, Any]) -> dict[str, Any]:
    message = {"role": "assistant", "content": "".join(answer.text)}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": asked["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": USAGE,
    }
