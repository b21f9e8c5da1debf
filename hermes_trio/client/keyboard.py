"""Read single keys from a terminal: the answers to approval requests."""

from __future__ import annotations

import os
import select
import termios
import tty
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

import trio
from attrs import frozen

from hermes_trio.client.events import ApprovalPrompt
from hermes_trio.core.events import Choice

KEYS: Mapping[str, Choice] = {
    "o": Choice.ONCE,
    "s": Choice.SESSION,
    "a": Choice.ALWAYS,
    "d": Choice.DENY,
    "y": Choice.ONCE,
    "n": Choice.DENY,
}
_LABELS: Mapping[Choice, str] = {
    Choice.ONCE: "o once",
    Choice.SESSION: "s in this session",
    Choice.ALWAYS: "a always",
    Choice.DENY: "d deny",
}


def key_hints(choices: Iterable[Choice]) -> str:
    """Return which key stands for which choice."""
    return "   ".join(_LABELS[choice] for choice in choices)


class AskingScreen(Protocol):
    """A screen that can display an approval request."""

    def asking(self, question: ApprovalPrompt, /) -> AbstractContextManager[None]:
        """Display an approval request inside a block."""
        ...


@frozen
class Keyboard:
    """Reads single keys from a terminal."""

    fd: int

    async def ask(self, screen: AskingScreen, question: ApprovalPrompt) -> Choice:
        """Wait for a decision. Keys typed before the request is displayed are discarded."""
        termios.tcflush(self.fd, termios.TCIFLUSH)
        with screen.asking(question):
            return await self._choose(question)

    async def _choose(self, question: ApprovalPrompt) -> Choice:
        while True:
            await trio.lowlevel.wait_readable(self.fd)
            typed = self._read()
            if not typed:
                return Choice.DENY  # the terminal is gone
            choice = KEYS.get(typed.decode("ascii", "replace").lower())
            if choice in question.choices:
                return choice

    def _read(self) -> bytes:
        """Read everything available.

        Several bytes at once are an arrow key or pasted text, and match no choice.
        """
        ready, _, _ = select.select([self.fd], [], [], 0)
        return os.read(self.fd, 64) if ready else b"?"


@contextmanager
def single_keys(fd: int) -> Iterator[Keyboard]:
    """Switch a terminal to unbuffered input without echo inside a block.

    Ctrl-C still sends SIGINT.
    """
    before = termios.tcgetattr(fd)
    try:
        tty.setcbreak(fd, termios.TCSADRAIN)
        yield Keyboard(fd)
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
