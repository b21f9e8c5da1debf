"""The settings as clients may see them: what the operator chose, without anything that opens a door."""

from __future__ import annotations

from attrs import frozen

from hermes_trio.core.redact import redact
from hermes_trio.settings.model import Settings, options
from hermes_trio.settings.profile import MASK

# The first is the operator's own text, and sessions do not tell it either; the others say where things lie on the disk.
_UNTOLD = frozenset({"system_prompt", "api_key_file", "certfile", "keyfile"})


@frozen
class ShownSetting:
    """One option."""

    name: str
    value: str  # "" if it is not set
    help: str


def shown_settings(settings: Settings) -> tuple[ShownSetting, ...]:
    """All options. Secrets are masked; profiles are left out, for they are not everybody's."""
    return tuple(
        ShownSetting(name, _shown(settings, name, option.secret or name in _UNTOLD), option.help)
        for name, option in options().items()
    )


def _shown(settings: Settings, name: str, is_secret: bool) -> str:
    value = settings.agent_name if name == "agent" else getattr(settings, name)
    if value is None or value in ("", ()):
        return ""
    if is_secret:
        return MASK
    if isinstance(value, bool):
        return "on" if value else "off"
    return redact(", ".join(map(str, value)) if isinstance(value, tuple) else str(value))
