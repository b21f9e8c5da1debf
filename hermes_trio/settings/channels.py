"""The settings of the channels, from tables ``[channels.NAME]``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import attrs
from attrs import frozen

from hermes_trio.settings import validators
from hermes_trio.settings.validators import InvalidValueError, quote_value

# What may be given in environment variables: secrets, and what belongs with them. The first name is
# ours, the other that of hermes-agent; the first that is set wins, also over the file.
WHATSAPP_VARIABLES: Mapping[str, tuple[str, ...]] = {
    name: (f"HERMES_TRIO_WHATSAPP_{name.upper()}", f"WHATSAPP_CLOUD_{name.upper()}")
    for name in ("phone_number_id", "access_token", "app_secret", "verify_token")
}
SECRETS = frozenset({"access_token", "app_secret", "verify_token"})

ANYONE = "*"
MAX_PREFIX_CHARS = 500
_PUNCTUATION = re.compile(r"[\s()./-]")
_PHONE = re.compile(r"\+?(?P<digits>[0-9]{5,20})")
_USER_ID = re.compile(r"[A-Z]{2}\.(ENT\.)?[A-Za-z0-9]{1,128}")


def normalize_senders(given: Iterable[str]) -> tuple[str, ...]:
    """Return senders as WhatsApp names them: phone numbers as digits only."""
    return tuple(map(_normalize_sender, given))


def _normalize_sender(given: str) -> str:
    found = _PHONE.fullmatch(_PUNCTUATION.sub("", given))
    return found["digits"] if found else given.strip()


def _expand_newlines(prefix: str) -> str:
    """Turn a backslash and an n into a line end, which an environment variable cannot hold."""
    return prefix.replace("\\n", "\n")


def _validate_senders(_: object, field: attrs.Attribute[Any], value: tuple[str, ...]) -> None:
    for sender in value:
        is_known = sender == ANYONE or _PHONE.fullmatch(sender) or _USER_ID.fullmatch(sender)
        if not is_known:
            complaint = f"{quote_value(sender)} is not a phone number with its country code, nor *"
            raise InvalidValueError(field.name, complaint)


def _validate_number_id(_: object, field: attrs.Attribute[Any], value: str) -> None:
    if not (value.isascii() and value.isdecimal()):
        complaint = (
            f"{quote_value(value)} is not the id of a phone number, which has only digits; "
            "it is not the phone number itself"
        )
        raise InvalidValueError(field.name, complaint)


def _validate_secret(_: object, field: attrs.Attribute[Any], value: str) -> None:
    if not (value and value.isascii() and value.isprintable() and " " not in value):
        complaint = "the value is empty or has characters that a secret of Meta does not have"
        raise InvalidValueError(field.name, complaint)


def _validate_prefix(_: object, field: attrs.Attribute[Any], value: str) -> None:
    if len(value) > MAX_PREFIX_CHARS:
        raise InvalidValueError(field.name, f"has more than {MAX_PREFIX_CHARS} characters")


def _validate_graph_url(settings: object, field: attrs.Attribute[Any], value: str) -> None:
    if not value:
        raise InvalidValueError(field.name, "is empty; omit it for Meta's own server")
    validators.validate_base_url(settings, field, value)


@frozen(kw_only=True)
class WhatsAppSettings:
    """The channel to WhatsApp, from the table ``[channels.whatsapp]``."""

    phone_number_id: str = attrs.field(validator=_validate_number_id)
    access_token: str = attrs.field(validator=_validate_secret, repr=False)
    app_secret: str = attrs.field(validator=_validate_secret, repr=False)
    verify_token: str = attrs.field(validator=_validate_secret, repr=False)
    # Senders whose messages are answered: phone numbers, or "*" for all; none if empty.
    allow: tuple[str, ...] = attrs.field(
        default=(), converter=normalize_senders, validator=_validate_senders
    )
    principal: str = attrs.field(default="default", validator=validators.validate_text)
    profile: str = ""
    reply_prefix: str = attrs.field(
        default="", converter=_expand_newlines, validator=_validate_prefix
    )
    progress_seconds: float = attrs.field(default=10.0, validator=validators.AtLeast(0))
    max_waiting: int = attrs.field(default=10, validator=validators.AtLeast(1))
    graph_url: str = attrs.field(
        default="https://graph.facebook.com/v25.0", validator=_validate_graph_url
    )
    send_seconds: float = attrs.field(default=20.0, validator=validators.validate_positive)
    retries: int = attrs.field(default=3, validator=validators.AtLeast(0))


@frozen(kw_only=True)
class ChannelSettings:
    """The channels that are configured."""

    whatsapp: WhatsAppSettings | None = None


NO_CHANNELS = ChannelSettings()
