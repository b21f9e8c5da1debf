"""``hermes-trio chat``: one turn, or one after the other as long as there is somebody who types."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from importlib.util import find_spec

import trio
from attrs import evolve, frozen

from hermes_trio.client.calls import Ask, Refused, Target, Unreachable, open_caller
from hermes_trio.client.events import Question
from hermes_trio.client.screen import JsonLines, PlainText, Screen
from hermes_trio.client.text import one_line, revealed
from hermes_trio.client.turn import MISUSE, STOPPED, Asker, TurnEnd, always, leave_it, run_turn
from hermes_trio.core.errors import ConfigurationError
from hermes_trio.core.events import Choice

PROMPT = "> "
_TTY = "/dev/tty"
_SHOWN = 200


class Look(StrEnum):
    """How a turn is shown."""

    LIVE = "live"
    PLAIN = "plain"
    JSON = "json"


@frozen
class Wanted:
    """What the command line says. Without a prompt, somebody types."""

    prompt: str = ""
    session: str = ""
    model: str = ""
    look: Look = Look.LIVE
    approve: str = ""  # "": ask the person if there is one, else no; "wait": others answer; or a choice


def chat(target: Target, wanted: Wanted) -> int:
    """Talk to a server; returns the exit code.

    Raises:
        ConfigurationError: the live view is wanted and its package is missing.
    """
    if wanted.look is Look.LIVE and find_spec("rich") is None:
        raise ConfigurationError(
            "the live view needs the package rich: pip install 'hermes-trio[chat]', or use --plain or --json"
        )
    code = 1
    try:
        code = _one_turn(target, wanted).code if wanted.prompt else _loop(target, wanted)
    except* (Refused, Unreachable) as group:
        code = _told(group)
    except* BrokenPipeError:
        # Whoever read the answer has left. Python would complain once more when it closes its output.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def _told(group: BaseExceptionGroup[Refused | Unreachable]) -> int:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    sys.stderr.write(f"Error: {one_line(str(error), 500)}\n")
    return MISUSE if isinstance(error, Refused) and error.is_misuse else 1


def _one_turn(target: Target, wanted: Wanted) -> TurnEnd:
    with _shown(wanted) as (screen, asker):
        return trio.run(partial(_turn, target, wanted, screen, asker))


async def _turn(target: Target, wanted: Wanted, screen: Screen, asker: Asker) -> TurnEnd:
    async with open_caller(target) as caller:
        session = await caller.open_session(wanted.session, wanted.model) if wanted.session else ""
        ask = Ask(wanted.prompt, secrets.token_hex(16), session, wanted.model)
        return await run_turn(caller, ask, screen, asker)


def _loop(target: Target, wanted: Wanted) -> int:
    """Every turn is a loop of its own, so that typing is left to Python, with its history and its Ctrl-C."""
    opened = trio.run(_open, target, wanted)
    _remember(opened.said)
    while True:
        try:
            text = input(PROMPT).strip()
        except EOFError:
            sys.stdout.write("\n")
            return 0
        except KeyboardInterrupt:
            return STOPPED
        if text and _one_turn(target, evolve(wanted, prompt=text, session=opened.session)).quit:
            return STOPPED


@frozen
class _Opened:
    session: str
    said: list[str]


async def _open(target: Target, wanted: Wanted) -> _Opened:
    async with open_caller(target) as caller:
        session = await caller.open_session(wanted.session, wanted.model)
        return _Opened(session, await caller.said_in(session) if wanted.session else [])


def _remember(said: list[str]) -> None:
    """The arrow keys bring back what was said in the session before."""
    import readline  # noqa: PLC0415  # alone to import it changes what input() does

    readline.clear_history()
    for text in said:
        readline.add_history(" ".join(text.split()))


@contextmanager
def _shown(wanted: Wanted) -> Iterator[tuple[Screen, Asker]]:
    """The screen, and who answers questions."""
    if wanted.look is not Look.LIVE:
        screen = (JsonLines if wanted.look is Look.JSON else PlainText)(sys.stdout, sys.stderr)
        yield screen, _by_rule(wanted.approve) or _denying(screen)
        return
    with _live(_by_rule(wanted.approve)) as shown:
        yield shown


@contextmanager
def _live(rule: Asker | None) -> Iterator[tuple[Screen, Asker]]:
    from rich.console import Console  # noqa: PLC0415  # of an extra

    from hermes_trio.client.terminal import LiveScreen, single_keys  # noqa: PLC0415

    screen = LiveScreen(Console(highlight=False))
    with _keyboard() as fd:
        if fd < 0:
            yield screen, rule or _denying(screen)
            return
        with single_keys(fd) as keyboard:
            yield screen, rule or partial(keyboard.ask, screen)


@contextmanager
def _keyboard() -> Iterator[int]:
    """The terminal that keys come from, even if the prompt came through a pipe; -1 if there is none."""
    if sys.stdin.isatty():
        yield sys.stdin.fileno()
        return
    try:
        fd = os.open(_TTY, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        yield -1
        return
    try:
        yield fd
    finally:
        os.close(fd)


def _by_rule(approve: str) -> Asker | None:
    if approve == "wait":
        return leave_it
    return always(Choice(approve)) if approve else None


def _denying(screen: Screen) -> Asker:
    async def deny(question: Question) -> Choice:
        command = one_line(revealed(question.command), _SHOWN)
        screen.notice(f"denied, since nobody can be asked here: {command} (see --approve)")
        return Choice.DENY

    return deny
