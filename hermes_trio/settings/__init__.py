"""The settings of the server: one frozen class, read from flags, environment and a TOML file."""

from __future__ import annotations

from hermes_trio.core.errors import ConfigurationError
from hermes_trio.settings.declaration import MASK, Option
from hermes_trio.settings.display import displayable_value
from hermes_trio.settings.load import LoadedSettings, load
from hermes_trio.settings.model import Profile, Settings, options
from hermes_trio.settings.sources import SettingsError, Source, SourceKind
from hermes_trio.settings.validators import InvalidValueError

__all__ = [
    "MASK",
    "ConfigurationError",
    "InvalidValueError",
    "LoadedSettings",
    "Option",
    "Profile",
    "Settings",
    "SettingsError",
    "Source",
    "SourceKind",
    "displayable_value",
    "load",
    "options",
]
