"""The text that is printed when the server is ready: what it serves, where, and how to try it."""

from __future__ import annotations

import json
import shlex
import socket
import sys
from urllib.parse import quote

from hermes_trio.keys import GeneratedKey, OpenedKeys, StoredKey
from hermes_trio.settings import Settings


def greet(settings: Settings, keys: OpenedKeys, url: str) -> None:
    """Print what is served, where, and how to try it."""
    several = f" with {settings.workers} workers" if settings.workers > 1 else ""
    lines = [
        f"hermes-trio serves {settings.agent_name} at {url}{several}",
        *(f"  model  {name}" for name in served_names(settings)),
        f"  data   {settings.data_dir}",
    ]
    if isinstance(keys.origin, GeneratedKey):
        lines += [f"  key    {keys.origin.key}", f"         (new, stored in {keys.origin.path})"]
    lines += [
        f"  page   {page_link(keys, url, sys.stdout.isatty())}",
        "",
        "Try it:",
        f"  {example_command(settings, keys, url)}",
        "",
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def local_url(url: str) -> str:
    """Return an address that works from this machine: no client can connect to 0.0.0.0."""
    return url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")


def socket_url(sock: socket.socket, *, is_tls: bool) -> str:
    """Return the address of a listening socket as a URL."""
    host, port = sock.getsockname()[:2]
    name = f"[{host}]" if sock.family == socket.AF_INET6 else host
    return f"{'https' if is_tls else 'http'}://{name}:{port}"


def served_names(settings: Settings) -> list[str]:
    """Return the model ids that clients may ask for."""
    return [settings.model_name, *(profile.model_name for profile in settings.profiles.values())]


def page_link(keys: OpenedKeys, url: str, is_terminal: bool) -> str:
    """Return the address of the page, with the key in it if it is new or if only a terminal shows it."""
    origin = keys.origin
    if isinstance(origin, GeneratedKey) or (isinstance(origin, StoredKey) and is_terminal):
        [named] = keys.keyring.keys
        return f"{url}/#key={quote(named.key, safe='')}"
    return f"{url}/"


def example_command(settings: Settings, keys: OpenedKeys, url: str) -> str:
    """Return a shell command that runs a turn. It does not contain the key."""
    # Only the demo agent knows this command.
    prompt = "/terminal date" if settings.agent_name == "demo" else "Hello"
    message = {"role": "user", "content": prompt}
    body = json.dumps({"model": settings.model_name, "stream": True, "messages": [message]})
    header = f'"Authorization: Bearer {_key_expression(settings, keys)}"'
    return f"curl -N {url}/v1/chat/completions -H {header} -H 'Content-Type: application/json' -d {shlex.quote(body)}"


def _key_expression(settings: Settings, keys: OpenedKeys) -> str:
    """Return a shell expression for the key."""
    match keys.origin:
        case GeneratedKey(path) | StoredKey(path):
            return f"$(cat {shlex.quote(str(path))})"
        case _ if settings.key_variable:
            return f"${settings.key_variable}"
        case _:
            return "YOUR_KEY"
