"""The table ``[oidc]`` of the key file: whose tokens are accepted, and what their roles allow."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from urllib.parse import urlsplit

from attrs import evolve, frozen

from hermes_trio.core.access import FULL_ACCESS, Access, Principal
from hermes_trio.keys.loopback import is_loopback
from hermes_trio.keys.options import ACCESS_OPTIONS, TableOptions, read_access

OIDC_PREFIX = "oidc:"
"""How the names of principals from tokens begin. No key of a file can have such a name."""
DEFAULT_ROLE = "default"
"""The role of tokens that name no other one."""
ALGORITHMS = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512"}
)
"""What a token may be signed with: with a private key, and not with a secret that verifiers share."""

_OPTIONS = frozenset(
    {"issuer", "audience", "algorithms", "principal_claim", "roles_claim", "jwks_url", "roles"}
)


@frozen
class OidcSettings:
    """An issuer of tokens, and what its tokens allow."""

    issuer: str
    audience: str
    algorithms: tuple[str, ...] = ("RS256", "ES256")
    principal_claim: str = "sub"
    roles_claim: str = "roles"  # with dots between the names of nested objects
    jwks_url: str = ""  # "" for the one in the issuer's metadata
    roles: tuple[tuple[str, Access], ...] = ((DEFAULT_ROLE, FULL_ACCESS),)

    def find_role(self, named: AbstractSet[str]) -> str | None:
        """Return the first role, in the order of the file, that a token names.

        DEFAULT_ROLE if it names none, or None if there is no such role.
        """
        for role, _ in self.roles:
            if role in named and role != DEFAULT_ROLE:
                return role
        return DEFAULT_ROLE if DEFAULT_ROLE in dict(self.roles) else None

    def principal(self, name: str, role: str, expires_at: int) -> Principal:
        """Return the principal of a token with one of the roles."""
        access = evolve(dict(self.roles)[role], expires_at=float(expires_at))
        return Principal(OIDC_PREFIX + name, access, _encode(name, role, expires_at))

    def restore(self, key_name: str) -> Principal | None:
        """Return the principal that ``principal`` has made, by its key name; None if its role is gone.

        The caller has verified that the name is ours.
        """
        name, role, expires_at = _decode(key_name)
        return self.principal(name, role, expires_at) if role in dict(self.roles) else None


def _encode(name: str, role: str, expires_at: int) -> str:
    parts = json.dumps([name, role, expires_at]).encode("ascii")
    return OIDC_PREFIX + base64.urlsafe_b64encode(parts).rstrip(b"=").decode("ascii")


def _decode(key_name: str) -> tuple[str, str, int]:
    text = key_name.removeprefix(OIDC_PREFIX)
    name, role, expires_at = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    return name, role, expires_at


# -- the table of the file --


def read_oidc(options: TableOptions) -> OidcSettings:
    """Return what the table says.

    Raises:
        KeysError: an option is missing, unknown, or has a value that it cannot have.
    """
    options.refuse_unknown(_OPTIONS)
    issuer = _read_address(options, "issuer")
    if not (audience := options.text("audience")):
        raise options.error("audience", "is missing")
    settings = OidcSettings(issuer, audience)
    if "jwks_url" in options.values:
        settings = evolve(settings, jwks_url=_read_address(options, "jwks_url"))
    if "roles" in options.values:
        settings = evolve(settings, roles=tuple(_read_roles(options)))
    return evolve(
        settings,
        algorithms=_read_algorithms(options) or settings.algorithms,
        principal_claim=options.text("principal_claim") or settings.principal_claim,
        roles_claim=options.text("roles_claim") or settings.roles_claim,
    )


def _read_address(options: TableOptions, option: str) -> str:
    """Return a URL that is safe to fetch keys from: over TLS, or from this machine."""
    url = options.text(option)
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    host = parts.hostname or ""
    if not host or not (parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host))):
        raise options.error(option, "must be an address that begins with https://")
    return url


def _read_algorithms(options: TableOptions) -> tuple[str, ...]:
    """Return the listed algorithms, none without a list."""
    algorithms = options.texts("algorithms")
    if algorithms is None:
        return ()
    if not algorithms:
        raise options.error("algorithms", "needs at least one")
    for unknown in sorted(algorithms - ALGORITHMS):
        known = ", ".join(sorted(ALGORITHMS))
        raise options.error("algorithms", f"has {unknown!r}; known: {known}")
    return tuple(sorted(algorithms))


def _read_roles(options: TableOptions) -> Iterator[tuple[str, Access]]:
    roles = options.values["roles"]
    if not isinstance(roles, Mapping):
        raise options.error("roles", "must be tables")
    for role, entry in roles.items():
        if not isinstance(entry, Mapping):
            raise options.error(f"roles.{role}", "must be a table")
        allowed = TableOptions(f"{options.where}.roles.{role}", entry)
        allowed.refuse_unknown(ACCESS_OPTIONS)
        yield role, read_access(allowed)
