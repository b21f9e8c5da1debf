"""From the flags of ``hermes-trio chat`` to a conversation: what is asked, of whom, and how it is shown."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import BinaryIO

from attrs import frozen

from hermes_trio.address import find_target
from hermes_trio.client.chat import Look, Wanted, chat
from hermes_trio.core.errors import ConfigurationError
from hermes_trio.settings import Settings

LONGEST = 8_000_000  # bytes from standard input; servers refuse larger bodies anyway


@frozen
class Flags:
    """What stands on the command line."""

    prompt: str = ""
    session: str = ""
    model: str = ""
    url: str = ""
    key_file: str | None = None
    as_json: bool = False
    plain: bool = False
    approve: str = ""


def main(settings: Settings, flags: Flags) -> int:
    """Talk to the server; returns the exit code.

    Raises:
        ConfigurationError: in one line.
    """
    if flags.as_json and flags.plain:
        raise ConfigurationError("--json and --plain cannot go together")
    key_file = Path(flags.key_file) if flags.key_file else None
    prompt = flags.prompt if sys.stdin.isatty() else joined(flags.prompt, read_text(sys.stdin.buffer))
    if not prompt.strip() and (flags.as_json or not sys.stdin.isatty()):
        raise ConfigurationError("there is nothing to ask: give PROMPT, or text on standard input")
    target = find_target(settings, flags.url, key_file)
    return chat(target, Wanted(prompt, flags.session, flags.model, _look(flags), flags.approve))


def read_text(source: BinaryIO) -> str:
    """All of a file or a pipe.

    Raises:
        ConfigurationError: it is too much.
    """
    content = source.read(LONGEST + 1)
    if len(content) > LONGEST:
        raise ConfigurationError(f"standard input has more than {LONGEST} bytes")
    return content.decode("utf-8", "replace")


def joined(prompt: str, text: str) -> str:
    """The question first, then what it is about."""
    return "\n\n".join(part for part in (prompt, text.strip("\n")) if part.strip())


def _look(flags: Flags) -> Look:
    if flags.as_json:
        return Look.JSON
    is_simple = flags.plain or not sys.stdout.isatty() or os.environ.get("TERM") == "dumb"
    return Look.PLAIN if is_simple else Look.LIVE
