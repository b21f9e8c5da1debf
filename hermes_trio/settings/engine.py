"""The part that typed-settings does: merge what the sources offer and convert it to the types of ``Settings``.

We use its merge (it keeps the origin of each value), its view of the options and its converter, but not its
``load_settings``, for three reasons. Its errors repeat the value, secrets included, and name the loader but not the
variable or flag. Its number conversion is Python's: 8642.9 and True would become ports. It resolves symbolic links
in paths, which breaks mounted secrets that are renewed by moving a link.

Import this module late: typed-settings takes longer to import than all else that ``--help`` needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import NoneType
from typing import Any, get_args

from attrs import frozen
from typed_settings.cls_utils import deep_options
from typed_settings.converters import TSConverter
from typed_settings.dict_utils import merge_settings
from typed_settings.types import LoadedSettings, LoadedValue, LoaderMeta

from hermes_trio.settings.checks import shown
from hermes_trio.settings.errors import SettingsError
from hermes_trio.settings.model import Settings, options
from hermes_trio.settings.sources import Offer, Source

_COMPLAINTS: Mapping[Any, str] = {
    bool: "is neither on nor off",
    int: "is not a whole number",
    float: "is not a number",
    str: "is not a text",
    Path: "is not a path",
    tuple[str, ...]: "is not a list of texts",
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
class Settled:
    """The value that won, converted, and where it came from."""

    value: Any
    source: Source


class _Signed(LoaderMeta):
    """The loader data that typed-settings carries along with a value, with our source in it."""

    def __init__(self, offer: Offer) -> None:
        super().__init__(offer.source.name, offer.base_dir)
        self.source = offer.source


def settle(offers: Iterable[Offer]) -> dict[str, Settled]:
    """Let the last offer for each option win and convert it.

    Raises:
        SettingsError: the winning value has the wrong type.
    """
    known = deep_options(Settings)
    loaded = [LoadedSettings({offer.option: offer.value}, _Signed(offer)) for offer in offers]
    types = {option.path: _bare(option.cls) for option in known}
    merged = merge_settings(known, loaded)
    converter = _converter()
    return {name: _convert(converter, name, types[name], value) for name, value in merged.items()}


def _convert(converter: TSConverter, name: str, target: Any, loaded: LoadedValue) -> Settled:
    meta = loaded.loader_meta
    assert isinstance(meta, _Signed)
    value = _structured(converter, name, loaded.value, target, meta.source, options()[name].secret)
    return Settled(anchored(value, meta.base_dir), meta.source)


def converted(name: str, value: Any, target: Any, source: Source, *, is_secret: bool) -> Any:
    """One value that is no option of ``Settings``, such as that of a profile.

    Raises:
        SettingsError: it has the wrong type.
    """
    return _structured(_converter(), name, value, _bare(target), source, is_secret)


def _structured(
    converter: TSConverter, name: str, value: Any, target: Any, source: Source, is_secret: bool
) -> Any:
    try:
        return converter.structure(value, target)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        culprit = "the value" if is_secret else shown(value)
        raise SettingsError(f"{name}: {culprit} {_COMPLAINTS[target]} (from {source.name})") from None


def anchored(value: Any, base_dir: Path) -> Any:
    """A path that is relative to the folder of whoever named it; anything else as it is."""
    # absolute(), not resolve(): a link stays a link
    return (base_dir / value).absolute() if isinstance(value, Path) else value


def _bare(target: Any) -> Any:
    """``Path`` for ``Path | None``: whoever gives a value wants a path."""
    alternatives = [part for part in get_args(target) if part is not NoneType]
    return alternatives[0] if NoneType in get_args(target) else target


def _converter() -> TSConverter:
    converter = TSConverter(resolve_paths=False, strlist_sep=_by_commas)
    converter.scalar_converters |= {
        bool: _switch,
        int: _whole_number,
        float: _number,
        str: _text,
        Path: _path,
    }
    return converter


def _by_commas(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _switch(value: Any, _target: type) -> bool:
    if isinstance(value, bool):
        return value
    if str(value).lower() not in _SWITCHES:
        raise ValueError
    return _SWITCHES[str(value).lower()]


def _whole_number(value: Any, _target: type) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise TypeError
    return int(value)


def _number(value: Any, _target: type) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise TypeError
    return float(value)


def _text(value: Any, _target: type) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _path(value: Any, _target: type) -> Path:
    if not str(value).strip() or "\0" in str(value):
        raise ValueError
    return Path(value).expanduser()
