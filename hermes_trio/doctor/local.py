"""Looking at this machine: folders, keys, the store, packages. Everything here blocks: call it in a thread."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from hermes_trio.doctor import findings_local as findings
from hermes_trio.doctor.findings import Finding
from hermes_trio.doctor.findings_local import (
    FolderThere,
    FolderToCome,
    KeyFound,
    KeyToCome,
    KeyUnusable,
    NoFolder,
    Package,
    StoreInMemory,
    StoreThere,
    StoreToCome,
    StoreUnusable,
)
from hermes_trio.keys import LOCAL_FILE, KeysError, KeySources, NamedKey, check_keys, read_key_file
from hermes_trio.settings import Settings
from hermes_trio.stores.base import StoreError
from hermes_trio.stores.factory import InMemory, SqliteFile
from hermes_trio.stores.sqlite.connections import SQLITE_VERSION, inspect_database
from hermes_trio.stores.sqlite.schema import LATEST_VERSION

HERMES_MODULE = "run_agent"


def key(settings: Settings) -> Finding:
    """The keys that a server would take."""
    return findings.key(_key(settings))


def _key(settings: Settings) -> KeyFound | KeyToCome | KeyUnusable:
    path = settings.data_dir / LOCAL_FILE
    sources = KeySources(settings.host, settings.data_dir, settings.api_key, settings.api_key_file)
    try:
        configured = check_keys(sources)
        if configured:
            return _found("the settings", configured)
        return _found(str(path), read_key_file(path)) if os.path.lexists(path) else KeyToCome(str(path))
    except KeysError as error:
        return KeyUnusable(str(error))


def _found(where: str, named: tuple[NamedKey, ...]) -> KeyFound:
    shortest = min(len(each.key) for each in named)
    return KeyFound(where, len(named), shortest, min(len({*each.key}) for each in named))


def folder(settings: Settings) -> Finding:
    """The data folder."""
    path = settings.data_dir
    return findings.folder(str(path), _folder(path))


def _folder(path: Path) -> FolderThere | FolderToCome | NoFolder:
    try:
        status = path.stat()
    except FileNotFoundError:
        return FolderToCome(_can_write(_nearest(path)))
    except OSError as error:
        return NoFolder(error.strerror or str(error))
    if not stat.S_ISDIR(status.st_mode):
        return NoFolder("is not a folder")
    return FolderThere(_can_write(path), not status.st_mode & (stat.S_IRWXG | stat.S_IRWXO))


def _nearest(path: Path) -> Path:
    """The folder that is there and in which the missing ones would be made."""
    return next((parent for parent in path.absolute().parents if parent.exists()), Path("/"))


def _can_write(path: Path) -> bool:
    """Only an attempt tells: rights are not all that can be in the way."""
    try:
        with tempfile.TemporaryFile(dir=path):
            return True
    except OSError:
        return False


def disk(settings: Settings) -> Finding:
    """The room that is left where records go."""
    path = settings.data_dir
    return findings.disk(shutil.disk_usage(path if path.exists() else _nearest(path)).free)


def sqlite(_settings: Settings) -> Finding:
    """The library behind the store."""
    return findings.sqlite(SQLITE_VERSION)


def store(settings: Settings) -> Finding:
    """The records."""
    return findings.store(_store(settings))


def _store(settings: Settings) -> StoreInMemory | StoreToCome | StoreThere | StoreUnusable:
    match settings.store_location:
        case InMemory():
            return StoreInMemory()
        case SqliteFile(path):
            return _sqlite_store(path)


def _sqlite_store(path: Path) -> StoreToCome | StoreThere | StoreUnusable:
    if not os.path.lexists(path):
        return StoreToCome(str(path))
    try:
        found = inspect_database(path)
    except StoreError as error:
        return StoreUnusable(str(error))
    return StoreThere(str(path), found.schema_version, LATEST_VERSION, found.is_in_use)


def packages(settings: Settings) -> Iterator[Finding]:
    """The packages of our extras."""
    for wanted in (
        Package("rich", "the live view of hermes-trio chat", "pip install 'hermes-trio[chat]'"),
        Package("mcp", "tools of MCP servers", "pip install 'hermes-trio[mcp]'", bool(settings.mcp)),
        Package("opentelemetry.sdk", "exporting traces", "pip install 'hermes-trio[otel]'"),
    ):
        yield findings.package(wanted, "" if is_there(wanted.name) else "not installed")


def is_there(module: str) -> bool:
    """Whether a module could be imported. It is not, but the packages that it is in are."""
    try:
        return find_spec(module) is not None
    except ImportError:
        return False


def hermes_package(settings: Settings) -> Package:
    """The package behind the agent ``hermes``."""
    agents = {settings.agent_name, *(profile.agent_name for profile in settings.profiles.values())}
    return Package("hermes-agent", "the agent hermes", "pip install hermes-agent", "hermes" in agents)
