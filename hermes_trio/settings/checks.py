"""The rules a value must keep, as attrs validators. Each one raises ``WrongValueError``."""

from __future__ import annotations

import math
import re
from typing import Any

from attrs import Attribute, frozen

from hermes_trio.settings.errors import WrongValueError

_LONGEST_SHOWN = 80
_AGENT = re.compile(r"[\w.-]+(:\w+(\.\w+)*)?")
_BASE_URL = re.compile(r"https?://[^\s/?#@]+(/[^\s?#@]*)?")
_ORIGIN = re.compile(r"\*|null|[A-Za-z][A-Za-z0-9+.-]*://[^\s/,]+")


def shown(value: object) -> str:
    """A value for a one-line message: quoted, escaped, and never longer than a line."""
    text = repr(str(value) if not isinstance(value, (str, int, float, list, dict)) else value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


@frozen
class Between:
    """A whole number within both bounds."""

    low: int
    high: int

    def __call__(self, _settings: object, field: Attribute[Any], value: int) -> None:
        """Refuse a number outside the bounds."""
        if not self.low <= value <= self.high:
            raise WrongValueError(field.name, f"{shown(value)} is not between {self.low} and {self.high}")


@frozen
class AtLeast:
    """A finite number that is not below the bound."""

    low: float

    def __call__(self, _settings: object, field: Attribute[Any], value: float) -> None:
        """Refuse smaller numbers, infinity and not-a-number."""
        if not (math.isfinite(value) and value >= self.low):
            raise WrongValueError(field.name, f"{shown(value)} is not a number of at least {self.low:g}")


@frozen
class OneOf:
    """One of a few words."""

    choices: tuple[str, ...]

    def __call__(self, _settings: object, field: Attribute[Any], value: str) -> None:
        """Refuse any other word, and list the known ones."""
        if value not in self.choices:
            raise WrongValueError(field.name, f"{shown(value)} is not one of {', '.join(self.choices)}")


def above_zero(_settings: object, field: Attribute[Any], value: float) -> None:
    """Refuse zero too: the value is a wait that would turn into a busy loop or an instant time-out."""
    if not (math.isfinite(value) and value > 0):
        raise WrongValueError(field.name, f"{shown(value)} is not a number above 0")


def a_host(_settings: object, field: Attribute[Any], value: str) -> None:
    """Refuse what is neither an address nor a name, above all ``host:port`` and URLs."""
    if not (_is_address(value) or re.fullmatch(r"[\w.-]+", value)):
        raise WrongValueError(field.name, f"{shown(value)} is not a host name or an address")


def a_word(_settings: object, field: Attribute[Any], value: str) -> None:
    """Refuse what is empty or would break a line."""
    if not value.strip() or not value.isprintable():
        raise WrongValueError(field.name, f"{shown(value)} is empty or not printable")


def an_agent(_settings: object, field: Attribute[Any], value: str) -> None:
    """Refuse what is neither a name nor ``module:factory``. None at all is fine: then one is chosen."""
    if value and not _AGENT.fullmatch(value):
        raise WrongValueError(field.name, f"{shown(value)} is neither a name nor module:factory")


def words(_settings: object, field: Attribute[Any], value: tuple[str, ...]) -> None:
    """Refuse a list with a text that is empty or would break a line."""
    for text in value:
        a_word(_settings, field, text)


def a_base_url(_settings: object, field: Attribute[Any], value: str) -> None:
    """Refuse what is no address of a server. It is not repeated: people put keys into addresses."""
    if value and not _BASE_URL.fullmatch(value):
        complaint = (
            "the value is not an address such as https://llm.example.org/v1, without user, key or query"
        )
        raise WrongValueError(field.name, complaint)


def origins(_settings: object, field: Attribute[Any], value: tuple[str, ...]) -> None:
    """Refuse what no browser ever sends as an Origin, such as one with a path or a final slash."""
    for origin in value:
        if not _ORIGIN.fullmatch(origin):
            raise WrongValueError(
                field.name, f"{shown(origin)} is not an origin such as https://chat.example.org"
            )


def _is_address(host: str) -> bool:
    # Imported here: only a server that really starts needs it, the help text does not.
    import ipaddress  # noqa: PLC0415

    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


_POLICY = re.compile(r"interrupt|detach|grace:(?P<seconds>\d{1,5}(\.\d+)?)")
_LONGEST_GRACE = 86_400


def a_policy(_settings: object, field: Attribute[Any], value: str) -> None:
    """Refuse what is no disconnect policy."""
    policy = _POLICY.fullmatch(value)
    if policy is None:
        raise WrongValueError(field.name, f"{shown(value)} is not interrupt, grace:SECONDS or detach")
    if float(policy["seconds"] or 0) > _LONGEST_GRACE:
        raise WrongValueError(field.name, f"{shown(value)} is more than a day")
