"""The settings as clients may see them: the operator's choices, without secrets."""

from __future__ import annotations

from attrs import frozen

from hermes_trio.core.redact import redact
from hermes_trio.settings.model import MASK, Settings, options

# The system prompt is the operator's own text, which sessions do not reveal either; the others are paths on the disk.
_HIDDEN = frozenset({"system_prompt", "api_key_file", "certfile", "keyfile"})


@frozen
class DisplayedSetting:
    """One option."""

    name: str
    value: str  # "" if it is not set
    help: str


def display_settings(settings: Settings) -> tuple[DisplayedSetting, ...]:
    """Return every option with secrets masked. Profiles are omitted: not every client may know of them."""
    return tuple(
        DisplayedSetting(name, _format(settings, name, option.secret or name in _HIDDEN), option.help)
        for name, option in options().items()
    )


def _format(settings: Settings, name: str, is_hidden: bool) -> str:
    value = settings.agent_name if name == "agent" else getattr(settings, name)
    if value is None or value in ("", ()):
        return ""
    if is_hidden:
        return MASK
    if isinstance(value, bool):
        return "on" if value else "off"
    return redact(", ".join(map(str, value)) if isinstance(value, tuple) else str(value))
