"""Where values come from: flags, environment, file. Each source offers raw values and signs them."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from attrs import frozen

from hermes_trio.settings.errors import SettingsError
from hermes_trio.settings.model import ENV_PREFIX, default_data_dir, options, own_variable, user_dir

CONFIG_VARIABLE = f"{ENV_PREFIX}CONFIG"
CONFIG_FLAG = "--config"
TABLES = frozenset({"profiles", "mcp"})  # not options of the server, see ``tables``


class Kind(StrEnum):
    """The four kinds of sources, strongest first."""

    FLAG = "flag"
    ENVIRONMENT = "environment"
    FILE = "file"
    DEFAULT = "default"


@frozen
class Source:
    """Where a value came from: ``--port``, ``API_SERVER_PORT``, ``/etc/hermes-trio.toml: port``, ``default``."""

    kind: Kind
    name: str


DEFAULT = Source(Kind.DEFAULT, "default")


@frozen
class Offer:
    """A raw value for one option, from one source."""

    option: str
    value: Any
    source: Source
    base_dir: Path = Path()  # what a relative path in it is relative to


@frozen
class ConfigFile:
    """A configuration file and who named it."""

    path: Path
    named_by: str


@frozen
class Document:
    """What such a file holds."""

    path: Path
    values: Mapping[str, Any]


def from_defaults(environ: Mapping[str, str]) -> Iterator[Offer]:
    """The one default that depends on the environment."""
    yield Offer("data_dir", default_data_dir(environ), DEFAULT)


def read_document(file: ConfigFile) -> Document:
    """Read a file.

    Raises:
        SettingsError: it is not there, or it is not TOML.
    """
    return Document(file.path, _read(file))


def from_document(document: Document) -> Iterator[Offer]:
    """The values on the top level of a TOML file. Paths in it are relative to its folder."""
    path = document.path
    for name, value in document.values.items():
        if name in TABLES:
            continue
        if name not in options():
            raise SettingsError(f"{name}: no such option{_closest(name)} (from {path})")
        if isinstance(value, dict):
            raise SettingsError(f"{name}: is a table, a single value is needed (from {path})")
        yield Offer(name, value, Source(Kind.FILE, f"{path}: {name}"), path.parent)


def from_environment(environ: Mapping[str, str]) -> Iterator[Offer]:
    """The values of all variables that are set and not empty, the strongest name of each option last.

    Unknown names with our prefix are left alone: Kubernetes makes some for a service called ``hermes-trio``.
    """
    for name, option in options().items():
        for variable in reversed((own_variable(name), *option.variables)):
            if environ.get(variable):
                yield Offer(name, environ[variable], Source(Kind.ENVIRONMENT, variable))


def from_flags(flags: Mapping[str, Any]) -> Iterator[Offer]:
    """The values given on the command line, or by a program that calls ``load``, by option name."""
    for name, value in flags.items():
        if name not in options():
            raise SettingsError(f"{name}: no such option{_closest(name)}")
        yield Offer(name, value, Source(Kind.FLAG, options()[name].flag or f"argument {name}"))


def config_files(named: Path | None, environ: Mapping[str, str]) -> list[ConfigFile]:
    """The file to read, if any: the one named by flag, else by variable, else the user's own if there is one."""
    if named is not None:
        return [ConfigFile(named, CONFIG_FLAG)]
    if environ.get(CONFIG_VARIABLE):
        return [ConfigFile(Path(environ[CONFIG_VARIABLE]), CONFIG_VARIABLE)]
    path = user_dir(environ, "XDG_CONFIG_HOME", ".config") / "config.toml"
    return [ConfigFile(path, "default")] if path.is_file() else []


def _read(file: ConfigFile) -> dict[str, Any]:
    try:
        return tomllib.loads(file.path.expanduser().read_text(encoding="utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"config: {file.path} is not valid TOML: {_summary(error)}") from None
    except (OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", "") or str(error)
        raise SettingsError(f"config: {file.path}: {reason} (from {file.named_by})") from None


def _summary(error: ValueError) -> str:
    # The text of a decoding error repeats bytes of the file, which may hold a key.
    return "not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)


def _closest(name: str) -> str:
    # Imported here: needed only on the way out.
    from difflib import get_close_matches  # noqa: PLC0415

    matches = get_close_matches(name.replace("-", "_"), options(), n=1)
    return f", did you mean {matches[0]}?" if matches else ""
