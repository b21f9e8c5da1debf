"""The versions of the libraries whose internals this server touches or whose behaviour it repairs."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

from hermes_trio.core.errors import ConfigurationError

PINS = {
    "hypercorn": "0.18",
    "quart": "0.22",
    "quart-trio": "0.12",
    "werkzeug": "3.1",
    "h11": "0.16",
    "h2": "4",
}
"""Package and release series. ``pyproject.toml`` has the same ranges."""


def check_versions(pins: Mapping[str, str] = PINS) -> None:
    """Check that the installed libraries are of the series that the guards were written for.

    Raises:
        ConfigurationError: One is missing or of another series.
    """
    for package, series in pins.items():
        try:
            found = version(package)
        except PackageNotFoundError:
            found = ""
        if not f"{found}.".startswith(f"{series}."):
            problem = f"version {found} is installed" if found else "is not installed"
            raise ConfigurationError(
                f"{package}: {problem}, but this server needs {series}.*; run: pip install '{package}=={series}.*'"
            )
