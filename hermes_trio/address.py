"""Where the server of these settings is, and the key to it: for clients on the same machine, which need not be told."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import urlsplit

from attrs import frozen

from hermes_trio.client.calls import Target
from hermes_trio.core.errors import ConfigurationError
from hermes_trio.keys import DEFAULT_PRINCIPAL, LOCAL_FILE, NamedKey, is_loopback, read_key_file
from hermes_trio.settings import Settings

_URL = re.compile(r"https?://[^\s/?#@]+(/[^\s?#]*)?")
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104  # nobody can connect to them


@frozen
class NoKey:
    """There is none to be found; the text says where it was looked for."""

    why: str


def find_target(settings: Settings, url: str = "", key_file: Path | None = None) -> Target:
    """The server to talk to.

    Args:
        settings: as the server has them.
        url: another address than theirs.
        key_file: another key than theirs.

    Raises:
        ConfigurationError: the address is none, or there is no key for it.
    """
    address = checked(url) if url else own_url(settings)
    host = urlsplit(address).hostname or ""
    named = read_key_file(key_file) if key_file is not None else find_keys(settings, is_loopback(host))
    if isinstance(named, NoKey):
        raise ConfigurationError(named.why)
    return Target(address, _chosen(named), _trust(settings, url), is_loopback(host))


def own_url(settings: Settings) -> str:
    """The address at which these settings make a server listen.

    Raises:
        ConfigurationError: only the system knows the port.
    """
    if settings.port == 0:
        raise ConfigurationError("port: 0 picks a free one, so nobody knows it: give --url")
    host = _EVERYWHERE.get(settings.host, settings.host)
    scheme = "https" if settings.certfile else "http"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{settings.port}"


def checked(url: str) -> str:
    """An address without a final slash, and without the ``/v1`` that other clients want.

    Raises:
        ConfigurationError: it is none. It is not repeated: people put keys into addresses.
    """
    try:
        is_address = _URL.fullmatch(url) is not None and urlsplit(url).port != 0
    except ValueError:
        is_address = False
    if not is_address:
        raise ConfigurationError("url: the value is not an address such as http://127.0.0.1:8642")
    return url.rstrip("/").removesuffix("/v1")


def find_keys(settings: Settings, is_near: bool) -> tuple[NamedKey, ...] | NoKey:
    """The keys that the server of these settings takes. Makes none.

    The generated key opens servers of this machine only, and is not sent anywhere else.

    Raises:
        KeysError: a key file cannot be used.
    """
    if settings.api_key:
        return (NamedKey(DEFAULT_PRINCIPAL, settings.api_key),)
    if settings.api_key_file is not None:
        return read_key_file(settings.api_key_file)
    path = settings.data_dir / LOCAL_FILE
    if is_near and os.path.lexists(path):
        return read_key_file(path)
    looked = f" and there is no {path}: has the server been started?" if is_near else ""
    return NoKey(f"no key: API_SERVER_KEY is not set, no --key-file is given{looked}")


def _chosen(named: tuple[NamedKey, ...]) -> str:
    """The one key, or that of the principal who is meant where none is named."""
    of_default = [each.key for each in named if each.principal == DEFAULT_PRINCIPAL]
    if len(named) > 1 and not of_default:
        names = ", ".join(each.principal for each in named)
        raise ConfigurationError(f"there are several keys ({names}): put yours into a file, for --key-file")
    return of_default[0] if of_default else named[0].key


def _trust(settings: Settings, url: str) -> object:
    """The server's own certificate need not be known to anybody else."""
    if url or settings.certfile is None:
        return True
    import ssl  # noqa: PLC0415  # slow, and rarely needed

    context = ssl.create_default_context()
    context.load_verify_locations(settings.certfile)
    return context
