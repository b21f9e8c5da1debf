"""The key file: who may call, what each key allows, and how keys are added and removed.

A file holds one key alone on one line, or a TOML table ``[keys]``. An entry of the table is the text
of a key, or a table with the hash of one::

    [keys]
    ada = "a-long-random-text-for-ada"

    [keys.grace-laptop]
    hash = "sha256:…"
    principal = "grace"
    routes = ["chat", "sessions:read"]
    expires = 2027-01-01T00:00:00Z

A table ``[oidc]`` names an issuer whose tokens are accepted beside the keys.
"""

from __future__ import annotations

import re
import secrets
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from attrs import evolve

from hermes_trio.core.access import FULL_ACCESS, Access
from hermes_trio.keys.errors import KeysError
from hermes_trio.keys.keyring import Keyring, NamedKey, hash_key
from hermes_trio.keys.oidc_settings import read_oidc
from hermes_trio.keys.options import ACCESS_OPTIONS, TableOptions, read_access
from hermes_trio.keys.private_files import locked_directory, read_private, replace_private
from hermes_trio.keys.strength import find_faults

DEFAULT_PRINCIPAL = "default"
SETTINGS_KEY = "API_SERVER_KEY"
"""The name of the key from the settings, which no key of a file may have."""
OPERATOR_ACCESS = Access(is_admin=True)
"""What the key of a server with a single key allows."""

KEY_PREFIX = "ht-"  # the redaction of log lines knows it
HASH_PREFIX = "sha256:"
_KEY_BYTES = 32
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_NO_NAME = "is not a name of up to 64 letters, digits, dots and dashes"
_TABLE = re.compile(r"^\s*\[\s*(?:keys|oidc)\s*[.\]]", re.MULTILINE)
_HASH = re.compile(r"sha256:[0-9a-f]{64}")
_OPTIONS = frozenset({"hash", "key", "principal", "expires", *ACCESS_OPTIONS})


def generate_key() -> str:
    """Return a new random key."""
    return KEY_PREFIX + secrets.token_urlsafe(_KEY_BYTES)


# -- reading --


def read_key_file(path: Path) -> tuple[NamedKey, ...]:
    """Read the keys of a file.

    Raises:
        KeysError: as in :func:`load_key_file`.
    """
    return load_key_file(path).keys


def load_key_file(path: Path) -> Keyring:
    """Read a file: its keys, and the issuer of tokens that it names.

    Raises:
        KeysError: others can read the file, it cannot be understood, or a key in it breaks a rule.
    """
    return _parse(read_private(path), path)


def check_key(principal: str, key: str, origin: str, access: Access = FULL_ACCESS) -> NamedKey:
    """Return a key that is known as text.

    Raises:
        KeysError: it breaks a rule.
    """
    for fault in find_faults(key):
        raise KeysError(f"{origin}: the key of {principal} {fault}")
    return NamedKey(principal, key, access)


def _parse(text: str, path: Path) -> Keyring:
    if _TABLE.search(text):
        ring = _read_document(text, path)
        if ring.is_empty:
            raise KeysError(f"{path}: there is no key under [keys]")
        return ring
    lines = text.strip().splitlines()
    if len(lines) != 1:
        raise KeysError(f"{path}: needs one key on one line, or named keys under [keys]")
    key = check_key(DEFAULT_PRINCIPAL, lines[0].strip(), str(path), OPERATOR_ACCESS)
    return Keyring((key,))


def _read_document(text: str, path: Path) -> Keyring:
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise KeysError(f"{path}: is not valid TOML: {error}") from None
    for unknown in sorted(document.keys() - {"keys", "oidc"}):
        raise KeysError(f"{path}: {unknown!r} does not belong here; only [keys] and [oidc] do")
    for table in ("keys", "oidc"):
        if not isinstance(document.get(table, {}), Mapping):
            raise KeysError(f"{path}: {table} must be a table")
    oidc = (
        read_oidc(TableOptions(f"{path}: oidc", document["oidc"])) if "oidc" in document else None
    )
    return Keyring(tuple(_read_keys(document.get("keys", {}), path)), oidc)


def _read_keys(table: Mapping[str, Any], path: Path) -> Iterator[NamedKey]:
    for name, entry in table.items():
        if not is_name(name):
            raise KeysError(f"{path}: {name!r} {_NO_NAME}")
        if isinstance(entry, Mapping):
            yield _read_entry(name, entry, path)
        elif isinstance(entry, str):
            yield check_key(name, entry, str(path))
        else:
            raise KeysError(f"{path}: the key of {name} must be a text in quotes, or a table")


def is_name(name: str) -> bool:
    """Return whether a key or a principal may have a name."""
    return _NAME.fullmatch(name) is not None and name != SETTINGS_KEY


def _read_entry(name: str, entry: Mapping[str, Any], path: Path) -> NamedKey:
    options = TableOptions(f"{path}: keys.{name}", entry)
    options.refuse_unknown(_OPTIONS)
    principal = options.text("principal") or name
    if not is_name(principal):
        raise options.error("principal", _NO_NAME)
    access = read_access(options)
    digest, key = options.text("hash"), options.text("key")
    if bool(digest) == bool(key):
        raise KeysError(f"{options.where}: needs either hash or key")
    if key:
        return evolve(check_key(name, key, str(path), access), principal=principal)
    if not _HASH.fullmatch(digest):
        raise options.error("hash", f"must be {HASH_PREFIX} and 64 lower-case hexadecimal digits")
    found = bytes.fromhex(digest.removeprefix(HASH_PREFIX))
    return NamedKey(principal, "", access, name, found)


# -- changing --


def add_key(path: Path, name: str, options: Mapping[str, Any]) -> str:
    """Add an entry with a new key to a file, which is created if it is missing. Return the key.

    Args:
        path: the key file.
        name: that of the entry.
        options: those of the entry, as in the file; ``hash`` is added.

    Raises:
        KeysError: the file has the name already, or could not be read afterwards.
    """
    if not is_name(name):
        raise KeysError(f"{path}: {name!r} {_NO_NAME}")
    key = generate_key()
    entry = {**options, "hash": HASH_PREFIX + hash_key(key).hex()}
    lines = [
        f"[keys.{_format_name(name)}]",
        *(f"{each} = {_format(entry[each])}" for each in entry),
    ]
    path = path.resolve()  # a link to the file stays one
    with _changing(path):
        text = read_private(path) if path.exists() else ""
        if text.strip():
            if not _TABLE.search(text):
                raise KeysError(
                    f'{path}: holds one key; write it as default = "…" under [keys] first'
                )
            if any(named.name == name for named in _parse(text, path).keys):
                raise KeysError(f"{path}: there is a key of the name {name!r} already")
            text = text.rstrip() + "\n\n"
        text += "\n".join(lines) + "\n"
        _parse(text, path)
        replace_private(path, text)
    return key


def remove_key(path: Path, name: str) -> None:
    """Remove an entry from a file. Everything else stays as it is, comments included.

    Raises:
        KeysError: there is no such entry, or it is written in a way that cannot be removed.
    """
    path = path.resolve()
    with _changing(path):
        text = read_private(path)
        if not _TABLE.search(text):
            raise KeysError(f"{path}: holds one key without a name; delete the file")
        has_issuer = _parse(text, path).oidc is not None
        before = tomllib.loads(text).get("keys", {})
        if name not in before:
            raise KeysError(f"{path}: there is no key of the name {name!r}")
        changed = _without(text, name)
        if len(before) == 1 and not has_issuer:
            raise KeysError(f"{path}: {name!r} is the only key; add another one first")
        expected = {other: entry for other, entry in before.items() if other != name}
        try:
            after = tomllib.loads(changed).get("keys", {})
        except tomllib.TOMLDecodeError:
            after = None
        if after != expected:
            raise KeysError(f"{path}: cannot remove {name!r} from this file; edit it by hand")
        replace_private(path, changed)


@contextmanager
def _changing(path: Path) -> Iterator[None]:
    """Let no other process change the file meanwhile, and report what the system refuses."""
    try:
        with locked_directory(path.parent):
            yield
    except OSError as error:
        raise KeysError(f"{path}: cannot be changed: {error.strerror}") from None


def _without(text: str, name: str) -> str:
    """Return a TOML text without the table or the line of an entry."""
    quoted = re.escape(name)
    entry = rf"""(?:{quoted}|"{quoted}"|'{quoted}')"""
    header = re.compile(rf"\s*\[\s*keys\s*\.\s*{entry}\s*\]\s*(?:#.*)?")
    line = re.compile(rf"\s*{entry}\s*=.*")
    kept: list[str] = []
    is_inside = is_keys = False
    for each in text.splitlines(keepends=True):
        if each.lstrip().startswith("["):
            is_inside = header.fullmatch(each.rstrip("\n")) is not None
            is_keys = re.fullmatch(r"\s*\[\s*keys\s*\]\s*(?:#.*)?", each.rstrip("\n")) is not None
        if not is_inside and not (is_keys and line.fullmatch(each.rstrip("\n"))):
            kept.append(each)
    return "".join(kept)


def _format_name(name: str) -> str:
    """Return a name as a TOML key; a dot would begin another table."""
    return f'"{name}"' if "." in name else name


def _format(value: Any) -> str:
    """Return a value in TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_format(each) for each in value)}]"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    return str(value)
