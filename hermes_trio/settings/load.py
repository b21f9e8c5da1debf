"""From flags, environment and file to one checked ``Settings``, with the origin of every value."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from attrs import evolve, frozen

from hermes_trio.settings.errors import SettingsError, WrongValueError
from hermes_trio.settings.model import Settings, options
from hermes_trio.settings.sources import (
    DEFAULT,
    Document,
    Offer,
    Source,
    config_files,
    from_defaults,
    from_document,
    from_environment,
    from_flags,
    read_document,
)

if TYPE_CHECKING:
    from hermes_trio.settings.engine import Settled


@frozen
class Loaded:
    """The settings and, for each option, where its value came from: those of profiles under their dotted names."""

    settings: Settings
    sources: Mapping[str, Source]


def load(flags: Mapping[str, Any], environ: Mapping[str, str], config_file: Path | None) -> Loaded:
    """Read all sources: a flag beats the environment, which beats the file, which beats the default.

    Args:
        flags: raw or typed values by option name; an option that was not given is not in it.
        environ: the environment variables.
        config_file: the TOML file to read. Without one, ``HERMES_TRIO_CONFIG`` or the user's own file is used.

    Raises:
        SettingsError: with one line that names the option and the source of its wrong value.
    """
    # Imported here for the sake of a quick --help.
    from hermes_trio.settings.engine import settle  # noqa: PLC0415
    from hermes_trio.settings.tables import Top, read_tables  # noqa: PLC0415

    documents = [read_document(file) for file in config_files(config_file, environ)]
    settled = settle(_offers(flags, environ, documents))
    settings = _build(settled)
    _files_exist(settled)
    sources = {name: _source(settled, name) for name in options()}
    tables = read_tables(documents, Top(settings, sources, environ))
    settings = evolve(settings, profiles=tables.profiles, mcp=tables.mcp)
    return Loaded(settings, MappingProxyType({**sources, **tables.sources}))


def _offers(
    flags: Mapping[str, Any], environ: Mapping[str, str], documents: Iterable[Document]
) -> Iterator[Offer]:
    """Everything that is offered, the weakest source first."""
    yield from from_defaults(environ)
    yield from chain.from_iterable(map(from_document, documents))
    yield from from_environment(environ)
    yield from from_flags(flags)


def _build(settled: Mapping[str, Settled]) -> Settings:
    try:
        return Settings(**{name: winner.value for name, winner in settled.items()})
    except WrongValueError as error:
        raise _refusal(error.option, error.complaint, _source(settled, error.option)) from None


def _files_exist(settled: Mapping[str, Settled]) -> None:
    """Refuse a file that is not there now, rather than at the first connection."""
    for name, option in options().items():
        if option.must_exist and name in settled:
            complaint = _missing(settled[name].value)
            if complaint:
                raise _refusal(name, complaint, settled[name].source)


def _missing(path: Path) -> str:
    """What keeps a path from being a file; empty if nothing does. A pipe or a device is as good as a file."""
    try:
        is_folder = stat.S_ISDIR(os.stat(path).st_mode)
    except OSError as error:
        return f"{path}: {error.strerror}"
    return f"{path}: is a folder" if is_folder else ""


def _source(settled: Mapping[str, Settled], name: str) -> Source:
    return settled[name].source if name in settled else DEFAULT


def _refusal(name: str, complaint: str, source: Source) -> SettingsError:
    return SettingsError(f"{name}: {complaint} (from {source.name})")
