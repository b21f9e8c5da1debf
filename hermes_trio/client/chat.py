"""A conversation on a terminal: one turn, or a loop that reads prompts."""

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

from hermes_trio.client.api_client import (
    RequestRefused,
    ServerUnreachable,
    Target,
    TurnPrompt,
    open_client,
)
from hermes_trio.client.events import ApprovalPrompt
from hermes_trio.client.keyboard import single_keys
from hermes_trio.client.screen import JsonLines, PlainText, Screen, escape_hidden, one_line
from hermes_trio.client.turn import (
    EXIT_MISUSE,
    EXIT_STOPPED,
    ApprovalHandler,
    TurnResult,
    answer_with,
    leave_open,
    run_turn,
)
from hermes_trio.core.events import Choice

PROMPT = "> "
_TTY = "/dev/tty"
_MAX_COMMAND_CHARS = 200


class OutputMode(StrEnum):
    """How a turn is displayed."""

    LIVE = "live"
    PLAIN = "plain"
    JSON = "json"


@frozen
class ChatSettings:
    """The options of a chat. Without a prompt, prompts are read from the terminal."""

    prompt: str = ""
    session: str = ""
    model: str = ""
    output: OutputMode = OutputMode.LIVE
    # a choice; "wait" for another client to answer; "" to ask the user, or deny if there is none
    approve: str = ""


def chat(target: Target, settings: ChatSettings) -> int:
    """Talk to a server. Return the exit code.

    Without the package that the live view needs, the answer is printed as plain text.
    """
    if settings.output is OutputMode.LIVE and find_spec("rich") is None:
        sys.stderr.write("Note: for tool calls and formatted text, run: pip install rich\n")
        settings = evolve(settings, output=OutputMode.PLAIN)
    code = 1
    try:
        code = _one_turn(target, settings).code if settings.prompt else _loop(target, settings)
    except* (RequestRefused, ServerUnreachable) as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        sys.stderr.write(f"Error: {one_line(str(error), 500)}\n")
        is_misuse = isinstance(error, RequestRefused) and error.is_misuse
        code = EXIT_MISUSE if is_misuse else 1
    except* BrokenPipeError:
        # The reader of our output has gone. Python would complain again when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def _one_turn(target: Target, settings: ChatSettings) -> TurnResult:
    with _open_screen(settings) as (screen, approval_handler):
        return trio.run(partial(_turn, target, settings, screen, approval_handler))


async def _turn(
    target: Target, settings: ChatSettings, screen: Screen, approval_handler: ApprovalHandler
) -> TurnResult:
    async with open_client(target) as client:
        session = (
            await client.open_session(settings.session, settings.model) if settings.session else ""
        )
        prompt = TurnPrompt(settings.prompt, secrets.token_hex(16), session, settings.model)
        return await run_turn(client, prompt, screen, approval_handler)


def _loop(target: Target, settings: ChatSettings) -> int:
    """Read prompts and run a turn for each, in a ``trio.run`` of its own, so that ``input`` has history and Ctrl-C."""
    opened = trio.run(_open, target, settings)
    # Earlier prompts of the session are in the input history.
    import readline  # noqa: PLC0415  # importing it changes what input() does

    readline.clear_history()
    for said in opened.said:
        readline.add_history(" ".join(said.split()))
    while True:
        try:
            text = input(PROMPT).strip()
        except EOFError:
            sys.stdout.write("\n")
            return 0
        except KeyboardInterrupt:
            return EXIT_STOPPED
        if text and _one_turn(target, evolve(settings, prompt=text, session=opened.session)).quit:
            return EXIT_STOPPED


@frozen
class _OpenedSession:
    session: str
    said: list[str]


async def _open(target: Target, settings: ChatSettings) -> _OpenedSession:
    async with open_client(target) as client:
        session = await client.open_session(settings.session, settings.model)
        return _OpenedSession(
            session, await client.user_messages(session) if settings.session else []
        )


@contextmanager
def _open_screen(settings: ChatSettings) -> Iterator[tuple[Screen, ApprovalHandler]]:
    """Open the screen and the handler of approval requests."""
    rule: ApprovalHandler | None = None
    if settings.approve == "wait":
        rule = leave_open
    elif settings.approve:
        rule = answer_with(Choice(settings.approve))
    match settings.output:
        case OutputMode.JSON:
            lines = JsonLines(sys.stdout, sys.stderr)
            yield lines, rule or _denying_handler(lines)
        case OutputMode.PLAIN:
            plain = PlainText(sys.stdout, sys.stderr)
            if rule is None and sys.stdin.isatty() and sys.stderr.isatty():
                with single_keys(sys.stdin.fileno()) as keyboard:
                    yield plain, partial(keyboard.ask, plain)
            else:
                yield plain, rule or _denying_handler(plain)
        case OutputMode.LIVE:
            with _open_live_screen(rule) as shown:
                yield shown


@contextmanager
def _open_live_screen(rule: ApprovalHandler | None) -> Iterator[tuple[Screen, ApprovalHandler]]:
    from rich.console import Console  # noqa: PLC0415  # of an extra

    from hermes_trio.client.terminal import LiveScreen  # noqa: PLC0415

    screen = LiveScreen(Console(highlight=False))
    with _keyboard() as fd:
        if fd < 0:
            yield screen, rule or _denying_handler(screen)
            return
        with single_keys(fd) as keyboard:
            yield screen, rule or partial(keyboard.ask, screen)


@contextmanager
def _keyboard() -> Iterator[int]:
    """Open the terminal to read keys from, even if the prompt came through a pipe.

    -1 if there is none.
    """
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


def _denying_handler(screen: Screen) -> ApprovalHandler:
    async def deny(question: ApprovalPrompt) -> Choice:
        command = one_line(escape_hidden(question.command), _MAX_COMMAND_CHARS)
        screen.notice(f"denied, because there is no terminal to ask on: {command} (see --approve)")
        return Choice.DENY

    return deny
