"""Whose records are meant, as one name that stores can use as a key."""

from __future__ import annotations

_BETWEEN = "/"  # no name of a principal or of a profile has one, so no two pairs share a scope


def scope_of(principal: str, profile: str) -> str:
    """The owner of records: the principal alone, or, below the prefix of a profile, both."""
    return f"{principal}{_BETWEEN}{profile}" if profile else principal
