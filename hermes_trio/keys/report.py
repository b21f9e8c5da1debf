"""Warnings about keys that are accepted, but are probably not what the operator meant."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import structlog

from hermes_trio.core.access import DEFAULT_PROFILE_NAME
from hermes_trio.keys.keyring import Keyring, find_weak_keys
from hermes_trio.keys.strength import KEY_ADVICE

log = structlog.get_logger(__name__)


def log_doubtful_keys(keyring: Keyring, profiles: Collection[str]) -> None:
    """Log a warning for each key that is easy to guess or names a profile that the server does not have.

    Args:
        keyring: the keys, and the issuer of tokens.
        profiles: the names of the profiles of the settings.
    """
    for principal in find_weak_keys(keyring.keys):
        log.warning("a key is easy to guess", principal=principal, advice=KEY_ADVICE)
    for entry, profile in find_unknown_profiles(keyring, profiles):
        log.warning("the key file names an unknown profile", entry=entry, profile=profile)


def find_unknown_profiles(keyring: Keyring, profiles: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield each entry of the key file that names a profile the server does not have, with that name."""
    roles = keyring.oidc.roles if keyring.oidc is not None else ()
    entries = [(f"keys.{named.name}", named.access) for named in keyring.keys]
    entries += [(f"oidc.roles.{role}", access) for role, access in roles]
    for entry, access in entries:
        for profile in sorted(access.profiles or ()):
            if profile != DEFAULT_PROFILE_NAME and profile not in profiles:
                yield entry, profile
