"""What can be wrong with a configuration, always told in one line."""

from __future__ import annotations

from hermes_trio.core.errors import ConfigurationError


class SettingsError(ConfigurationError):
    """An option has a wrong value; the text names the option and where the value came from."""


class WrongValueError(ValueError):
    """A value that ``Settings`` refuses. It knows the option, but not yet where the value came from."""

    def __init__(self, option: str, complaint: str) -> None:
        super().__init__(f"{option}: {complaint}")
        self.option = option
        self.complaint = complaint
