"""The tables of the settings file: ``[options]``, ``[profiles.NAME]`` and ``[mcp.NAME]``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_type_hints

from attrs import frozen

from hermes_trio.settings.checks import shown
from hermes_trio.settings.engine import Settled, anchored, converted
from hermes_trio.settings.errors import SettingsError, WrongValueError
from hermes_trio.settings.model import Settings
from hermes_trio.settings.profile import NOTHING, Profile, is_name
from hermes_trio.settings.sources import DEFAULT, Document, Kind, Source

PROFILES, MCP, OPTIONS = "profiles", "mcp", "options"
_KEY_VARIABLE = "api_key_env"
_NOT_SHOWN = frozenset({"api_key", "base_url"})  # people put keys into addresses
_KNOWN: Mapping[str, Any] = {
    option: kind for option, kind in get_type_hints(Profile).items() if option != "name"
} | {_KEY_VARIABLE: str}
# What a profile that does not say it takes from the top level. The key is not among them: see below.
_INHERITED: Mapping[str, str] = {
    "agent": "agent",
    "model": "upstream_model",
    "base_url": "base_url",
    "model_path": "model_path",
    "system_prompt": "system_prompt",
    "tools": "tools",
    "max_iterations": "max_iterations",
}


@frozen
class Top:
    """What there is beside the tables: the options of the top level, where they came from, and the environment."""

    settings: Settings
    sources: Mapping[str, Source]
    environ: Mapping[str, str]


@frozen
class Tables:
    """All that the tables say, and the sources of their values by dotted names."""

    profiles: Mapping[str, Profile] = NOTHING
    mcp: Mapping[str, Mapping[str, Any]] = NOTHING
    options: Mapping[str, Any] = NOTHING
    sources: Mapping[str, Source] = NOTHING


def read_tables(documents: Iterable[Document], top: Top) -> Tables:
    """Read the tables of the file, if there is one.

    Raises:
        SettingsError: one line that names the option and the file, without any secret.
    """
    tables = Tables()
    for document in documents:
        mcp = {name: MappingProxyType(table) for name, table in _named(document, MCP)}
        options = _options(document)
        below = _named(document, PROFILES)
        read = [_Reader(document, name, top, mcp, options).read(table) for name, table in below]
        profiles = {profile.name: profile for profile, _ in read}
        _refuse_doubles(top.settings.model_name, profiles.values(), document.path)
        sources = {dotted: source for _, found in read for dotted, source in found.items()}
        sources |= {f"{MCP}.{name}": Source(Kind.FILE, f"{document.path}: {MCP}.{name}") for name in mcp}
        sources |= {OPTIONS: Source(Kind.FILE, f"{document.path}: {OPTIONS}")} if options else {}
        tables = Tables(MappingProxyType(profiles), MappingProxyType(mcp), options, MappingProxyType(sources))
    return tables


def _options(document: Document) -> Mapping[str, Any]:
    """What is for the agents and not for the server; agents check it themselves."""
    table = document.values.get(OPTIONS, {})
    if not isinstance(table, dict):
        raise SettingsError(f"{OPTIONS}: is a single value, a table is needed (from {document.path})")
    return MappingProxyType(table)


def _named(document: Document, kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The tables below ``[kind]``."""
    below = document.values.get(kind, {})
    if not isinstance(below, dict):
        raise SettingsError(
            f"{kind}: is a single value, tables [{kind}.NAME] are needed (from {document.path})"
        )
    for name, table in below.items():
        if not is_name(name):
            complaint = "is not a name of up to 64 letters, digits, dots, dashes and underscores"
            raise SettingsError(f"{kind}: {shown(name)} {complaint} (from {document.path})")
        if not isinstance(table, dict):
            raise SettingsError(f"{kind}.{name}: is a single value, a table is needed (from {document.path})")
        yield name, table


def _refuse_doubles(own_name: str, profiles: Iterable[Profile], path: Path) -> None:
    """A model id that means two agents would mean one of them by chance."""
    owners = {own_name: "the server's own agent"}
    for profile in profiles:
        if profile.model_name in owners:
            owner, option = owners[profile.model_name], f"profiles.{profile.name}.model_name"
            raise SettingsError(f"{option}: {shown(profile.model_name)} is the name of {owner} (from {path})")
        owners[profile.model_name] = f"profile {profile.name}"


@frozen
class _Reader:
    """Reads one profile."""

    document: Document
    name: str
    top: Top
    mcp: Mapping[str, Any]
    options: Mapping[str, Any]

    def read(self, table: Mapping[str, Any]) -> tuple[Profile, dict[str, Source]]:
        """The profile, and where each of its values came from."""
        own = dict(self._own(table))
        settled = {**self._inherited(), **own}
        settled |= self._key(table, settled["base_url"].value)
        profile = self._build({option: winner.value for option, winner in settled.items()}, settled)
        options = [option for option in _KNOWN if option != _KEY_VARIABLE]
        return profile, {self._dotted(option): _source(settled, option) for option in options}

    def _own(self, table: Mapping[str, Any]) -> Iterator[tuple[str, Settled]]:
        for option, value in table.items():
            if option not in _KNOWN:
                raise self._refusal(option, f"no such option{_closest(option)}")
            if option not in {"api_key", _KEY_VARIABLE}:
                yield option, self._settled(option, value)

    def _settled(self, option: str, value: Any) -> Settled:
        dotted = self._dotted(option)
        source = Source(Kind.FILE, f"{self.document.path}: {dotted}")
        if option == OPTIONS:
            return Settled(self._table(option, value), source)
        read = converted(dotted, value, _KNOWN[option], source, is_secret=option in _NOT_SHOWN)
        if isinstance(read, Path):
            read = anchored(read, self.document.path.parent)
        if option == "keys" and not read:
            raise self._refusal(option, "names nobody; leave it out to let everybody in")
        return Settled(read, source)

    def _table(self, option: str, value: Any) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            raise self._refusal(option, f"{shown(value)} is not a table")
        return MappingProxyType(value)

    def _inherited(self) -> dict[str, Settled]:
        settings, sources = self.top.settings, self.top.sources
        taken = {
            option: Settled(getattr(settings, above), sources[above]) for option, above in _INHERITED.items()
        }
        own = Source(Kind.FILE, f"{self.document.path}: {OPTIONS}") if self.options else DEFAULT
        return {**taken, MCP: Settled(tuple(self.mcp), DEFAULT), OPTIONS: Settled(self.options, own)}

    def _key(self, table: Mapping[str, Any], base_url: str) -> dict[str, Settled]:
        """The key of the model's server. That of the top level is for the server of the top level only."""
        if "api_key" in table and _KEY_VARIABLE in table:
            raise self._refusal("api_key", f"excludes {_KEY_VARIABLE}")
        if "api_key" in table:
            return {"api_key": self._settled("api_key", table["api_key"])}
        if _KEY_VARIABLE in table:
            return {"api_key": self._from_variable(table[_KEY_VARIABLE])}
        if base_url == self.top.settings.base_url:
            source = self.top.sources["upstream_api_key"]
            return {"api_key": Settled(self.top.settings.upstream_api_key, source)}
        return {}

    def _from_variable(self, given: Any) -> Settled:
        variable = self._settled(_KEY_VARIABLE, given).value
        if not self.top.environ.get(variable):
            raise self._refusal(_KEY_VARIABLE, f"the variable {shown(variable)} is not set")
        return Settled(self.top.environ[variable], Source(Kind.ENVIRONMENT, variable))

    def _build(self, values: Mapping[str, Any], settled: Mapping[str, Settled]) -> Profile:
        unknown = [name for name in values[MCP] if name not in self.mcp]
        if unknown:
            raise self._refusal(MCP, f"there is no [mcp.{unknown[0]}]")
        try:
            return Profile(name=self.name, **values)
        except WrongValueError as error:
            if error.option == "name":
                raise SettingsError(f"{PROFILES}: {error.complaint} (from {self.document.path})") from None
            raise self._refusal(error.option, error.complaint, _source(settled, error.option).name) from None

    def _dotted(self, option: str) -> str:
        return f"{PROFILES}.{self.name}.{option}"

    def _refusal(self, option: str, complaint: str, origin: str = "") -> SettingsError:
        return SettingsError(f"{self._dotted(option)}: {complaint} (from {origin or self.document.path})")


def _source(settled: Mapping[str, Settled], option: str) -> Source:
    return settled[option].source if option in settled else DEFAULT


def _closest(name: str) -> str:
    matches = get_close_matches(name.replace("-", "_"), _KNOWN, n=1)
    return f", did you mean {matches[0]}?" if matches else ""
