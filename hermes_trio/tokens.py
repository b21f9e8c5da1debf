"""Signed tokens, which stand for an API key for a limited time and a single purpose.

A token holds its expiry, the name of a key and a signature. What it is valid for (a run, say) is not in
the token: the signature covers it, and the request names it. So a token for one thing is simply
invalid for another.

A token names the key it stands for, allows what the key allows, and is invalid once the key is gone.

The signing key is derived from a random secret of the data folder, which survives restarts and is
shared by all processes that use the folder, and from the hash of the API key, so that replacing a
key revokes the tokens that were issued for it. The secret also keeps a token from being used to
guess an API key.
"""

from __future__ import annotations

import base64
import hmac
import json
import secrets
from enum import StrEnum
from functools import partial

from attrs import field, frozen

from hermes_trio.keys import ActiveKeys, Anonymous, Principal

# Begins like an API key, so that the redaction of log lines masks tokens too.
_PREFIX = "ht-"
_EXPIRY_DIGITS = 11


class Purpose(StrEnum):
    """What a token is for. One issued for another purpose is invalid."""

    STREAM_TICKET = "ticket"  # read the event stream of one run
    PAGE_SESSION = "page"  # use the API from the web page, as a cookie


class InvalidToken(Exception):
    """The token was not issued by this server, or not for this."""


class ExpiredToken(InvalidToken):
    """The token was valid until its expiry."""


@frozen
class TokenSigner:
    """Issues and verifies the tokens of one purpose."""

    purpose: Purpose
    _secret: bytes = field(repr=False)
    _keys: ActiveKeys
    # used for unknown keys, so that timing does not reveal which ones exist
    _unknown_key: bytes = field(
        init=False, repr=False, eq=False, factory=partial(secrets.token_bytes, 32)
    )

    @property
    def server_id(self) -> str:
        """Eight hex digits that tell servers on one host apart. They reveal nothing of the secret."""
        return _digest(self._secret, "server id").hex()[:8]

    def issue(self, principal: Principal, expires_at: int, *scope: str) -> str:
        """Return a token that is valid for ``scope`` until ``expires_at``, in seconds since the epoch."""
        signature = self._sign(principal.key_name, expires_at, scope)
        return f"{_PREFIX}{self.purpose}-{expires_at}.{signature}.{principal.key_name}"

    def verify(self, token: str, now: float, *scope: str) -> Principal:
        """Return the principal that a token was issued to.

        Raises:
            ExpiredToken: it was valid, and is no longer.
            InvalidToken: it was not issued here, for this purpose and for this scope, or its key
                has been replaced or removed.
        """
        prefix = f"{_PREFIX}{self.purpose}-"
        expiry, _, rest = token.removeprefix(prefix).partition(".")
        name = rest.partition(".")[2]
        is_expiry = expiry.isascii() and expiry.isdigit() and len(expiry) <= _EXPIRY_DIGITS
        expires_at = int(expiry) if is_expiry else 0
        # The whole token is compared, so that there is only one form of it.
        expected = f"{prefix}{expires_at}.{self._sign(name, expires_at, scope)}.{name}"
        if not hmac.compare_digest(_bytes(expected), _bytes(token)):
            raise InvalidToken
        if now >= expires_at:
            raise ExpiredToken
        principal = self._keys.keyring.find(name)
        if isinstance(principal, Anonymous):
            raise InvalidToken  # its role is gone
        return principal

    def _sign(self, name: str, expires_at: int, scope: tuple[str, ...]) -> str:
        parts = self._keys.keyring.signing_parts(name)
        signing_key = _digest(self._secret, "sign", self.purpose, name, *parts)
        signature = _digest(
            signing_key if parts else self._unknown_key, name, str(expires_at), *scope
        )
        return base64.urlsafe_b64encode(signature).rstrip(b"=").decode("ascii")


def _digest(key: bytes, *parts: str) -> bytes:
    # JSON keeps the parts apart: no two lists of texts have the same form.
    return hmac.digest(key, json.dumps(parts).encode("ascii"), "sha256")


def _bytes(text: str) -> bytes:
    # Any text a query or header can hold must be comparable, lone surrogates too.
    return text.encode("utf-8", "surrogatepass")
