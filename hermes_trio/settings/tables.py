"""The tables of the settings file: ``[options]`` and those below ``profiles``, ``mcp`` and ``channels``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_type_hints

import attrs
from attrs import frozen

from hermes_trio.settings.channels import (
    NO_CHANNELS,
    SECRETS,
    WHATSAPP_VARIABLES,
    ChannelSettings,
    WhatsAppSettings,
)
from hermes_trio.settings.model import EMPTY, Profile, Settings, is_table_name
from hermes_trio.settings.resolve import Resolved, anchor_path, convert_value
from hermes_trio.settings.sources import (
    DEFAULT,
    Document,
    SettingsError,
    Source,
    SourceKind,
    suggest_name,
)
from hermes_trio.settings.validators import InvalidValueError, quote_value

PROFILES, MCP, OPTIONS, CHANNELS = "profiles", "mcp", "options", "channels"
WHATSAPP = "whatsapp"
_KEY_VARIABLE = "api_key_env"
_SECRET = frozenset({"api_key", "base_url"})  # URLs may contain keys
_TYPES: Mapping[str, Any] = {
    option: kind for option, kind in get_type_hints(Profile).items() if option != "name"
} | {_KEY_VARIABLE: str}
# What a profile inherits from the top level, and the name it has there. The key is not included:
# see _resolve_key.
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
class TopLevel:
    """What surrounds the tables.

    The options of the top level, their sources, and the environment.
    """

    settings: Settings
    sources: Mapping[str, Source]
    environ: Mapping[str, str]


@frozen
class Tables:
    """The contents of all tables, and the sources of their values by dotted names."""

    profiles: Mapping[str, Profile] = EMPTY
    mcp: Mapping[str, Mapping[str, Any]] = EMPTY
    options: Mapping[str, Any] = EMPTY
    channels: ChannelSettings = NO_CHANNELS
    sources: Mapping[str, Source] = EMPTY


def read_tables(documents: Iterable[Document], top: TopLevel) -> Tables:
    """Read the tables of the configuration file, if there is one.

    Raises:
        SettingsError: A table is invalid. The message is one line that names the option and the
            file, and no secret.
    """
    tables = Tables()
    for document in documents:
        path = document.path
        mcp = {name: MappingProxyType(table) for name, table in _named_tables(document, MCP)}
        options = document.values.get(OPTIONS, {})
        if not isinstance(options, dict):
            raise SettingsError(
                f"{OPTIONS}: is a single value, but a table is expected (from {path})"
            )
        profiles: dict[str, Profile] = {}
        sources: dict[str, Source] = {}
        for name, table in _named_tables(document, PROFILES):
            reader = _ProfileReader(document, name, top, mcp, MappingProxyType(options))
            profiles[name], found = reader.read(table)
            sources |= found
        _reject_duplicate_models(top.settings.model_name, profiles.values(), path)
        sources |= {
            f"{MCP}.{name}": Source(SourceKind.FILE, f"{path}: {MCP}.{name}") for name in mcp
        }
        if options:
            sources[OPTIONS] = Source(SourceKind.FILE, f"{path}: {OPTIONS}")
        channels, found = _read_channels(document, top.environ)
        sources |= found
        tables = Tables(
            MappingProxyType(profiles),
            MappingProxyType(mcp),
            MappingProxyType(options),
            channels,
            MappingProxyType(sources),
        )
    return tables


def _named_tables(document: Document, kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the tables below ``[kind]``."""
    below, path = document.values.get(kind, {}), document.path
    if not isinstance(below, dict):
        raise SettingsError(
            f"{kind}: is a single value, but tables [{kind}.NAME] are expected (from {path})"
        )
    for name, table in below.items():
        if not is_table_name(name):
            complaint = "is not a name of up to 64 letters, digits, dots, dashes and underscores"
            raise SettingsError(f"{kind}: {quote_value(name)} {complaint} (from {path})")
        if not isinstance(table, dict):
            raise SettingsError(
                f"{kind}.{name}: is a single value, but a table is expected (from {path})"
            )
        yield name, table


def _reject_duplicate_models(own_name: str, profiles: Iterable[Profile], path: Path) -> None:
    """Reject a model id that would be ambiguous."""
    owners = {own_name: "the server's own agent"}
    for profile in profiles:
        if profile.model_name in owners:
            owner, option = owners[profile.model_name], f"profiles.{profile.name}.model_name"
            name = quote_value(profile.model_name)
            raise SettingsError(f"{option}: {name} is already the name of {owner} (from {path})")
        owners[profile.model_name] = f"profile {profile.name}"


@frozen
class _ProfileReader:
    """Reads one table ``[profiles.NAME]``."""

    document: Document
    name: str
    top: TopLevel
    mcp: Mapping[str, Any]
    options: Mapping[str, Any]

    def read(self, table: Mapping[str, Any]) -> tuple[Profile, dict[str, Source]]:
        """Return the profile and the sources of its values by dotted names."""
        resolved = {**self._inherited(), **dict(self._own(table))}
        resolved |= self._resolve_key(table, resolved["base_url"].value)
        profile = self._build(resolved)
        names = [option for option in _TYPES if option != _KEY_VARIABLE]
        return profile, {self._dotted(option): _source(resolved, option) for option in names}

    def _own(self, table: Mapping[str, Any]) -> Iterator[tuple[str, Resolved]]:
        for option, value in table.items():
            if option not in _TYPES:
                raise self._error(option, f"no such option{suggest_name(option, _TYPES)}")
            if option not in {"api_key", _KEY_VARIABLE}:
                yield option, self._resolve(option, value)

    def _inherited(self) -> dict[str, Resolved]:
        settings, sources = self.top.settings, self.top.sources
        inherited = {
            option: Resolved(getattr(settings, above), sources[above])
            for option, above in _INHERITED.items()
        }
        own = (
            Source(SourceKind.FILE, f"{self.document.path}: {OPTIONS}") if self.options else DEFAULT
        )
        return {
            **inherited,
            MCP: Resolved(tuple(self.mcp), DEFAULT),
            OPTIONS: Resolved(self.options, own),
        }

    def _resolve(self, option: str, value: Any) -> Resolved:
        dotted = self._dotted(option)
        source = Source(SourceKind.FILE, f"{self.document.path}: {dotted}")
        if option == OPTIONS:
            if not isinstance(value, dict):
                raise self._error(option, f"{quote_value(value)} is not a table")
            return Resolved(MappingProxyType(value), source)
        converted = convert_value(
            dotted, value, _TYPES[option], source, is_secret=option in _SECRET
        )
        if option == "keys" and not converted:
            raise self._error(option, "is empty; omit it to allow every key")
        return Resolved(anchor_path(converted, self.document.path.parent), source)

    def _resolve_key(self, table: Mapping[str, Any], base_url: str) -> dict[str, Resolved]:
        """Resolve the key of the model server.

        The top level's key is only for the top level's server.
        """
        if "api_key" in table and _KEY_VARIABLE in table:
            raise self._error("api_key", f"cannot be combined with {_KEY_VARIABLE}")
        if "api_key" in table:
            return {"api_key": self._resolve("api_key", table["api_key"])}
        if _KEY_VARIABLE in table:
            variable = self._resolve(_KEY_VARIABLE, table[_KEY_VARIABLE]).value
            if not self.top.environ.get(variable):
                raise self._error(_KEY_VARIABLE, f"the variable {quote_value(variable)} is not set")
            source = Source(SourceKind.ENVIRONMENT, variable)
            return {"api_key": Resolved(self.top.environ[variable], source)}
        if base_url == self.top.settings.base_url:
            source = self.top.sources["upstream_api_key"]
            return {"api_key": Resolved(self.top.settings.upstream_api_key, source)}
        return {}

    def _build(self, resolved: Mapping[str, Resolved]) -> Profile:
        values = {option: winner.value for option, winner in resolved.items()}
        unknown = [name for name in values[MCP] if name not in self.mcp]
        if unknown:
            raise self._error(MCP, f"there is no table [mcp.{unknown[0]}]")
        try:
            return Profile(name=self.name, **values)
        except InvalidValueError as error:
            if error.option == "name":
                raise SettingsError(
                    f"{PROFILES}: {error.complaint} (from {self.document.path})"
                ) from None
            raise self._error(
                error.option, error.complaint, _source(resolved, error.option).name
            ) from None

    def _dotted(self, option: str) -> str:
        return f"{PROFILES}.{self.name}.{option}"

    def _error(self, option: str, complaint: str, origin: str = "") -> SettingsError:
        return SettingsError(
            f"{self._dotted(option)}: {complaint} (from {origin or self.document.path})"
        )


def _source(resolved: Mapping[str, Resolved], option: str) -> Source:
    return resolved[option].source if option in resolved else DEFAULT


# -- channels --

_CHANNEL_TYPES: Mapping[str, Any] = get_type_hints(WhatsAppSettings)
_REQUIRED = [each.name for each in attrs.fields(WhatsAppSettings) if each.default is attrs.NOTHING]


def _read_channels(
    document: Document, environ: Mapping[str, str]
) -> tuple[ChannelSettings, dict[str, Source]]:
    """Read ``[channels.NAME]``. A variable of the environment beats the file."""
    for name, table in _named_tables(document, CHANNELS):
        if name != WHATSAPP:
            hint = suggest_name(name, [WHATSAPP])
            raise SettingsError(
                f"{CHANNELS}: there is no channel {quote_value(name)}{hint} (from {document.path})"
            )
        resolved = _resolve_whatsapp(document, table, environ)
        values = {option: each.value for option, each in resolved.items()}
        try:
            whatsapp = WhatsAppSettings(**values)
        except InvalidValueError as error:
            origin = _source(resolved, error.option).name
            raise SettingsError(
                f"{_of_whatsapp(error.option)}: {error.complaint} (from {origin})"
            ) from None
        sources = {_of_whatsapp(option): _source(resolved, option) for option in _CHANNEL_TYPES}
        return ChannelSettings(whatsapp=whatsapp), sources
    return NO_CHANNELS, {}


def _resolve_whatsapp(
    document: Document, table: Mapping[str, Any], environ: Mapping[str, str]
) -> dict[str, Resolved]:
    given: dict[str, tuple[Any, Source]] = {}
    for option, value in table.items():
        dotted = _of_whatsapp(option)
        if option not in _CHANNEL_TYPES:
            hint = suggest_name(option, _CHANNEL_TYPES)
            raise SettingsError(f"{dotted}: no such option{hint} (from {document.path})")
        given[option] = (value, Source(SourceKind.FILE, f"{document.path}: {dotted}"))
    for option, variables in WHATSAPP_VARIABLES.items():
        for variable in filter(environ.get, reversed(variables)):
            given[option] = (environ[variable], Source(SourceKind.ENVIRONMENT, variable))
    for option in _REQUIRED:
        if option not in given:
            variable = WHATSAPP_VARIABLES[option][0]
            raise SettingsError(
                f"{_of_whatsapp(option)}: is missing; set it here or in {variable} (from {document.path})"
            )
    return {
        option: Resolved(_convert_channel_value(option, value, source), source)
        for option, (value, source) in given.items()
    }


def _convert_channel_value(option: str, value: Any, source: Source) -> Any:
    is_secret = option in SECRETS
    return convert_value(
        _of_whatsapp(option), value, _CHANNEL_TYPES[option], source, is_secret=is_secret
    )


def _of_whatsapp(option: str) -> str:
    return f"{CHANNELS}.{WHATSAPP}.{option}"
