"""What can go wrong between us and a model server, in words that a user may see. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from email.utils import parsedate_to_datetime
from enum import Enum
from typing import Any

from attrs import frozen

from hermes_trio.core.redact import MASK, redact
from hermes_trio.core.shorten import shorten

MAX_DETAIL_CHARS = 500
MIN_SECRET_CHARS = 4


class ProblemKind(Enum):
    """What went wrong, which decides whether to retry."""

    KEY = "key"
    NOT_FOUND = "not found"
    BUSY = "busy"  # 429, or the same in other words
    QUOTA = "quota"  # also 429, but waiting does not help
    TOO_LONG = "too long"
    REFUSED = "refused"
    SERVER = "server"
    NETWORK = "network"
    MALFORMED = "malformed"


# A retry may succeed, as long as no output has been shown.
TRANSIENT = frozenset({ProblemKind.BUSY, ProblemKind.SERVER, ProblemKind.NETWORK})


@frozen
class CallProblem:
    """Why a model call failed."""

    kind: ProblemKind
    message: str
    retry_after: float = -1.0  # seconds, as the server asks; negative if it does not say

    @property
    def is_transient(self) -> bool:
        """Whether a retry may succeed."""
        return self.kind in TRANSIENT


class CallFailed(Exception):
    """A model call failed and produced no output."""

    def __init__(self, problem: CallProblem) -> None:
        super().__init__(problem.message)
        self.problem = problem


class CallRefused(CallFailed):
    """The model server answered with an error status."""

    def __init__(self, problem: CallProblem, status: int, text: str) -> None:
        super().__init__(problem)
        self.status, self.text = status, text


@frozen
class SecretMasker:
    """Masks known secrets, and text that looks like one."""

    secrets: tuple[str, ...] = ()

    @classmethod
    def for_secrets(cls, secrets: Iterable[str]) -> SecretMasker:
        """Create a masker.

        Longer secrets are replaced first, so that no part of one is left over.
        """
        known = {secret for secret in secrets if len(secret) >= MIN_SECRET_CHARS}
        return cls(tuple(sorted(known, key=len, reverse=True)))

    def __call__(self, text: str) -> str:
        """Return the text with all secrets masked."""
        for secret in self.secrets:
            text = text.replace(secret, MASK)
        return redact(text)


_BY_STATUS: Mapping[int, ProblemKind] = {
    # Redirects are not followed: a key must not be sent to another host.
    **dict.fromkeys((301, 302, 303, 307, 308), ProblemKind.NOT_FOUND),
    401: ProblemKind.KEY,
    403: ProblemKind.KEY,
    404: ProblemKind.NOT_FOUND,
    408: ProblemKind.SERVER,
    409: ProblemKind.SERVER,
    425: ProblemKind.SERVER,
    429: ProblemKind.BUSY,
}

_MESSAGES: Mapping[ProblemKind, str] = {
    ProblemKind.KEY: "The model server rejected the key ({0}). Check 'api_key'.",
    ProblemKind.NOT_FOUND: "The model server has no such URL or model ({0}). Check 'base_url' and 'model'.",
    ProblemKind.BUSY: "The model server accepts no more requests for now ({0}).",
    ProblemKind.QUOTA: "The quota at the model server is used up ({0}).",
    ProblemKind.TOO_LONG: "The conversation is too long for the model ({0}).",
    ProblemKind.REFUSED: "The model server refused the request ({0}).",
    ProblemKind.SERVER: "The model server failed ({0}).",
}

_TOO_LONG = (
    "context_length", "context length", "maximum context", "context size", "context window", "context_window",
    "exceed_context", "too many tokens", "prompt is too long", "input is too long",
)  # fmt: skip
_QUOTA = ("insufficient_quota", "billing_hard_limit", "exceeded your current quota")


def problem_from_status(status: int, body: bytes, retry_after: float = -1.0) -> CallProblem:
    """Interpret a response with an error status."""
    text = body.decode("utf-8", "replace")
    return _interpret(_kind_of_status(status), str(status), text, retry_after)


def problem_from_payload(error: object) -> CallProblem:
    """Interpret the ``error`` object in a stream."""
    text = error if isinstance(error, str) else json.dumps(error)
    status = _status_in(error)
    kind = _kind_of_status(status) if status else ProblemKind.SERVER
    return _interpret(kind, str(status) if status else "in the stream", text)


def malformed(what: str) -> CallProblem:
    """Return the problem of a response that is not a chat completion."""
    return CallProblem(
        ProblemKind.MALFORMED, f"The model server did not send a valid chat completion: {what}."
    )


def parse_retry_after(value: str, now: float) -> float:
    """Return the seconds in a ``Retry-After`` header, which may also be a date.

    Negative if it says nothing.
    """
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - now)
    except (ValueError, OverflowError):
        return -1.0


def error_detail(text: str) -> str:
    """Return the message in an error body, shortened."""
    try:
        message = _find_message(json.loads(text))
    except (ValueError, RecursionError):
        message = text
    return shorten(" ".join(message.split()), MAX_DETAIL_CHARS)


def _kind_of_status(status: int) -> ProblemKind:
    return _BY_STATUS.get(status, ProblemKind.SERVER if status >= 500 else ProblemKind.REFUSED)


def _interpret(kind: ProblemKind, code: str, text: str, retry_after: float = -1.0) -> CallProblem:
    """Refine the kind by what the body says, and compose the message."""
    words = text.lower()
    if kind in (ProblemKind.REFUSED, ProblemKind.SERVER) and any(
        word in words for word in _TOO_LONG
    ):
        kind = ProblemKind.TOO_LONG
    elif kind is ProblemKind.BUSY and any(word in words for word in _QUOTA):
        kind = ProblemKind.QUOTA
    message, detail = _MESSAGES[kind].format(code), error_detail(text)
    return CallProblem(kind, f"{message} It says: {detail}" if detail else message, retry_after)


def _find_message(found: object) -> str:
    """Servers put it in ``error.message``, ``error``, ``message`` or ``detail``."""
    if not isinstance(found, Mapping):
        return found if isinstance(found, str) else json.dumps(found)
    for name in ("error", "message", "detail"):
        if found.get(name):
            return _find_message(found[name])
    return json.dumps(found)


def _status_in(error: object) -> int:
    """Return the HTTP status that an error object names, or 0."""
    found: Any = error.get("code") or error.get("status") if isinstance(error, Mapping) else 0
    number = int(found) if isinstance(found, int | str) and str(found).isdecimal() else 0
    return number if 400 <= number <= 599 else 0
