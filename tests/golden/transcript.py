"""From exchanges and records to the text of a corpus file."""

from __future__ import annotations

import json
from typing import Any

from tests.golden.client import Exchange, Request

Json = dict[str, Any]

# Beside all that begin with "x-hermes-".
SHOWN_HEADERS = frozenset(
    {
        "content-type",
        "allow",
        "retry-after",
        "www-authenticate",
        "idempotency-replayed",
        "x-should-retry",
    }
)
LINE_LENGTH = 120
SHORT = 2  # bodies of so few frames are written out even where an earlier one has the same


class Transcript:
    """What happened, in order."""

    def __init__(self, about: str) -> None:
        self._about = about
        self._entries: list[Json] = []
        self._streams: dict[str, list[str]] = {}

    def add_exchange(self, name: str, exchange: Exchange) -> None:
        """A request, and all that came back."""
        entry: Json = {"exchange": name, "request": _request_view(exchange.request)}
        if exchange.status:
            entry |= {"status": exchange.status, "headers": _headers_view(exchange)}
        if exchange.is_cut:
            entry["client_disconnected"] = True
        elif not exchange.is_whole:
            entry["server_broke_off"] = True
        self._entries.append({**entry, **self._body_view(name, exchange)})

    def add(self, kind: str, name: str, value: object) -> None:
        """Anything else."""
        self._entries.append({kind: name, "value": value})

    def _body_view(self, name: str, exchange: Exchange) -> Json:
        text = exchange.body.decode("utf-8")
        if not exchange.headers.get("content-type", "").startswith("text/event-stream"):
            return {"body": text}
        *frames, rest = text.split("\n\n")
        view: Json = {"frames": self._reference(frames) or frames}
        self._streams.setdefault(name, frames)
        return {**view, "rest": rest} if rest else view

    def _reference(self, frames: list[str]) -> Json | None:
        """The earlier stream that ends just like this one."""
        for name, earlier in self._streams.items():
            first = len(earlier) - len(frames)
            if len(frames) > SHORT and first >= 0 and earlier[first:] == frames:
                return {"same_as": name, "from": first, "count": len(frames)}
        return None

    def text(self) -> str:
        """The file. ASCII only, so that no editor changes a byte of what the wire had."""
        whole = {"about": self._about, "transcript": self._entries}
        return _pretty(whole) + "\n"


def _pretty(value: Any, margin: str = "") -> str:
    """JSON that opens a container only where it does not fit into one line."""
    flat = json.dumps(value, default=_plain)
    if (
        len(margin) + len(flat) <= LINE_LENGTH
        or not isinstance(value, dict | list | tuple)
        or not value
    ):
        return flat
    inner = margin + " "
    if isinstance(value, dict):
        lines = [f"{json.dumps(key)}: {_pretty(item, inner)}" for key, item in value.items()]
    else:
        lines = [_pretty(item, inner) for item in value]
    left, right = "{}" if isinstance(value, dict) else "[]"
    return f"{left}\n{inner}" + f",\n{inner}".join(lines) + f"\n{margin}{right}"


def _plain(value: object) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    raise TypeError(f"{type(value).__name__} in a transcript")


def _request_view(request: Request) -> Json:
    view: Json = {"method": request.method, "path": request.path}
    if request.headers:
        view["headers"] = dict(request.headers)
    if isinstance(request.body, bytes) and len(request.body) > 1_000:
        return {**view, "body_bytes": len(request.body)}
    return view if request.body is None else {**view, "body": request.body}


def _headers_view(exchange: Exchange) -> dict[str, str]:
    return {
        name: _sorted_words(value) if name == "allow" else value
        for name, value in sorted(exchange.headers.items())
        if name in SHOWN_HEADERS or name.startswith("x-hermes-")
    }


def _sorted_words(value: str) -> str:
    """Werkzeug lists allowed methods in the order of a set, which differs between processes."""
    return ", ".join(sorted(value.split(", ")))
