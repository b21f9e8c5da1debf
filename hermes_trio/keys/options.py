"""The options of a table in the key file, each checked, and what they allow."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from typing import Any

from attrs import evolve, frozen

from hermes_trio.core.access import READ_ONLY, ROUTE_GROUPS, Access, Quota
from hermes_trio.keys.errors import KeysError

LISTS = ("routes", "profiles", "tools")
QUOTAS = {
    "max_runs": "runs",
    "max_runs_per_minute": "runs_per_minute",
    "max_requests": "requests",
    "max_stored_bytes": "stored_bytes",
}
ACCESS_OPTIONS = frozenset({"admin", *LISTS, *QUOTAS})


@frozen
class TableOptions:
    """A table of the file, with checked access to its options."""

    where: str
    values: Mapping[str, Any]

    def error(self, option: str, complaint: str) -> KeysError:
        """Return an error about an option. It does not repeat the value, which may be a key."""
        return KeysError(f"{self.where}.{option} {complaint}")

    def refuse_unknown(self, known: frozenset[str]) -> None:
        for unknown in sorted(self.values.keys() - known):
            raise KeysError(
                f"{self.where}: {unknown!r} is unknown; known: {', '.join(sorted(known))}"
            )

    def text(self, option: str) -> str:
        value = self.values.get(option, "")
        if not isinstance(value, str):
            raise self.error(option, "must be a text in quotes")
        return value

    def switch(self, option: str) -> bool:
        value = self.values.get(option, False)
        if not isinstance(value, bool):
            raise self.error(option, "must be true or false")
        return value

    def texts(self, option: str) -> frozenset[str] | None:
        if option not in self.values:
            return None
        value = self.values[option]
        if not (isinstance(value, list) and all(isinstance(each, str) and each for each in value)):
            raise self.error(option, "must be a list of texts")
        return frozenset(value)

    def number(self, option: str) -> int:
        value = self.values.get(option, 0)
        if option in self.values and (type(value) is not int or value < 1):
            raise self.error(option, "must be a whole number of at least 1")
        return int(value)

    def moment(self, option: str) -> float | None:
        """Return a date or time as seconds since the epoch; a day ends a key at its beginning, in UTC."""
        value = self.values.get(option)
        if value is None:
            return None
        if isinstance(value, datetime):
            return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
        if isinstance(value, date):
            return datetime.combine(value, time(), UTC).timestamp()
        raise self.error(option, "must be a date such as 2027-01-31 or 2027-01-31T12:00:00Z")


def read_access(options: TableOptions) -> Access:
    """Return what an entry allows.

    Raises:
        KeysError: an option has a value that it cannot have.
    """
    routes = options.texts("routes")
    for route in sorted(routes or ()):
        if route.removesuffix(READ_ONLY) not in ROUTE_GROUPS:
            known = ", ".join(ROUTE_GROUPS)
            raise options.error(
                "routes", f"has {route!r}; known: {known}, each also with {READ_ONLY!r} behind it"
            )
    expires_at = options.moment("expires")
    access = Access(
        routes=routes,
        profiles=options.texts("profiles"),
        tools=options.texts("tools"),
        is_admin=options.switch("admin"),
        quota=Quota(**{field: options.number(option) for option, field in QUOTAS.items()}),
    )
    return access if expires_at is None else evolve(access, expires_at=expires_at)
