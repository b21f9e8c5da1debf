"""What the settings say about servers of tools, and what their tools are called here. Needs no package."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from hermes_trio.core.errors import ConfigurationError

SECONDS = 60.0
LONGEST_NAME = 64
"""What models' servers take."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")
_UNUSABLE = re.compile(r"[^A-Za-z0-9_-]")


class ProcessServer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A server that is started as a child and spoken to over its pipes."""

    command: str
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str = ""  # the workspace
    seconds: float = SECONDS  # for a call


class HttpServer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A server that runs somewhere already."""

    url: str
    headers: dict[str, str] = {}
    seconds: float = SECONDS  # for a call


Server = ProcessServer | HttpServer


def read_server(name: str, table: Mapping[str, Any]) -> Server:
    """What a table of the settings means.

    Raises:
        ConfigurationError: it means nothing. The text is one line.
    """
    if not _NAME.fullmatch(name):
        raise ConfigurationError(f"mcp: {name!r} is no name: use up to 32 letters, digits, - and _")
    if ("command" in table) == ("url" in table):
        raise ConfigurationError(f"mcp server {name!r}: give either command or url")
    try:
        if "command" in table:
            return msgspec.convert(dict(table), ProcessServer)
        return msgspec.convert(dict(table), HttpServer)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"mcp server {name!r}: {error}") from error


def tool_name(server: str, tool: str) -> str:
    """What the model calls a tool of a server. Different tools have different names."""
    plain = f"{server}__{tool}"
    name = _UNUSABLE.sub("_", plain)
    if name == plain and len(name) <= LONGEST_NAME:
        return name
    mark = hashlib.sha256(plain.encode("utf-8", "replace")).hexdigest()[:8]
    return f"{name[: LONGEST_NAME - 9]}_{mark}"
