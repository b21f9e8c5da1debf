"""Where the keys of a server come from.

From the settings, from a key file, or, on a loopback address only, from a file that the first start
writes. Beside it lies the secret that tokens are signed with.
"""

from __future__ import annotations

import os
import re
import secrets
from importlib.util import find_spec
from pathlib import Path

from attrs import evolve, field, frozen

from hermes_trio.keys.errors import KeysError
from hermes_trio.keys.key_file import (
    DEFAULT_PRINCIPAL,
    OPERATOR_ACCESS,
    SETTINGS_KEY,
    check_key,
    generate_key,
    load_key_file,
)
from hermes_trio.keys.keyring import Keyring, NamedKey, refuse_weak_keys
from hermes_trio.keys.loopback import is_loopback
from hermes_trio.keys.private_files import create_private, read_private

LOCAL_FILE = "api-key"
SECRET_FILE = "token-secret"  # noqa: S105  # the name of a file
OIDC_EXTRA = "pip install '.[oidc]' in a clone of the repository"
_SECRET_BYTES = 32


@frozen
class KeySources:
    """The settings that decide about the keys."""

    host: str
    data_dir: Path
    api_key: str = field(default="", repr=False)
    api_key_file: Path | None = None


@frozen
class ConfiguredKeys:
    """The keys come from the operator."""


@frozen
class StoredKey:
    """The key was generated at an earlier start and read from its file."""

    path: Path


@frozen
class GeneratedKey:
    """The key was generated now, and should be shown once."""

    path: Path
    key: str = field(repr=False)


@frozen
class OpenedKeys:
    """The keys to serve with, and where they came from."""

    keyring: Keyring
    origin: ConfiguredKeys | StoredKey | GeneratedKey


@frozen
class Credentials:
    """The keys of a server, and the secret that its tokens are signed with."""

    keys: OpenedKeys
    token_secret: bytes = field(repr=False)


def open_credentials(sources: KeySources) -> Credentials:
    """Open the keys and the secret. The first call generates what is missing.

    Raises:
        KeysError: as in :func:`open_keys` and :func:`open_secret`.
    """
    return Credentials(open_keys(sources), open_secret(sources.data_dir))


def open_keys(sources: KeySources) -> OpenedKeys:
    """Read the keys, or generate one if the server can only be reached from this machine.

    Raises:
        KeysError: a key breaks a rule, a file cannot be used, or there is no key and the host is
            not loopback.
    """
    configured = check_keys(sources)
    if configured.is_empty:
        return _local(sources.data_dir)
    return OpenedKeys(configured, ConfiguredKeys())


def check_keys(sources: KeySources) -> Keyring:
    """Return the configured keys and issuer; nothing if a key may be generated. Writes nothing.

    Raises:
        KeysError: as in :func:`open_keys`.
    """
    configured = Keyring(())
    if sources.api_key_file is not None:
        configured = load_key_file(sources.api_key_file)
    if sources.api_key:
        own = check_key(DEFAULT_PRINCIPAL, sources.api_key, "api_key", OPERATOR_ACCESS)
        # Two principals may not share a key: the new ring checks that.
        configured = evolve(configured, keys=(evolve(own, name=SETTINGS_KEY), *configured.keys))
    if configured.oidc is not None and find_spec("joserfc") is None:
        raise KeysError(f"[oidc] needs a package: {OIDC_EXTRA}")
    if configured.is_empty and not is_loopback(sources.host):
        raise KeysError(
            f"api_key: a key is needed to listen on {sources.host}: set API_SERVER_KEY or --api-key-file"
        )
    if not is_loopback(sources.host):
        refuse_weak_keys(configured.keys)
    return configured


def _local(data_dir: Path) -> OpenedKeys:
    path = data_dir / LOCAL_FILE
    if os.path.lexists(
        path
    ):  # never raises; a folder we may not enter fails below, with its reason
        return OpenedKeys(load_key_file(path), StoredKey(path))
    key = generate_key()
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        create_private(path, f"{key}\n")
    except FileExistsError:
        # Another server was faster: use its key.
        return OpenedKeys(load_key_file(path), StoredKey(path))
    except OSError as error:
        raise KeysError(f"{path}: the key cannot be kept here: {error.strerror}") from None
    generated = NamedKey(DEFAULT_PRINCIPAL, key, OPERATOR_ACCESS)
    return OpenedKeys(Keyring((generated,)), GeneratedKey(path, key))


def open_secret(data_dir: Path) -> bytes:
    """Read the secret that tokens are signed with; the first call generates it.

    Raises:
        KeysError: other users can read the file, or it cannot be used.
    """
    path = data_dir / SECRET_FILE
    if not os.path.lexists(path):
        try:
            data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            create_private(path, f"{secrets.token_hex(_SECRET_BYTES)}\n")
        except FileExistsError:
            pass  # another process was faster: use its secret
        except OSError as error:
            raise KeysError(f"{path}: the secret cannot be kept here: {error.strerror}") from None
    return _read_secret(path)


def check_secret(data_dir: Path) -> None:
    """Check the secret that tokens are signed with, if it has been generated. Writes nothing.

    Raises:
        KeysError: as in :func:`open_secret`.
    """
    path = data_dir / SECRET_FILE
    if os.path.lexists(path):
        _read_secret(path)


def _read_secret(path: Path) -> bytes:
    text = read_private(path).strip()
    if not re.fullmatch(rf"[0-9a-f]{{{2 * _SECRET_BYTES}}}", text):
        raise KeysError(f"{path}: is damaged; delete it, and a new one is generated")
    return bytes.fromhex(text)
