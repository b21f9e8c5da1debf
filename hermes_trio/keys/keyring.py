"""The keys that a server accepts. Only their hashes are compared.

A key is random and long, so a fast hash is enough: there is nothing to gain from trying likely
words. See decision 0050.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable

from attrs import Factory, define, field, frozen

from hermes_trio.core.access import FULL_ACCESS, Access, Principal
from hermes_trio.keys.errors import KeysError
from hermes_trio.keys.oidc_settings import OIDC_PREFIX, OidcSettings
from hermes_trio.keys.strength import KEY_ADVICE, MIN_KEY_BITS, estimate_bits


@frozen
class Anonymous:
    """The caller whose token is not a key of this server."""


ANONYMOUS = Anonymous()


def hash_key(key: str) -> bytes:
    """Return the hash under which a key is compared and stored."""
    # Any text a header can hold must have one, lone surrogates too.
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


@frozen
class NamedKey:
    """A key, the principal it belongs to, and what it allows."""

    principal: str
    key: str = field(default="", repr=False)  # "" if only its hash is known
    access: Access = FULL_ACCESS
    name: str = field(default=Factory(lambda self: self.principal, takes_self=True))
    digest: bytes = field(repr=False)

    @digest.default
    def _hash(self) -> bytes:
        if not self.key:
            raise ValueError("a key needs its text or its hash")
        return hash_key(self.key)

    @property
    def owner(self) -> Principal:
        """The principal, with what this key allows it."""
        return Principal(self.principal, self.access, self.name)


@frozen
class Keyring:
    """All keys that the server accepts, and the issuer whose tokens it accepts, if there is one."""

    keys: tuple[NamedKey, ...]
    oidc: OidcSettings | None = None

    def __attrs_post_init__(self) -> None:
        """Refuse a key that two principals share: each would see the other's records.

        Keys of one name, and equal keys, must allow the same.
        """
        by_digest: dict[bytes, NamedKey] = {}
        by_name: dict[str, NamedKey] = {}
        for named in self.keys:
            same = by_digest.setdefault(named.digest, named)
            if same.principal != named.principal:
                raise KeysError(
                    f"keys: {same.principal} and {named.principal} share a key; each needs its own"
                )
            for other in (same, by_name.setdefault(named.name, named)):
                if other.owner != named.owner:
                    raise KeysError(
                        f"keys: {other.name} and {named.name} are one key with different rules"
                    )

    def identify(self, token: str) -> Principal | Anonymous:
        """Return the owner of a key, also when the key has expired.

        Compares every key, in constant time, so that timing reveals nothing.
        """
        offered = hash_key(token)
        found: Principal | Anonymous = ANONYMOUS
        for named in self.keys:
            if hmac.compare_digest(named.digest, offered):
                found = named.owner
        return found

    def find(self, name: str) -> Principal | Anonymous:
        """Return the owner of the key with a name, or the principal of a token of the issuer."""
        if self.oidc is not None and name.startswith(OIDC_PREFIX):
            return self.oidc.restore(name) or ANONYMOUS
        for named in self.keys:
            if named.name == name:
                return named.owner
        return ANONYMOUS

    def find_access(self, principal: str, now: float) -> Access | None:
        """Return what the first key of a principal allows that has not expired; None without one."""
        for named in self.keys:
            if named.principal == principal and now < named.access.expires_at:
                return named.access
        return None

    def signing_parts(self, name: str) -> tuple[str, ...]:
        """Return what a token that stands for a key depends on; nothing for an unknown key."""
        if self.oidc is not None and name.startswith(OIDC_PREFIX):
            return self.oidc.issuer, self.oidc.audience
        keys = [named for named in self.keys if named.name == name]
        owners = sorted({named.principal for named in keys})
        return (*owners, *sorted(named.digest.hex() for named in keys))

    @property
    def is_empty(self) -> bool:
        """Whether nobody can have a credential."""
        return not self.keys and self.oidc is None

    def may_have(self, principal: str) -> bool:
        """Return whether there can be a principal of this name."""
        is_from_token = self.oidc is not None and principal.startswith(OIDC_PREFIX)
        return is_from_token or any(named.principal == principal for named in self.keys)

    @property
    def principal_count(self) -> int:
        """How many principals share the server; at least two if they are not known beforehand."""
        known = len({named.principal for named in self.keys})
        return known if self.oidc is None else max(2, known + 1)


@define(eq=False)
class ActiveKeys:
    """The keys that are in force. A reload replaces the ring."""

    keyring: Keyring


def refuse_weak_keys(keys: Iterable[NamedKey]) -> None:
    """Refuse keys that are easy to guess, for a server that others can reach.

    Raises:
        KeysError: there is one.
    """
    for principal in find_weak_keys(keys):
        raise KeysError(
            f"keys: the key of {principal} is too easy to guess for a server that others can reach; {KEY_ADVICE}"
        )


def find_weak_keys(keys: Iterable[NamedKey]) -> list[str]:
    """Return the principals whose keys are easy to guess. A hash does not tell."""
    return [
        named.principal for named in keys if named.key and estimate_bits(named.key) < MIN_KEY_BITS
    ]
