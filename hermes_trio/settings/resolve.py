"""Merge the candidates of all sources and convert the winners to the types of ``Settings``, with typed-settings.

We use its merge (which keeps the origin of each value), its view of the options and its converter,
but not its ``load_settings``, for three reasons. Its errors repeat the value, including secrets,
and name the loader but not the variable or flag. Its number conversion is Python's: 8642.9 and True
would become ports. It resolves symbolic links in paths, which breaks mounted secrets that are
renewed by moving a link.

Import this module late: typed-settings takes longer to import than everything else that ``--help``
needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Any, get_args

from attrs import frozen
from typed_settings.cls_utils import deep_options
from typed_settings.converters import TSConverter
from typed_settings.dict_utils import merge_settings
from typed_settings.types import LoadedSettings, LoaderMeta

from hermes_trio.settings.model import Settings, options
from hermes_trio.settings.sources import Candidate, SettingsError, Source
from hermes_trio.settings.validators import quote_value

_COMPLAINTS: Mapping[Any, str] = {
    bool: "is neither on nor off",
    int: "is not a whole number",
    float: "is not a number",
    str: "is not a string",
    Path: "is not a path",
    tuple[str, ...]: "is not a list of strings",
}

_SWITCHES = {
    "on": True,
    "true": True,
    "yes": True,
    "1": True,
    "off": False,
    "false": False,
    "no": False,
    "0": False,
}


@frozen
class Resolved:
    """The winning value of an option, converted, and its source."""

    value: Any
    source: Source


class _SourceMeta(LoaderMeta):
    """The loader data that typed-settings keeps with a value, with our source added."""

    def __init__(self, candidate: Candidate) -> None:
        super().__init__(candidate.source.name, candidate.base_dir)
        self.source = candidate.source


def resolve(candidates: Iterable[Candidate]) -> dict[str, Resolved]:
    """Let the last candidate for each option win, and convert it.

    Raises:
        SettingsError: A winning value has the wrong type.
    """
    known = deep_options(Settings)
    loaded = [LoadedSettings({each.option: each.value}, _SourceMeta(each)) for each in candidates]
    types = {option.path: option.cls for option in known}
    resolved = {}
    for name, winner in merge_settings(known, loaded).items():
        meta = winner.loader_meta
        assert isinstance(meta, _SourceMeta)
        is_secret = options()[name].secret or options()[name].is_store_url
        value = convert_value(name, winner.value, types[name], meta.source, is_secret=is_secret)
        resolved[name] = Resolved(anchor_path(value, meta.base_dir), meta.source)
    return resolved


def convert_value(name: str, value: Any, target: Any, source: Source, *, is_secret: bool) -> Any:
    """Convert one value to a type.

    Raises:
        SettingsError: The value has the wrong type. The message does not repeat a secret.
    """
    alternatives = [part for part in get_args(target) if part is not NoneType]
    if NoneType in get_args(target):  # a given value is never None
        target = alternatives[0]
    try:
        return _converter().structure(value, target)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        culprit = "the value" if is_secret else quote_value(value)
        raise SettingsError(
            f"{name}: {culprit} {_COMPLAINTS[target]} (from {source.name})"
        ) from None


def anchor_path(value: Any, base_dir: Path) -> Any:
    """Make a path absolute, relative to the directory of its source.

    Other values are returned as they are.
    """
    # absolute(), not resolve(): a link stays a link
    return (base_dir / value).absolute() if isinstance(value, Path) else value


@cache
def _converter() -> TSConverter:
    converter = TSConverter(resolve_paths=False, strlist_sep=_split_commas)
    converter.scalar_converters |= {
        bool: _to_bool,
        int: _to_int,
        float: _to_float,
        str: _to_str,
        Path: _to_path,
    }
    return converter


def _split_commas(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _to_bool(value: Any, _target: type) -> bool:
    if isinstance(value, bool):
        return value
    if str(value).lower() not in _SWITCHES:
        raise ValueError
    return _SWITCHES[str(value).lower()]


def _to_int(value: Any, _target: type) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise TypeError
    return int(value)


def _to_float(value: Any, _target: type) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise TypeError
    return float(value)


def _to_str(value: Any, _target: type) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _to_path(value: Any, _target: type) -> Path:
    if not str(value).strip() or "\0" in str(value):
        raise ValueError
    return Path(value).expanduser()
