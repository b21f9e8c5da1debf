"""Find the address and key of a server from its settings, so that clients on the same machine need no flags."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from attrs import frozen

from hermes_trio.client.api_client import Target
from hermes_trio.core.errors import ConfigurationError
from hermes_trio.keys import DEFAULT_PRINCIPAL, LOCAL_FILE, NamedKey, is_loopback, read_key_file
from hermes_trio.settings import Settings

KEY_VARIABLE = "HERMES_TRIO_CLIENT_KEY"  # the key of the server that --url names
_URL = re.compile(r"https?://[^\s/?#@]+(/[^\s?#]*)?")
_WILDCARD_HOSTS = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104  # no client can connect to these


@frozen
class NoKey:
    """No key was found. The reason says where it was looked for."""

    reason: str


def find_target(
    settings: Settings,
    url: str = "",
    key_file: Path | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Target:
    """Return the server to talk to.

    Args:
        settings: those of the server.
        url: its address, if not that of the settings.
        key_file: a file with its key, if not that of the settings.
        environ: where ``KEY_VARIABLE`` may hold the key for ``url``.

    Raises:
        ConfigurationError: the address is invalid, or there is no key for it.
    """
    address = normalize_url(url) if url else server_url(settings)
    key = find_key(settings, address if url else "", key_file, environ)
    if isinstance(key, NoKey):
        raise ConfigurationError(key.reason)
    is_local = is_loopback(urlsplit(address).hostname or "")
    return Target(address, key, _tls_verification(settings, url), is_local)


def find_key(
    settings: Settings, url: str, key_file: Path | None, environ: Mapping[str, str] = os.environ
) -> str | NoKey:
    """Return the key for an address, "" for that of the settings.

    The keys of the settings belong to the server of this machine. They are sent to the address that
    the settings describe and to this machine, and nowhere else.

    Raises:
        ConfigurationError: a key file cannot be used, or none of its keys is ours.
    """
    if key_file is not None:
        return _choose_key(read_key_file(key_file))
    if url and environ.get(KEY_VARIABLE):
        return environ[KEY_VARIABLE]
    host = urlsplit(url).hostname or "" if url else settings.host
    host = _WILDCARD_HOSTS.get(host, host)
    if url and not is_loopback(host) and not _is_same_server(url, settings):
        return NoKey(
            "the keys of this machine's server are not sent to another: name a file with the key of "
            f"{host} by --key-file, or set {KEY_VARIABLE}"
        )
    named = find_keys(settings, is_loopback(host))
    return named if isinstance(named, NoKey) else _choose_key(named)


def _is_same_server(address: str, settings: Settings) -> bool:
    """Return whether an address leads to the server of the settings, whatever its path."""
    if settings.port == 0:
        return False
    own, other = urlsplit(server_url(settings)), urlsplit(address)
    return (own.scheme, own.hostname, _port_of(own)) == (
        other.scheme,
        other.hostname,
        _port_of(other),
    )


def _port_of(address: SplitResult) -> int:
    return address.port or (443 if address.scheme == "https" else 80)


def server_url(settings: Settings) -> str:
    """Return the address at which a server with these settings listens.

    Raises:
        ConfigurationError: the port is chosen by the system.
    """
    if settings.port == 0:
        raise ConfigurationError("port: 0 picks a free port, which is not known here: pass --url")
    host = _WILDCARD_HOSTS.get(settings.host, settings.host)
    scheme = "https" if settings.certfile else "http"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{settings.port}"


def normalize_url(url: str) -> str:
    """Return an address without a final slash, and without the ``/v1`` that other clients need.

    Raises:
        ConfigurationError: it is not an address. The message does not repeat it, because addresses
            may contain keys.
    """
    try:
        is_address = _URL.fullmatch(url) is not None and urlsplit(url).port != 0
    except ValueError:
        is_address = False
    if not is_address:
        raise ConfigurationError("url: the value is not an address such as http://127.0.0.1:8642")
    return url.rstrip("/").removesuffix("/v1")


def find_keys(settings: Settings, is_local: bool) -> tuple[NamedKey, ...] | NoKey:
    """Return the keys that a server with these settings accepts. Generates none.

    A generated key is for servers on this machine only, and is not sent anywhere else.

    Raises:
        KeysError: a key file cannot be used.
    """
    if settings.api_key:
        return (NamedKey(DEFAULT_PRINCIPAL, settings.api_key),)
    if settings.api_key_file is not None:
        return read_key_file(settings.api_key_file)
    path = settings.data_dir / LOCAL_FILE
    if is_local and os.path.lexists(path):
        return read_key_file(path)
    hint = f" and there is no {path}: has the server been started?" if is_local else ""
    return NoKey(f"no key: API_SERVER_KEY is not set, no --key-file is given{hint}")


def _choose_key(named: tuple[NamedKey, ...]) -> str:
    """Return the only key, or that of the default principal."""
    named = tuple(each for each in named if each.key)
    if not named:
        raise ConfigurationError(
            "the server stores only hashes of its keys: put yours into a file, for --key-file"
        )
    defaults = [each.key for each in named if each.principal == DEFAULT_PRINCIPAL]
    if len(named) > 1 and not defaults:
        names = ", ".join(each.principal for each in named)
        raise ConfigurationError(
            f"there are several keys ({names}): put yours into a file, for --key-file"
        )
    return defaults[0] if defaults else named[0].key


def _tls_verification(settings: Settings, url: str) -> object:
    """Trust the server's own certificate, which may be self-signed, in addition to the usual authorities."""
    if url or settings.certfile is None:
        return True
    import ssl  # noqa: PLC0415  # slow, and rarely needed

    context = ssl.create_default_context()
    context.load_verify_locations(settings.certfile)
    return context
