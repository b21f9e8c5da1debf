"""``hermes-trio keys``: add, list and revoke the keys of a key file."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from attrs import asdict, frozen

from hermes_trio.core.errors import ConfigurationError
from hermes_trio.keys import NamedKey, add_key, read_key_file
from hermes_trio.settings import Settings

RELOAD_HINT = "A running server reads the file again on SIGHUP: systemctl reload, or kill -HUP PID"

_DURATION = re.compile(r"([1-9][0-9]{0,4})([hdw])")
_UNITS = {"h": "hours", "d": "days", "w": "weeks"}
_HEADINGS = ("name", "principal", "expires", "routes", "profiles", "tools", "limits")
_ANY = "all"


@frozen
class KeyFlags:
    """What a new key allows, as the command line says it."""

    principal: str = ""
    routes: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    no_tools: bool = False
    admin: bool = False
    expires: str = ""
    max_runs: int | None = None
    max_runs_per_minute: int | None = None
    max_requests: int | None = None
    max_stored_bytes: int | None = None


def find_key_file(settings: Settings) -> Path:
    """Return the key file of a server.

    Raises:
        ConfigurationError: the settings name none.
    """
    if settings.api_key_file is None:
        raise ConfigurationError("api_key_file is not set: pass --file, and name that file there")
    return settings.api_key_file


def add(path: Path, name: str, flags: KeyFlags) -> str:
    """Add a key to a file and return it. It is stored nowhere else.

    Raises:
        ConfigurationError: an option has a wrong value, or the file cannot be changed.
    """
    lists = {"routes": flags.routes, "profiles": flags.profiles, "tools": flags.tools}
    options: dict[str, Any] = {each: list(value) for each, value in lists.items() if value}
    if flags.no_tools:
        if flags.tools:
            raise ConfigurationError("--no-tools and --tool exclude each other")
        options["tools"] = []
    if flags.principal:
        options["principal"] = flags.principal
    if flags.admin:
        options["admin"] = True
    if flags.expires:
        options["expires"] = parse_expiry(flags.expires, datetime.now(UTC))
    for limit in ("max_runs", "max_runs_per_minute", "max_requests", "max_stored_bytes"):
        if (value := getattr(flags, limit)) is not None:
            options[limit] = value
    return add_key(path, name, options)


def parse_expiry(text: str, now: datetime) -> datetime:
    """Return the time that a duration or a date means.

    Raises:
        ConfigurationError: it is neither, or not in the future.
    """
    if found := _DURATION.fullmatch(text):
        return (now + timedelta(**{_UNITS[found[2]]: int(found[1])})).replace(microsecond=0)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(
            f"expires: {text!r} is neither a time such as 12h, 30d or 8w nor a date such as 2027-01-31"
        ) from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    if moment <= now:
        raise ConfigurationError(f"expires: {text!r} is not in the future")
    return moment


def describe(path: Path) -> list[dict[str, Any]]:
    """Return what a file says about each key, without the keys.

    Raises:
        KeysError: the file cannot be read.
    """
    return [_describe(named) for named in read_key_file(path)]


def _describe(named: NamedKey) -> dict[str, Any]:
    access = named.access
    expires_at = None if math.isinf(access.expires_at) else access.expires_at
    return {
        "name": named.name,
        "principal": named.principal,
        "stored": "plain" if named.key else "hash",
        "admin": access.is_admin,
        "expires": None if expires_at is None else _format_time(expires_at),
        "expired": access.expires_at <= time.time(),
        **{
            each: None if allowed is None else sorted(allowed)
            for each, allowed in (
                ("routes", access.routes),
                ("profiles", access.profiles),
                ("tools", access.tools),
            )
        },
        "limits": {limit: value for limit, value in asdict(access.quota).items() if value},
    }


def format_json(keys: Sequence[dict[str, Any]]) -> str:
    """Return the keys as JSON."""
    return json.dumps(keys, indent=2)


def format_table(keys: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of a table of keys."""
    rows = [_HEADINGS, *(tuple(_cells(key)) for key in keys)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    for row in rows:
        yield "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()


def _cells(key: dict[str, Any]) -> Iterator[str]:
    yield key["name"]
    yield f"{key['principal']}{' (admin)' if key['admin'] else ''}"
    yield f"{key['expires'] or 'never'}{' (expired)' if key['expired'] else ''}"
    for scope in ("routes", "profiles", "tools"):
        yield _ANY if key[scope] is None else ",".join(key[scope]) or "none"
    yield ",".join(f"{limit}={value}" for limit, value in key["limits"].items()) or "none"


def _format_time(seconds: float) -> str:
    moment = datetime.fromtimestamp(seconds, UTC)
    return moment.isoformat(timespec="minutes").replace("+00:00", "Z")
