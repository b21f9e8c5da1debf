"""Who calls, and what the caller may do: principals, scopes and quotas."""

from __future__ import annotations

import math

from attrs import Factory, field, frozen

DEFAULT_PROFILE_NAME = "default"
"""How a scope names the server's own agent, which is no profile."""

READ_ONLY = ":read"
"""What follows the name of a route group in a scope that admits only requests that change nothing."""

ROUTE_GROUPS = (
    "approvals", "chat", "conversations", "health", "jobs", "metrics", "responses", "runs", "sessions", "settings", "other",
)  # fmt: skip
"""The groups of routes that a scope can name; ``other`` are those that another program has added."""


@frozen
class Quota:
    """The limits of one principal. Where there is a 0, the server's own limit holds."""

    runs: int = 0  # at the same time
    runs_per_minute: int = 0
    requests: int = 0  # open at the same time
    stored_bytes: int = 0


NO_QUOTA = Quota()


@frozen
class Access:
    """What a key allows. None means everything, an empty set nothing."""

    routes: frozenset[str] | None = None  # route groups, each with or without READ_ONLY
    profiles: frozenset[str] | None = None  # with DEFAULT_PROFILE_NAME for the server's own agent
    tools: frozenset[str] | None = None
    is_admin: bool = False  # may see the records of all principals
    expires_at: float = math.inf  # seconds since the epoch
    quota: Quota = NO_QUOTA

    def allows_route(self, group: str, is_read: bool) -> bool:
        """Return whether a request to a group of routes is allowed."""
        if self.routes is None:
            return True
        return group in self.routes or (is_read and f"{group}{READ_ONLY}" in self.routes)

    def allows_profile(self, profile: str) -> bool:
        """Return whether the agent of a profile may be used; "" is the server's own."""
        return self.profiles is None or (profile or DEFAULT_PROFILE_NAME) in self.profiles


FULL_ACCESS = Access()


@frozen
class Principal:
    """The owner of a key. Records of one principal are invisible to the others."""

    name: str
    access: Access = FULL_ACCESS
    # which of its keys it used; tokens that stand for the key are bound to it
    key_name: str = field(default=Factory(lambda self: self.name, takes_self=True), eq=False)
