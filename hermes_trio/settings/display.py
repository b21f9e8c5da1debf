"""The settings as people and clients may see them."""

from __future__ import annotations

from typing import Any

from attrs import frozen

from hermes_trio.settings.declaration import MASK
from hermes_trio.settings.model import Settings, options
from hermes_trio.stores.factory import mask_store_url

# The system prompt is the operator's own text, which sessions do not reveal either; the others are
# paths on the disk.
_HIDDEN = frozenset({"system_prompt", "api_key_file", "certfile", "keyfile", "unix_socket"})


@frozen
class DisplayedSetting:
    """An option as clients may see it."""

    name: str
    value: str  # "" if it is not set
    help: str


def display_settings(settings: Settings) -> tuple[DisplayedSetting, ...]:
    """Return every option with secrets masked.

    Profiles are omitted: not every client may know of them.
    """
    return tuple(
        DisplayedSetting(
            name, _format(settings, name, option.secret or name in _HIDDEN), option.help
        )
        for name, option in options().items()
    )


def displayable_value(settings: Settings, name: str) -> Any:
    """Return the value of an option that is not secret itself, without the password in a store URL."""
    value = settings.agent_name if name == "agent" else getattr(settings, name)
    return mask_store_url(value) if options()[name].is_store_url else value


def _format(settings: Settings, name: str, is_hidden: bool) -> str:
    # Imported here to keep --help fast: the module compiles many patterns.
    from hermes_trio.core.redact import redact  # noqa: PLC0415

    value = displayable_value(settings, name)
    if value is None or value in ("", ()):
        return ""
    if is_hidden:
        return MASK
    if isinstance(value, bool):
        return "on" if value else "off"
    return redact(", ".join(map(str, value)) if isinstance(value, tuple) else str(value))
