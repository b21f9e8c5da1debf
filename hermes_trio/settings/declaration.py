"""How an option of the settings is declared: what is known about it beside its type, and its field."""

from __future__ import annotations

from typing import Any

import attrs
from attrs import frozen

from hermes_trio.settings import validators
from hermes_trio.stores.factory import mask_store_url

MASK = "********"
OPTION = "option"  # key of an attrs field's metadata


@frozen
class Option:
    """Everything about an option beside its type and default."""

    help: str
    flag: str = ""  # empty: only in the environment and the file
    metavar: str = "TEXT"
    secret: bool = False
    is_store_url: bool = False  # which may contain a password
    variables: tuple[str, ...] = ()  # names that other programs use; the first that is set wins
    must_exist: bool = False
    deprecated_name: str = ""  # former name, still accepted in the environment and the file


def mask_secret(value: object) -> str:
    """Return the repr of a secret: masked, but empty if there is none."""
    return repr(MASK if value else "")


def _mask_url(value: str) -> str:
    """Return the repr of a store URL, with its password masked."""
    return repr(mask_store_url(value))


def setting(default: Any, option: Option, *rules: Any) -> Any:
    """Declare an option with a default and validators. Secrets are masked in its repr."""
    secrecy: Any = mask_secret if option.secret else _mask_url if option.is_store_url else True
    return attrs.field(
        default=default, metadata={OPTION: option}, validator=list(rules), repr=secrecy
    )


def choice(option: Option, *choices: str) -> Any:
    """Declare an option with a few possible words, the first being the default.

    Case does not matter.
    """
    rule = validators.OneOf(choices)
    return attrs.field(
        default=choices[0], metadata={OPTION: option}, validator=rule, converter=str.lower
    )


def existing_file(text: str, flag: str) -> dict[str, Option]:
    """Return the metadata of an option that names a file, which must exist."""
    return {OPTION: Option(text, flag, "FILE", must_exist=True)}
