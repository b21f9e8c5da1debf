"""The sources of values: flags, environment, file.

Each yields raw candidates that carry their origin.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from attrs import frozen

from hermes_trio.core.errors import ConfigurationError
from hermes_trio.settings.model import (
    ENV_PREFIX,
    default_data_dir,
    deprecated_names,
    options,
    own_variable,
    user_dir,
)

CONFIG_VARIABLE = f"{ENV_PREFIX}CONFIG"
CONFIG_FLAG = "--config"
TABLES = frozenset({"profiles", "mcp", "options", "channels"})  # see ``tables``
# Hosting platforms set them for any program, so the operator should see that they take effect.
GENERAL_VARIABLES = frozenset({"PORT", "DATABASE_URL"})


class SettingsError(ConfigurationError):
    """An option has an invalid value.

    The message is one line that names the option and the source of the value.
    """


class SourceKind(StrEnum):
    """The kinds of sources, strongest first."""

    FLAG = "flag"
    ENVIRONMENT = "environment"
    FILE = "file"
    DEFAULT = "default"


@frozen
class Source:
    """The origin of a value.

    ``--port``, ``API_SERVER_PORT``, ``/etc/hermes-trio.toml: port``, ``default``.
    """

    kind: SourceKind
    name: str


DEFAULT = Source(SourceKind.DEFAULT, "default")


@frozen
class Candidate:
    """A raw value for one option from one source."""

    option: str
    value: Any
    source: Source
    base_dir: Path = Path()  # what a relative path is relative to
    warning: str = ""  # set if the option was given by a deprecated name


@frozen
class ConfigFile:
    """A configuration file, and what named it."""

    path: Path
    named_by: str


@frozen
class Document:
    """The contents of a configuration file."""

    path: Path
    values: Mapping[str, Any]


def from_defaults(environ: Mapping[str, str]) -> Iterator[Candidate]:
    """Yield the one default that depends on the environment."""
    yield Candidate("data_dir", default_data_dir(environ), DEFAULT)


def from_document(document: Document) -> Iterator[Candidate]:
    """Yield the top-level values of a TOML file. Paths are relative to its directory.

    Raises:
        SettingsError: The file has an unknown option, or a table where a value is expected.
    """
    path, renamed = document.path, deprecated_names()
    # Deprecated names first, so that the current name wins if a file has both.
    for key, value in sorted(document.values.items(), key=lambda entry: entry[0] not in renamed):
        if key in TABLES:
            continue
        name = renamed.get(key, key)
        if name not in options():
            raise SettingsError(
                f"{key}: no such option{suggest_name(key, options())} (from {path})"
            )
        if isinstance(value, dict):
            raise SettingsError(f"{key}: is a table, but a single value is expected (from {path})")
        source = Source(SourceKind.FILE, f"{path}: {key}")
        warning = _deprecation(source, name) if key in renamed else ""
        yield Candidate(name, value, source, path.parent, warning)


def from_environment(environ: Mapping[str, str]) -> Iterator[Candidate]:
    """Yield the values of all variables that are set and not empty, the strongest name of each option last.

    Unknown names with our prefix are ignored: Kubernetes sets some for a service called
    ``hermes-trio``.
    """
    for name, option in options().items():
        deprecated = own_variable(option.deprecated_name) if option.deprecated_name else ""
        for variable in (*reversed(option.variables), deprecated, own_variable(name)):
            if environ.get(variable):
                source = Source(SourceKind.ENVIRONMENT, variable)
                warning = _deprecation(source, own_variable(name)) if variable == deprecated else ""
                yield Candidate(name, environ[variable], source, warning=warning)


def from_flags(flags: Mapping[str, Any]) -> Iterator[Candidate]:
    """Yield the values given on the command line, or by a program that calls ``load``, by option name."""
    renamed = deprecated_names()
    for key, value in sorted(flags.items(), key=lambda entry: entry[0] not in renamed):
        name = renamed.get(key, key)
        if name not in options():
            raise SettingsError(f"{key}: no such option{suggest_name(key, options())}")
        source = Source(SourceKind.FLAG, options()[name].flag or f"argument {key}")
        warning = _deprecation(source, name) if key in renamed else ""
        yield Candidate(name, value, source, warning=warning)


def _deprecation(source: Source, replacement: str) -> str:
    return f"{source.name} is deprecated; use {replacement} instead"


def config_files(named: Path | None, environ: Mapping[str, str]) -> list[ConfigFile]:
    """Return the file to read, if any.

    Named by flag, else by variable, else the user's own if it exists.
    """
    if named is not None:
        return [ConfigFile(named, CONFIG_FLAG)]
    if environ.get(CONFIG_VARIABLE):
        return [ConfigFile(Path(environ[CONFIG_VARIABLE]), CONFIG_VARIABLE)]
    path = user_dir(environ, "XDG_CONFIG_HOME", ".config") / "config.toml"
    return [ConfigFile(path, "default")] if path.is_file() else []


def read_document(file: ConfigFile) -> Document:
    """Read a configuration file.

    Raises:
        SettingsError: The file cannot be read, or is not TOML.
    """
    try:
        text = file.path.expanduser().read_text(encoding="utf-8-sig")
        return Document(file.path, tomllib.loads(text))
    except UnicodeDecodeError:
        # The text of the error would repeat bytes of the file, which may contain a key.
        raise SettingsError(f"config: {file.path} is not valid TOML: not UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"config: {file.path} is not valid TOML: {error}") from None
    except (OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", "") or str(error)
        raise SettingsError(f"config: {file.path}: {reason} (from {file.named_by})") from None


def suggest_name(name: str, known: Iterable[str]) -> str:
    """Return a suggestion to append to a message about an unknown name, or an empty string."""
    # Imported here: only needed on the way out.
    from difflib import get_close_matches  # noqa: PLC0415

    matches = get_close_matches(name.replace("-", "_"), list(known), n=1)
    return f", did you mean {matches[0]}?" if matches else ""
