"""Validators for the values of settings. Each raises :class:`InvalidValueError`."""

from __future__ import annotations

import math
import re
from typing import Any
from zoneinfo import ZoneInfo

from attrs import Attribute, frozen

_MAX_QUOTED = 80
_AGENT = re.compile(r"[\w.-]+(:\w+(\.\w+)*)?")
_BASE_URL = re.compile(r"https?://[^\s/?#@]+(/[^\s?#@]*)?")
_ORIGIN = re.compile(r"\*|null|[A-Za-z][A-Za-z0-9+.-]*://[^\s/,]+")
_POLICY = re.compile(r"interrupt|detach|grace:(?P<seconds>\d{1,5}(\.\d+)?)")
_MAX_GRACE_SECONDS = 86_400


class InvalidValueError(ValueError):
    """A value that ``Settings`` or ``Profile`` rejects.

    It names the option, but not the source of the value.
    """

    def __init__(self, option: str, complaint: str) -> None:
        super().__init__(f"{option}: {complaint}")
        self.option = option
        self.complaint = complaint


def quote_value(value: object) -> str:
    """Quote, escape and truncate a value for a one-line message."""
    text = repr(str(value) if not isinstance(value, (str, int, float, list, dict)) else value)
    return text if len(text) <= _MAX_QUOTED else f"{text[:_MAX_QUOTED]}..."


@frozen
class Between:
    """Accept a whole number within both bounds."""

    low: int
    high: int

    def __call__(self, _settings: object, field: Attribute[Any], value: int) -> None:
        """Reject a number outside the bounds."""
        if not self.low <= value <= self.high:
            complaint = f"{quote_value(value)} is not between {self.low} and {self.high}"
            raise InvalidValueError(field.name, complaint)


@frozen
class AtLeast:
    """Accept a finite number that is not below the bound."""

    low: float

    def __call__(self, _settings: object, field: Attribute[Any], value: float) -> None:
        """Reject smaller numbers, infinity and not-a-number."""
        _require_finite(field, value)
        if value < self.low:
            raise InvalidValueError(field.name, f"{quote_value(value)} is less than {self.low:g}")


@frozen
class OneOf:
    """Accept one of a few words or numbers."""

    choices: tuple[str | int, ...]

    def __call__(self, _settings: object, field: Attribute[Any], value: str | int) -> None:
        """Reject any other value, and list the known ones."""
        if value not in self.choices:
            known = ", ".join(map(str, self.choices))
            complaint = f"{quote_value(value)} is not one of {known}"
            raise InvalidValueError(field.name, complaint)


def validate_positive(_settings: object, field: Attribute[Any], value: float) -> None:
    """Reject zero as well: the value is a timeout that would expire at once or become a busy loop."""
    _require_finite(field, value)
    if value <= 0:
        raise InvalidValueError(field.name, f"{quote_value(value)} is not greater than 0")


def _require_finite(field: Attribute[Any], value: float) -> None:
    if not math.isfinite(value):
        raise InvalidValueError(field.name, f"{quote_value(value)} is not a finite number")


def validate_host(_settings: object, field: Attribute[Any], value: str) -> None:
    """Reject what is neither an IP address nor a host name, above all ``host:port`` and URLs."""
    if not (_is_ip_address(value) or re.fullmatch(r"[\w.-]+", value)):
        raise InvalidValueError(
            field.name, f"{quote_value(value)} is not a host name or an IP address"
        )


def _is_ip_address(host: str) -> bool:
    # Imported here: only a server that starts needs it, the help text does not.
    import ipaddress  # noqa: PLC0415

    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def validate_root_path(_settings: object, field: Attribute[Any], value: str) -> None:
    """Reject what is neither empty nor a path without a final slash."""
    if value and not re.fullmatch(r"(/[\w.~-]+)+", value, re.ASCII):
        raise InvalidValueError(
            field.name, f"{quote_value(value)} is not a path such as /agents, without a final slash"
        )


def validate_text(_settings: object, field: Attribute[Any], value: str) -> None:
    """Reject a string that is empty or would break a line."""
    if not value.strip() or not value.isprintable():
        raise InvalidValueError(field.name, f"{quote_value(value)} is empty or not printable")


def validate_texts(settings: object, field: Attribute[Any], value: tuple[str, ...]) -> None:
    """Reject a list with a string that is empty or would break a line."""
    for text in value:
        validate_text(settings, field, text)


def validate_agent(_settings: object, field: Attribute[Any], value: str) -> None:
    """Reject what is neither a name nor ``module:factory``.

    An empty value is valid: a default is chosen later.
    """
    if value and not _AGENT.fullmatch(value):
        raise InvalidValueError(
            field.name, f"{quote_value(value)} is neither a name nor module:factory"
        )


def validate_base_url(_settings: object, field: Attribute[Any], value: str) -> None:
    """Reject what is not the base URL of a server.

    The value is not repeated: it may contain a key.
    """
    if value and not _BASE_URL.fullmatch(value):
        complaint = (
            "the value is not a URL such as https://llm.example.org/v1, without user, key or query"
        )
        raise InvalidValueError(field.name, complaint)


def validate_origins(_settings: object, field: Attribute[Any], value: tuple[str, ...]) -> None:
    """Reject what no browser sends as an Origin, such as one with a path or a trailing slash."""
    for origin in value:
        if not _ORIGIN.fullmatch(origin):
            complaint = f"{quote_value(origin)} is not an origin such as https://chat.example.org"
            raise InvalidValueError(field.name, complaint)


def validate_allowed_hosts(
    _settings: object, field: Attribute[Any], value: tuple[str, ...]
) -> None:
    """Reject what no ``Host`` header can match, above all URLs and names with a port."""
    for host in value:
        name = "x" if host == "*" else host.removeprefix("*.")
        if not (_is_ip_address(host.strip("[]")) or re.fullmatch(r"[\w.-]+", name)):
            complaint = (
                f"{quote_value(host)} is not a host name such as chat.example.org or *.example.org"
            )
            raise InvalidValueError(field.name, complaint)


def validate_disconnect_policy(_settings: object, field: Attribute[Any], value: str) -> None:
    """Reject what is not a disconnect policy."""
    policy = _POLICY.fullmatch(value)
    if policy is None:
        complaint = f"{quote_value(value)} is not interrupt, grace:SECONDS or detach"
        raise InvalidValueError(field.name, complaint)
    if float(policy["seconds"] or 0) > _MAX_GRACE_SECONDS:
        raise InvalidValueError(field.name, f"{quote_value(value)} is more than a day")


def validate_timezone(_settings: object, field: Attribute[Any], value: str) -> None:
    """Reject a name that the time zone database does not have."""
    try:
        ZoneInfo(value or "UTC")
    except (KeyError, OSError, ValueError):
        complaint = f"{quote_value(value)} is not a time zone such as Europe/Berlin"
        raise InvalidValueError(field.name, complaint) from None


def validate_gateway_url(_settings: object, field: Attribute[Any], value: str) -> None:
    """Accept the address of a gateway, or nothing."""
    if not value:
        return
    # Imported here to keep --help fast: the module compiles many patterns.
    from hermes_trio.core.gateway import normalize_gateway_url  # noqa: PLC0415

    try:
        normalize_gateway_url(value)
    except ValueError as error:
        raise InvalidValueError(field.name, str(error)) from None
