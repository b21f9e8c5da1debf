"""Bearer tokens of an OpenID Connect issuer: who they stand for, and which role.

A token is a JSON Web Token that the issuer has signed. The issuer's keys are fetched when the first
token arrives, and again when a token names a key that is not among them. Needs the extra ``oidc``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import quote, urlsplit

import httpx2
import structlog
import trio
from joserfc import jwt
from joserfc.errors import ExpiredTokenError, JoseError
from joserfc.jwk import ECKey, RSAKey
from joserfc.jws import extract_compact

from hermes_trio.core.access import Principal
from hermes_trio.core.errors import SERVER_ERROR, ApiError
from hermes_trio.keys import ActiveKeys, OidcSettings

log = structlog.get_logger(__name__)

MAX_TOKEN_CHARS = 8_192
MAX_PRINCIPAL_CHARS = 128
LEEWAY_SECONDS = 30  # that the clocks of the issuer and of this server may differ
FRESH_SECONDS = 3_600.0  # after which the keys are fetched again
RETRY_SECONDS = 30.0  # between two fetches, whatever tokens say
FETCH_SECONDS = 10.0
MAX_DOCUMENT_BYTES = 1_000_000
_DISCOVERY = "/.well-known/openid-configuration"
_KINDS: Mapping[str, type[RSAKey | ECKey]] = {"RSA": RSAKey, "EC": ECKey}

FetchJson = Callable[[str], Awaitable[object]]


class IssuerError(Exception):
    """The issuer does not answer as it should. The text is one line."""


async def fetch_json(url: str) -> object:
    """Fetch a JSON document.

    Raises:
        IssuerError: it cannot be fetched, or is not JSON.
    """
    try:
        async with (
            httpx2.AsyncClient(timeout=FETCH_SECONDS) as client,
            client.stream("GET", url) as response,
        ):
            if response.status_code != httpx2.codes.OK:
                raise IssuerError(f"{url} answers with {response.status_code}")
            body = b""
            async for part in response.aiter_bytes():
                body += part
                if len(body) > MAX_DOCUMENT_BYTES:
                    raise IssuerError(f"{url} is too large")
            return _parse(body, url)
    except httpx2.HTTPError as error:
        raise IssuerError(f"{url} cannot be fetched: {type(error).__name__}") from None


class IssuerKeys:
    """The public keys of an issuer, fetched when they are needed.

    Fetches are rare, whatever tokens arrive: at most one in ``RETRY_SECONDS``. Keys that could not
    be fetched again stay in use, and nobody waits for others to be fetched who has one of them.
    """

    def __init__(
        self,
        settings: OidcSettings,
        fetch: FetchJson = fetch_json,
        clock: Callable[[], float] = trio.current_time,
    ) -> None:
        self._settings, self._fetch, self._clock = settings, fetch, clock
        self._keys: Mapping[str | None, RSAKey | ECKey] = {}
        self._fetched_at = self._tried_at = -float("inf")
        self._fetching = trio.Lock()

    async def find(self, key_id: str | None) -> RSAKey | ECKey | None:
        """Return the key with an id, or None. Without an id, the only key, if there is one.

        Raises:
            IssuerError: the keys were never fetched, and cannot be fetched now.
        """
        if self._is_due(key_id) or (self._lookup(key_id) is None and self._fetching.locked()):
            async with self._fetching:  # the others find what the first one has fetched
                if self._is_due(key_id):
                    await self._refresh()
        if not self._keys:
            raise IssuerError("the issuer's keys have not been fetched")
        return self._lookup(key_id)

    def _lookup(self, key_id: str | None) -> RSAKey | ECKey | None:
        if key_id is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(key_id) if key_id is not None else None

    def _is_due(self, key_id: str | None) -> bool:
        """Return whether a key may be fetched, and needs to be."""
        now = self._clock()
        is_needed = self._lookup(key_id) is None or now - self._fetched_at > FRESH_SECONDS
        return is_needed and now - self._tried_at >= RETRY_SECONDS

    async def _refresh(self) -> None:
        self._tried_at = self._clock()
        # Clients that name a key and leave at once must not keep it from being fetched.
        with trio.move_on_after(FETCH_SECONDS, shield=True) as fetching:
            try:
                self._keys = _read_keys(await self._fetch(await self._find_url()))
                self._fetched_at = self._clock()
            except IssuerError as error:
                log.error("cannot fetch the keys of the issuer", error=str(error))
        if fetching.cancelled_caught:
            log.error("cannot fetch the keys of the issuer", error="it does not answer")

    async def _find_url(self) -> str:
        settings = self._settings
        if settings.jwks_url:
            return settings.jwks_url
        document = await self._fetch(settings.issuer.rstrip("/") + _DISCOVERY)
        if not isinstance(document, dict) or document.get("issuer") != settings.issuer:
            raise IssuerError(f"{settings.issuer}{_DISCOVERY} is about another issuer")
        url = document.get("jwks_uri")
        # An issuer that is reached over TLS must not send us to a place that is not.
        if not isinstance(url, str) or urlsplit(url).scheme != urlsplit(settings.issuer).scheme:
            raise IssuerError(f"{settings.issuer}{_DISCOVERY} has no usable jwks_uri")
        return url


class OidcVerifier:
    """Turns the tokens of the issuer in the key file into principals.

    Args:
        keys: the key file in force, with the settings of the issuer.
        fetch: fetches a JSON document.
        wall_clock: for the expiry of tokens, in seconds since the epoch.
    """

    def __init__(
        self,
        keys: ActiveKeys,
        fetch: FetchJson = fetch_json,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._active, self._fetch, self._wall_clock = keys, fetch, wall_clock
        self._settings: OidcSettings | None = None
        self._issuer_keys: IssuerKeys | None = None

    async def identify(self, token: str) -> Principal | None:
        """Return the principal of a token; None if it is none, or if no issuer is configured.

        Raises:
            ApiError: 401 if the token is not valid; 403 if it names no role; 503 if the keys of the
                issuer cannot be fetched.
        """
        settings = self._active.keyring.oidc
        if settings is None or token.count(".") != 2 or len(token) > MAX_TOKEN_CHARS:
            return None
        claims = await self._verify(token, settings)
        name = _principal_name(claims.get(settings.principal_claim))
        if name is None:
            raise _invalid(f"its claim '{settings.principal_claim}' names no principal")
        role = settings.find_role(_texts(_claim(claims, settings.roles_claim)))
        if role is None:
            log.warning("a token has no role", principal=name)
            message = "This token has none of the roles that may use this server."
            headers = {"WWW-Authenticate": 'Bearer error="insufficient_scope"'}
            raise ApiError(403, message, code="insufficient_scope", headers=headers)
        return settings.principal(name, role, int(claims["exp"]) + LEEWAY_SECONDS)

    async def _verify(self, token: str, settings: OidcSettings) -> Mapping[str, Any]:
        try:
            header = extract_compact(token.encode("utf-8", "surrogatepass")).headers()
        except (JoseError, ValueError):
            raise _invalid("it is not a signed JSON Web Token") from None
        key_id = header.get("kid")
        try:
            key = await self._keys_of(settings).find(key_id if isinstance(key_id, str) else None)
        except IssuerError:
            message = "The keys of the token's issuer cannot be fetched. Try again shortly."
            headers = {"Retry-After": str(int(RETRY_SECONDS))}
            raise ApiError(
                503, message, SERVER_ERROR, code="issuer_unavailable", headers=headers
            ) from None
        if key is None or key.alg not in (None, header.get("alg")):
            raise _invalid("the issuer has no such key")
        rules = jwt.JWTClaimsRegistry(
            now=lambda: int(self._wall_clock()),
            leeway=LEEWAY_SECONDS,
            iss={"essential": True, "value": settings.issuer},
            aud={"essential": True, "value": settings.audience},
            exp={"essential": True},
        )
        try:
            decoded = jwt.decode(token, key, algorithms=settings.algorithms)
            rules.validate(decoded.claims)
        except ExpiredTokenError:
            raise _invalid("it has expired", code="token_expired") from None
        except (JoseError, ValueError, TypeError) as error:
            # The kind of error says what is wrong, and nothing that the token holds.
            raise _invalid(_describe(error)) from None
        return dict(decoded.claims)

    def _keys_of(self, settings: OidcSettings) -> IssuerKeys:
        """Return the keys of the issuer. A change of the key file begins anew."""
        if self._issuer_keys is None or self._settings != settings:
            self._settings, self._issuer_keys = settings, IssuerKeys(settings, self._fetch)
        return self._issuer_keys


def _read_keys(document: object) -> Mapping[str | None, RSAKey | ECKey]:
    """Return the keys of a set that can verify signatures, by id. Others are left out.

    Raises:
        IssuerError: it is no key set, or has no such key.
    """
    entries = document.get("keys") if isinstance(document, dict) else None
    found: dict[str | None, RSAKey | ECKey] = {}
    for entry in entries if isinstance(entries, list) else ():
        if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
            continue
        if (kind := _KINDS.get(str(entry.get("kty")))) is not None:
            with suppress(JoseError, ValueError, TypeError, KeyError):  # a damaged key
                found[entry.get("kid")] = kind.import_key(entry)
    if not found:
        raise IssuerError("the issuer has published no key that can verify a signature")
    return found


def _parse(body: bytes, url: str) -> object:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise IssuerError(f"{url} is not JSON") from None


def _principal_name(value: object) -> str | None:
    """Return the name of a principal. Names have no slash, which separates them from profiles."""
    if not isinstance(value, str) or not value:
        return None
    name = quote(value, safe="@+|:~!$,=", errors="replace")
    return name if len(name) <= MAX_PRINCIPAL_CHARS else None


def _claim(claims: Mapping[str, Any], path: str) -> object:
    """Return a claim, or one inside others, as ``realm_access.roles``. The whole name comes first."""
    if path in claims:
        return claims[path]
    found: object = claims
    for name in path.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _texts(value: object) -> frozenset[str]:
    """Return the texts of a list, or the words of a text, as in the claim ``scope``."""
    if isinstance(value, str):
        return frozenset(value.split())
    return (
        frozenset(each for each in value if isinstance(each, str))
        if isinstance(value, list)
        else frozenset()
    )


def _describe(error: Exception) -> str:
    claim = getattr(error, "claim", "")
    return f"its claim '{claim}' is missing or wrong" if claim else "its signature is not valid"


def _invalid(problem: str, code: str = "invalid_token") -> ApiError:
    headers = {"WWW-Authenticate": 'Bearer error="invalid_token"'}
    return ApiError(401, f"The token is not valid: {problem}.", code=code, headers=headers)
