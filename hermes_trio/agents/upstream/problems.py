"""What can go wrong between us and a model's server, in words that a user understands and may see. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from email.utils import parsedate_to_datetime
from enum import Enum
from typing import Any

from attrs import frozen

from hermes_trio.core.redact import MASK, redact
from hermes_trio.core.shorten import shorten

MAX_DETAIL = 500
SHORTEST_SECRET = 4


class Kind(Enum):
    """What to do about it depends on this."""

    KEY = "key"
    NOT_FOUND = "not found"
    BUSY = "busy"  # 429, and the same said in other ways
    QUOTA = "quota"  # also 429, but waiting does not help
    TOO_LONG = "too long"
    REFUSED = "refused"
    SERVER = "server"
    NETWORK = "network"
    MALFORMED = "malformed"


# Another try may go well, as long as nothing was said yet.
TRANSIENT = frozenset({Kind.BUSY, Kind.SERVER, Kind.NETWORK})


@frozen
class Problem:
    """One thing that went wrong."""

    kind: Kind
    message: str
    wait: float = -1.0  # seconds that the server asks us to wait; negative if it does not say

    @property
    def is_transient(self) -> bool:
        """Whether another try may go well."""
        return self.kind in TRANSIENT


class CallFailed(Exception):
    """A model call gave nothing."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


class CallRefused(CallFailed):
    """The server answered that it does not answer this."""

    def __init__(self, problem: Problem, status: int, text: str) -> None:
        super().__init__(problem)
        self.status, self.text = status, text


@frozen
class Scrub:
    """Masks what must never be shown: the secrets that we know, and what looks like one."""

    secrets: tuple[str, ...] = ()

    @classmethod
    def of(cls, secrets: Iterable[str]) -> Scrub:
        """For these secrets. Longer ones first, so that no part of one is left over."""
        known = {secret for secret in secrets if len(secret) >= SHORTEST_SECRET}
        return cls(tuple(sorted(known, key=len, reverse=True)))

    def __call__(self, text: str) -> str:
        """The text without them."""
        for secret in self.secrets:
            text = text.replace(secret, MASK)
        return redact(text)


_BY_STATUS: Mapping[int, Kind] = {
    **dict.fromkeys(
        (301, 302, 303, 307, 308), Kind.NOT_FOUND
    ),  # a key is not sent where it was not meant to go
    401: Kind.KEY,
    403: Kind.KEY,
    404: Kind.NOT_FOUND,
    408: Kind.SERVER,
    409: Kind.SERVER,
    425: Kind.SERVER,
    429: Kind.BUSY,
}

_WORDS: Mapping[Kind, str] = {
    Kind.KEY: "The model's server refused the key ({0}). Check 'api_key'.",
    Kind.NOT_FOUND: "The model's server knows no such address or model ({0}). Check 'base_url' and 'model'.",
    Kind.BUSY: "The model's server takes no more requests for now ({0}).",
    Kind.QUOTA: "The quota at the model's server is used up ({0}).",
    Kind.TOO_LONG: "The conversation is too long for the model ({0}).",
    Kind.REFUSED: "The model's server refused the request ({0}).",
    Kind.SERVER: "The model's server failed ({0}).",
}

_TOO_LONG = (
    "context_length", "context length", "maximum context", "context size", "context window", "context_window",
    "exceed_context", "too many tokens", "prompt is too long", "input is too long",
)  # fmt: skip
_QUOTA = ("insufficient_quota", "billing_hard_limit", "exceeded your current quota")


def of_status(status: int, body: bytes, wait: float = -1.0) -> Problem:
    """The problem behind an answer that is no success."""
    text = body.decode("utf-8", "replace")
    kind = _kind(_BY_STATUS.get(status, Kind.SERVER if status >= 500 else Kind.REFUSED), text)
    return Problem(kind, _told(kind, str(status), detail_of(text)), wait)


def of_error(error: object) -> Problem:
    """The problem that an ``error`` object inside a stream tells."""
    text = error if isinstance(error, str) else json.dumps(error)
    code = _code(error)
    base = _BY_STATUS.get(code, Kind.SERVER if code >= 500 else Kind.REFUSED) if code else Kind.SERVER
    kind = _kind(base, text)
    return Problem(kind, _told(kind, str(code) if code else "in the stream", detail_of(text)))


def malformed(what: str) -> Problem:
    """The answer is no chat completion."""
    return Problem(Kind.MALFORMED, f"The model's server sent no valid chat completion: {what}.")


def detail_of(text: str) -> str:
    """What an error's body says, without its wrapping, and short."""
    try:
        said = _message(json.loads(text))
    except (ValueError, RecursionError):
        said = text
    return shorten(" ".join(said.split()), MAX_DETAIL)


def _message(found: object) -> str:
    """Servers put it in ``error.message``, ``error``, ``message`` or ``detail``."""
    if not isinstance(found, Mapping):
        return found if isinstance(found, str) else json.dumps(found)
    for name in ("error", "message", "detail"):
        if found.get(name):
            return _message(found[name])
    return json.dumps(found)


def _code(error: object) -> int:
    """The HTTP status that an error object names; 0 if none."""
    found: Any = error.get("code") or error.get("status") if isinstance(error, Mapping) else 0
    number = int(found) if isinstance(found, int | str) and str(found).isdecimal() else 0
    return number if 400 <= number <= 599 else 0


def _kind(kind: Kind, text: str) -> Kind:
    words = text.lower()
    if kind in (Kind.REFUSED, Kind.SERVER) and any(word in words for word in _TOO_LONG):
        return Kind.TOO_LONG
    if kind is Kind.BUSY and any(word in words for word in _QUOTA):
        return Kind.QUOTA
    return kind


def _told(kind: Kind, code: str, detail: str) -> str:
    said = _WORDS[kind].format(code)
    return f"{said} It says: {detail}" if detail else said


def retry_after(value: str, now: float) -> float:
    """The seconds that a ``Retry-After`` header asks for, negative if it says nothing. It may also name a date."""
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - now)
    except (ValueError, OverflowError):
        return -1.0
