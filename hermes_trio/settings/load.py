"""Load flags, environment and file into one validated ``Settings``, with the source of every value."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from attrs import evolve, frozen

from hermes_trio.settings.model import Settings, options, own_variable
from hermes_trio.settings.sources import (
    DEFAULT,
    GENERAL_VARIABLES,
    SettingsError,
    Source,
    SourceKind,
    config_files,
    from_defaults,
    from_document,
    from_environment,
    from_flags,
    read_document,
)
from hermes_trio.settings.validators import InvalidValueError

if TYPE_CHECKING:
    from hermes_trio.settings.resolve import Resolved


@frozen
class LoadedSettings:
    """The settings, the source of each option (of profiles by dotted names), and lines for the operator."""

    settings: Settings
    sources: Mapping[str, Source]
    warnings: tuple[str, ...] = ()  # one line for each deprecated name in use
    notes: tuple[str, ...] = ()  # one line for each option that a variable in general use sets


def load(
    flags: Mapping[str, Any], environ: Mapping[str, str], config_file: Path | None
) -> LoadedSettings:
    """Read all sources.

    A flag beats the environment, which beats the file, which beats the default.

    Args:
        flags: Raw or typed values by option name; options that were not given are absent.
        environ: The environment variables.
        config_file: The TOML file to read. If None, ``HERMES_TRIO_CONFIG`` or the user's own file
            is used.

    Raises:
        SettingsError: A value is invalid. The message is one line that names the option and the
            source.
    """
    # Imported here to keep --help fast.
    from hermes_trio.settings.resolve import resolve  # noqa: PLC0415
    from hermes_trio.settings.tables import TopLevel, read_tables  # noqa: PLC0415

    documents = [read_document(file) for file in config_files(config_file, environ)]
    # The weakest source first.
    candidates = [
        *from_defaults(environ),
        *chain.from_iterable(map(from_document, documents)),
        *from_environment(environ),
        *from_flags(flags),
    ]
    resolved = resolve(candidates)
    settings = _build(resolved)
    _require_files(resolved)
    sources = {name: resolved[name].source if name in resolved else DEFAULT for name in options()}
    tables = read_tables(documents, TopLevel(settings, sources, environ))
    return LoadedSettings(
        evolve(
            settings,
            profiles=tables.profiles,
            mcp=tables.mcp,
            agent_options=tables.options,
            channels=tables.channels,
            is_model_named=sources["model_name"] is not DEFAULT,
            key_variable=_variable(sources["api_key"]),
        ),
        MappingProxyType({**sources, **tables.sources}),
        tuple(candidate.warning for candidate in candidates if candidate.warning),
        tuple(_general_variables(sources)),
    )


def _variable(source: Source) -> str:
    return source.name if source.kind is SourceKind.ENVIRONMENT else ""


def _general_variables(sources: Mapping[str, Source]) -> Iterator[str]:
    """Name the options that are set by variables which may have been meant for another program."""
    for name, source in sources.items():
        if (variable := _variable(source)) in GENERAL_VARIABLES:
            flag = options()[name].flag or own_variable(name)
            yield f"{name} is set by the environment variable {variable}; {flag} overrides it"


def _build(resolved: Mapping[str, Resolved]) -> Settings:
    try:
        return Settings(**{name: winner.value for name, winner in resolved.items()})
    except InvalidValueError as error:
        source = resolved[error.option].source if error.option in resolved else DEFAULT
        raise SettingsError(f"{error} (from {source.name})") from None


def _require_files(resolved: Mapping[str, Resolved]) -> None:
    """Reject a missing file now rather than at the first connection.

    A pipe or a device is as good as a file.
    """
    for name, option in options().items():
        if not (option.must_exist and name in resolved):
            continue
        path, source = resolved[name].value, resolved[name].source
        try:
            complaint = "is a directory" if stat.S_ISDIR(os.stat(path).st_mode) else ""
        except OSError as error:
            complaint = error.strerror or str(error)
        if complaint:
            raise SettingsError(f"{name}: {path}: {complaint} (from {source.name})")
