"""The settings of the server: one frozen class, read from flags, environment and a TOML file."""

from __future__ import annotations

from hermes_trio.core.errors import ConfigurationError
from hermes_trio.settings.errors import SettingsError, WrongValueError
from hermes_trio.settings.load import Loaded, load
from hermes_trio.settings.model import Option, Settings, options
from hermes_trio.settings.profile import MASK, Profile
from hermes_trio.settings.sources import Kind, Source

__all__ = [
    "MASK",
    "ConfigurationError",
    "Kind",
    "Loaded",
    "Option",
    "Profile",
    "Settings",
    "SettingsError",
    "Source",
    "WrongValueError",
    "load",
    "options",
]
