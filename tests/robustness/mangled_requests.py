"""Requests that are almost right: valid ones of every operation, with something wrong in them.

Cheap, and seeded.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

from attrs import frozen

from hermes_trio.schema.openapi import OPERATIONS, Operation

SECRET = "sk-proj-0123456789abcdefghijklmnop"
MESSAGE = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}
TOOL = {"type": "function", "name": "f", "parameters": {"type": "object"}}

# A body for each operation that takes one, as full as it can be: what is not there cannot be
# spoilt.
BODIES: Mapping[tuple[str, str], dict[str, Any]] = {
    ("post", "/v1/chat/completions"): {
        "model": "hermes-agent",
        "messages": [
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
            {"role": "assistant", "content": None, "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "a", "content": "done"},
            {"role": "user", "content": "And?"},
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
        "temperature": 0.5, "top_p": 1, "max_tokens": 5, "stop": ["x"], "n": 1, "user": "u", "metadata": {"a": "b"},
    },
    ("post", "/v1/responses"): {
        "model": "hermes-agent",
        "input": [MESSAGE, {"role": "user", "content": "Hi"}],
        "instructions": "Be kind.", "stream": True, "store": True, "background": False, "metadata": {"a": "b"},
        "tools": [TOOL], "tool_choice": "auto", "temperature": 1, "truncation": "auto", "conversation_history": [{"role": "user", "content": "x"}],
        "text": {"format": {"type": "text"}}, "reasoning": {"effort": "low"}, "max_output_tokens": 10,
    },
    ("post", "/v1/conversations"): {"items": [MESSAGE], "metadata": {"a": "b"}},
    ("post", "/v1/conversations/{conversation_id}"): {"metadata": {"a": "b"}},
    ("post", "/v1/conversations/{conversation_id}/items"): {"items": [MESSAGE]},
    ("post", "/v1/runs"): {"input": "Hi", "session_id": "s2", "instructions": "x", "model": "hermes-agent", "metadata": {"a": "b"}},
    ("post", "/v1/runs/{run_id}/approval"): {"choice": "once", "approval_id": "a", "all": False},
    ("post", "/v1/responses/{response_id}/approval"): {"choice": "deny"},
    ("post", "/api/sessions"): {"id": "s3", "title": "t", "system_prompt": "Be kind.", "model": "hermes-agent"},
    ("patch", "/api/sessions/{session_id}"): {"title": "other", "end_reason": "done", "pinned": True},
    ("post", "/api/sessions/{session_id}/fork"): {"id": "s4", "title": "fork", "before": 1, "model": "hermes-agent"},
    ("post", "/api/jobs"): {"name": "j", "schedule": "every 2h", "prompt": "Hi", "deliver": "local", "skills": [], "repeat": 3},
    ("patch", "/api/jobs/{job_id}"): {"name": "k", "schedule": "0 9 * * *", "prompt": "Hi", "repeat": 2, "enabled": False},
    ("post", "/api/cron/fire"): {"job_id": "0123456789ab"},
    ("post", "/api/sessions/{session_id}/chat"): {"message": "Hi", "system_message": "Be kind."},
    ("post", "/api/sessions/{session_id}/chat/stream"): {"message": [{"type": "text", "text": "Hi"}]},
}  # fmt: skip

ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**64 - 1, -(2**63), 1.5, 1e308, -0.0, "", " ", "x", "\0", "\n", "é", "\ud800",
    "😀" * 50, "a" * 5_000, SECRET, f"api_key={SECRET}", "../../etc/passwd", "' OR 1=1 --", "{}", "null", [], {}, [[]], [{}], [None],
    {"": None}, {"a": {"b": {"c": []}}}, [0] * 200, ["x"] * 1_001, {str(n): n for n in range(100)}, {"type": "message"},
    {"type": "input_text", "text": 1}, {"role": "wizard", "content": "Hi"}, "data:image/png;base64,AAAA", "http://127.0.0.1/x.png",
)  # fmt: skip
TEXTS = (
    "",
    "0",
    "-1",
    "1",
    "99999999999999999999",
    "x",
    "true",
    "%00",
    "é",
    "a" * 300,
    SECRET,
    "asc",
    "desc",
    "completed",
    "\ud800",
)
HEADERS = (
    "X-Hermes-Session-Id", "X-Hermes-Session-Key", "Idempotency-Key", "X-Hermes-On-Disconnect", "Last-Event-ID",
    "Content-Type", "X-Request-Id", "Accept", "Origin", "Content-Length", "X-OpenWebUI-Chat-Id",
)  # fmt: skip
HEADER_VALUES = (
    "",
    "x",
    "s1",
    "0",
    "-5",
    "1e9",
    "grace:5",
    "detach",
    "a" * 600,
    "text/html",
    "null",
    "caf\xe9",
    SECRET,
    "http://evil.test",
)


@frozen
class MangledRequest:
    """One request."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


class RequestMangler:
    """Makes requests, each of them a function of the seed and of those before it."""

    def __init__(self, seed: int, ids: Callable[[str], list[str]]) -> None:
        self._chance = random.Random(seed)
        self._ids = ids  # the ids that are there, by the name of the parameter

    def next(self) -> MangledRequest:
        """One more request."""
        operation = self._chance.choice(OPERATIONS)
        body = self._body(operation)
        headers = {"Content-Type": "application/json"} if body else {}
        for _ in range(self._chance.choice((0, 0, 0, 1, 2))):
            name = self._chance.choice((*operation.headers, *HEADERS))
            headers[name] = self._chance.choice(HEADER_VALUES)
        method = self._rarely(
            operation.method, ("get", "post", "put", "delete", "head", "patch", "brew")
        )
        return MangledRequest(method.upper(), self._target(operation), headers, body)

    def _rarely(self, usual: Any, odd: tuple[Any, ...], one_in: int = 25) -> Any:
        return self._chance.choice(odd) if self._chance.randrange(one_in) == 0 else usual

    def _target(self, operation: Operation) -> str:
        path = operation.path
        for name in operation.parameters:
            known = self._ids(name) or ["x"]
            value = self._chance.choice(known if self._chance.random() < 0.7 else TEXTS)
            path = path.replace(f"{{{name}}}", quote(value, safe="", errors="surrogatepass") or "_")
        pairs = [
            (name, self._chance.choice(TEXTS))
            for name in operation.query
            if self._chance.random() < 0.5
        ]
        query = "&".join(f"{name}={quote(value, errors='surrogatepass')}" for name, value in pairs)
        return f"{path}?{query}" if query else path

    def _body(self, operation: Operation) -> bytes:
        if operation.body is None:
            return self._rarely(b"", (b"{}", b"x", b"\0"), 10)  # type: ignore[no-any-return]
        body = json.loads(json.dumps(BODIES[operation.method, operation.path]))
        for _ in range(self._chance.choice((0, 1, 1, 1, 2, 4))):
            body = self._spoil(body)
        raw = json.dumps(body).encode()
        return self._scratch(raw) if self._chance.randrange(10) == 0 else raw

    def _spoil(self, value: Any) -> Any:
        """Change one thing somewhere in it."""
        if isinstance(value, dict) and value and self._chance.random() < 0.85:
            name = self._chance.choice(sorted(value))
            return (
                {**value, **self._spoilt_field(name, value[name])}
                if self._chance.random() < 0.9
                else _without(value, name)
            )
        if isinstance(value, list) and value and self._chance.random() < 0.7:
            place = self._chance.randrange(len(value))
            return [
                *value[:place],
                self._spoil(value[place]),
                *value[place + self._chance.choice((0, 1)) :],
            ]
        return self._chance.choice(ODD)

    def _spoilt_field(self, name: str, value: Any) -> dict[str, Any]:
        if self._chance.randrange(12) == 0:
            return {self._chance.choice(("x", "", SECRET, name.upper(), f"{name}\0")): value}
        return {name: self._spoil(value)}

    def _scratch(self, raw: bytes) -> bytes:
        """Change some bytes: it may not even be JSON any more."""
        place = self._chance.randrange(len(raw))
        piece = bytes(self._chance.randrange(256) for _ in range(self._chance.randrange(4)))
        cut = self._chance.choice((0, 1, 5, len(raw)))
        return raw[:place] + piece + raw[place + cut :]


def _without(value: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: each for key, each in value.items() if key != name}
