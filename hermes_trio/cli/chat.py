"""``hermes-trio chat``.

Read the prompt, find the server, and choose how the answer is displayed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import BinaryIO

from attrs import frozen

from hermes_trio.cli.target import find_target
from hermes_trio.client.chat import ChatSettings, OutputMode, chat
from hermes_trio.core.errors import ConfigurationError
from hermes_trio.settings import Settings

MAX_INPUT_BYTES = 8_000_000  # from standard input; servers refuse larger bodies anyway


@frozen
class ChatFlags:
    """The flags of ``hermes-trio chat``."""

    prompt: str = ""
    session: str = ""
    model: str = ""
    url: str = ""
    key_file: str | None = None
    as_json: bool = False
    plain: bool = False
    approve: str = ""


def main(settings: Settings, flags: ChatFlags) -> int:
    """Talk to the server. Return the exit code.

    Raises:
        ConfigurationError: the flags contradict each other, or there is no prompt, server or key.
    """
    if flags.as_json and flags.plain:
        raise ConfigurationError("--json and --plain cannot go together")
    key_file = Path(flags.key_file) if flags.key_file else None
    prompt = (
        flags.prompt
        if sys.stdin.isatty()
        else join_prompt(flags.prompt, read_text(sys.stdin.buffer))
    )
    if not prompt.strip() and (flags.as_json or not sys.stdin.isatty()):
        raise ConfigurationError("there is nothing to ask: give PROMPT, or text on standard input")
    target = find_target(settings, flags.url, key_file)
    return chat(
        target, ChatSettings(prompt, flags.session, flags.model, _output_mode(flags), flags.approve)
    )


def read_text(source: BinaryIO) -> str:
    """Read all of a file or a pipe.

    Raises:
        ConfigurationError: it is too long.
    """
    content = source.read(MAX_INPUT_BYTES + 1)
    if len(content) > MAX_INPUT_BYTES:
        raise ConfigurationError(f"standard input has more than {MAX_INPUT_BYTES} bytes")
    return content.decode("utf-8", "replace")


def join_prompt(prompt: str, text: str) -> str:
    """Put the prompt before the text that it is about."""
    return "\n\n".join(part for part in (prompt, text.strip("\n")) if part.strip())


def _output_mode(flags: ChatFlags) -> OutputMode:
    if flags.as_json:
        return OutputMode.JSON
    is_simple = flags.plain or not sys.stdout.isatty() or os.environ.get("TERM") == "dumb"
    return OutputMode.PLAIN if is_simple else OutputMode.LIVE
