"""The versions of the libraries whose internals this server touches or whose behaviour it repairs."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

from hermes_trio.core.errors import ConfigurationError

PINS: Mapping[str, tuple[str, ...]] = {
    "hypercorn": ("0.18",),
    "quart": ("0.22", "0.23"),
    "quart-trio": ("0.12", "0.13"),
    "werkzeug": ("3.1",),
    "h11": ("0.16",),
    "h2": ("4",),
}
"""Package and supported release series.

``pyproject.toml`` has the same ranges, narrowed by Python version and, for h2, to what the tests know.
"""


def check_versions(pins: Mapping[str, tuple[str, ...]] = PINS) -> None:
    """Check that the installed libraries are of a series that the guards were tested with.

    Raises:
        ConfigurationError: One is missing or of another series.
    """
    for package, supported in pins.items():
        try:
            found = version(package)
        except PackageNotFoundError:
            found = ""
        if not f"{found}.".startswith(tuple(f"{series}." for series in supported)):
            problem = f"version {found} is installed" if found else "is not installed"
            needed = " or ".join(f"{series}.*" for series in supported)
            raise ConfigurationError(
                f"{package}: {problem}, but this server needs {needed}; "
                f"run: pip install '{package}=={supported[0]}.*'"
            )
