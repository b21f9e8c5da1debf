"""The built-in agent: works offline, always the same way, and shows everything that the server can show.

It has no model. Lines that begin with a slash are commands, which run real tools in the workspace; anything else is
echoed. All waiting is on things that :meth:`DemoAgent.interrupt` can end at once.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from hermes_trio.agent.emitter import Emitter, ToolCallHandle
from hermes_trio.agent.interface import AgentContext, TurnRequest
from hermes_trio.core.events import Result, Verdict
from hermes_trio.core.messages import Content, Usage
from hermes_trio.core.shorten import shorten
from hermes_trio.tools.danger import Danger, find_dangers
from hermes_trio.tools.files import FileError, read_lines, write_text
from hermes_trio.tools.terminal import CommandResult, Terminal

PAUSE = 0.02  # slow enough to see that it streams
LONGEST_SLEEP = 86_400.0
MOST_WORDS = 1_000_000
QUOTED = 300

INTRODUCTION = (
    "I am the built-in demo agent of hermes-trio. There is no model behind me; "
    "connect a real agent with `--agent module:factory`."
)
HELP = """I know these commands, one per line:
- `/terminal CMD` runs a shell command; if it looks dangerous, I ask you first
- `/read PATH` reads a file of the workspace
- `/write PATH TEXT` writes one
- `/sleep N` waits N seconds
- `/think TEXT` shows some reasoning
- `/long N` says N words
- `/ask CMD` runs a shell command once you have approved it
- `/fail TEXT` fails with an error
- `/help` shows this list"""


class _Interrupted(Exception):
    """Unwinds a turn that was interrupted."""


class _OutOfTokens(Exception):
    """Unwinds a turn that may not say more."""


class _Mouth:
    """Says things word by word, and counts. A word is a token here."""

    def __init__(self, emitter: Emitter, limit: float, rest: Callable[[], None]) -> None:
        self._say, self._limit, self._rest = emitter, limit, rest
        self.words = self.thoughts = 0

    def answer(self, text: str) -> None:
        """Say a paragraph of the answer."""
        self.emitter(_pieces(text))

    def emitter(self, pieces: Iterable[str]) -> None:
        """The same for a paragraph that is made while it is said. Each piece is one word."""
        gap = "\n\n" if self.words else ""
        for piece in pieces:
            if self.words >= self._limit:
                raise _OutOfTokens
            self._rest()
            self._say.text(gap + piece)
            self.words += 1
            gap = ""

    def think(self, text: str) -> None:
        """Say a paragraph of reasoning."""
        gap = "\n\n" if self.thoughts else ""
        for piece in _pieces(text):
            self._rest()
            self._say.reasoning(gap + piece)
            self.thoughts += 1
            gap = ""


class DemoAgent:
    """One turn of the demo."""

    def __init__(self, workspace: Path, pause: float = PAUSE) -> None:
        self._workspace, self._pause = workspace, pause
        self._terminal = Terminal(workspace)
        self._interrupted = threading.Event()
        self._reason = ""

    def interrupt(self, reason: str) -> None:
        """End the turn, whatever it is doing. For any thread, at any time, even before the turn began."""
        self._reason = reason
        self._interrupted.set()
        self._terminal.stop()

    def run(self, turn: TurnRequest, emitter: Emitter) -> Result:
        """Do the turn."""
        self._say = emitter
        self._mouth = _Mouth(emitter, _word_limit(turn.options), self._rest)
        verdict, error = Verdict.COMPLETED, ""
        try:
            self._do(turn)
        except _Interrupted:
            verdict, error = Verdict.INTERRUPTED, self._reason
        except _OutOfTokens:
            verdict, error = Verdict.TRUNCATED, f"output truncated at {self._mouth.words} tokens"
        usage = Usage(_words_read(turn), self._mouth.words, reasoning_tokens=self._mouth.thoughts)
        return Result(verdict=verdict, error=error, usage=usage)  # its text was streamed

    def _do(self, turn: TurnRequest) -> None:
        self._wait(0)
        if not turn.history:
            self._mouth.answer(INTRODUCTION)
        commands = [line.strip() for line in turn.text.splitlines() if line.lstrip().startswith("/")]
        if images := _images(turn.message):
            self._mouth.answer(f"You sent me {images} image{'s' * (images > 1)}, which I cannot see.")
        if commands:
            self._obey(commands)
        else:
            self._mouth.answer(_echo(turn.text))

    def _obey(self, commands: list[str]) -> None:
        results = [f"`{shorten(line, QUOTED)}`: {said}" for line in commands if (said := self._command(line))]
        if results:
            self._mouth.answer("Here is what came of it:\n" + "\n".join(f"- {line}" for line in results))

    def _command(self, line: str) -> str:
        """Do what one line says; returns what the closing answer tells of it."""
        name, _, rest = line[1:].partition(" ")
        do = self._COMMANDS.get(name)
        if do is None:
            self._mouth.answer(f"I do not know `/{shorten(name, 50)}`.\n{HELP}")
            return ""
        return do(self, rest.strip())

    # -- the commands --

    def _run_terminal(self, command: str) -> str:
        with self._tool("terminal", {"command": command}) as call:
            found = find_dangers(command)
            if not found or self._may(command, call, "; ".join(each.description for each in found), found):
                self._execute(command, call)
        return _quote(call)

    def _ask(self, command: str) -> str:
        with self._tool("terminal", {"command": command}) as call:
            if self._may(command, call, "You told me to ask before I run this."):
                self._execute(command, call)
        return _quote(call)

    def _may(self, command: str, call: ToolCallHandle, why: str, found: Iterable[Danger] = ()) -> bool:
        decision = self._say.ask(command, why, [danger.key for danger in found], call.call_id)
        if not decision.approved:
            call.result, call.is_error = f"not approved ({decision.by})", True
        return decision.approved

    def _execute(self, command: str, call: ToolCallHandle) -> None:
        result = self._terminal.run(command, lambda text: self._say.tool_output(call.call_id, text))
        call.result, call.is_error = _told(result), result.exit_code != 0 or result.timed_out

    def _read(self, path: str) -> str:
        with self._tool("read_file", {"path": path}) as call, _reported(call):
            call.result = read_lines(self._workspace, path)
        return _quote(call)

    def _write(self, rest: str) -> str:
        path, _, text = rest.partition(" ")
        with self._tool("write_file", {"path": path, "content": text}) as call, _reported(call):
            call.result = f"wrote {write_text(self._workspace, path, text)} bytes to {path}"
        return _quote(call)

    def _sleep(self, rest: str) -> str:
        seconds = _number(rest, LONGEST_SLEEP)
        if seconds is None:
            return f"`{shorten(rest, 50)}` is no number of seconds that I can sleep"
        with self._tool("sleep", {"seconds": seconds}) as call:
            slept = not self._interrupted.wait(seconds)
            call.result, call.is_error = f"slept {seconds:g} s" if slept else "interrupted", not slept
        return _quote(call)

    def _think(self, text: str) -> str:
        self._mouth.think(text)
        return "I thought about it"

    def _long(self, rest: str) -> str:
        count = _number(rest, MOST_WORDS)
        if count is None or count != int(count):
            return f"`{shorten(rest, 50)}` is no number of words that I can say"
        self._mouth.emitter(f"word{number} " for number in range(1, int(count) + 1))
        return ""

    def _fail(self, text: str) -> str:
        raise RuntimeError(text or "the demo agent was told to fail")

    def _help(self, _rest: str) -> str:
        self._mouth.answer(HELP)
        return ""

    _COMMANDS: ClassVar[Mapping[str, Callable[[DemoAgent, str], str]]] = {
        "terminal": _run_terminal,
        "ask": _ask,
        "read": _read,
        "write": _write,
        "sleep": _sleep,
        "think": _think,
        "long": _long,
        "fail": _fail,
        "help": _help,
    }

    # -- waiting --

    @contextmanager
    def _tool(self, name: str, args: Mapping[str, Any]) -> Iterator[ToolCallHandle]:
        """A shown tool call. One that was interrupted is shown with what it has, and is the last."""
        self._wait(0)
        with self._say.tool(name, args) as call:
            yield call
        self._wait(0)

    def _rest(self) -> None:
        self._wait(self._pause)

    def _wait(self, seconds: float) -> None:
        if self._interrupted.wait(seconds):
            raise _Interrupted


def factory(context: AgentContext) -> DemoAgent:
    """The demo for one turn."""
    return DemoAgent(context.workspace)


@contextmanager
def _reported(call: ToolCallHandle) -> Iterator[None]:
    """A refused file is a result that the user can read, not the end of the turn."""
    try:
        yield
    except FileError as problem:
        call.result, call.is_error = str(problem), True


def _told(result: CommandResult) -> str:
    """The output of a command, and how it ended unless well."""
    notes = {
        f"[exit code {result.exit_code}]": result.exit_code != 0,
        "[timed out]": result.timed_out,
        "[interrupted]": result.interrupted,
    }
    return "\n".join(
        filter(None, (result.output.rstrip("\n"), *(note for note, holds in notes.items() if holds)))
    )


def _quote(call: ToolCallHandle) -> str:
    text = shorten(str(call.result), QUOTED)
    return f"\n```\n{text}\n```" if "\n" in text else text or "(no output)"


def _echo(text: str) -> str:
    said = f"You said: “{shorten(text.strip(), QUOTED)}”." if text.strip() else "You said nothing in words."
    return f"{said} Try `/help` to see what I can do."


def _pieces(text: str) -> Iterator[str]:
    """The words, each with the white space after it: joined they are the text again."""
    return (found.group() for found in re.finditer(r"\S+\s*", text.lstrip()))


def _number(text: str, most: float) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and 0 <= number <= most else None


def _word_limit(options: Mapping[str, Any]) -> float:
    limit = options.get("max_tokens")
    return limit if isinstance(limit, int) and not isinstance(limit, bool) else math.inf


def _words_read(turn: TurnRequest) -> int:
    contents = [message.content for message in turn.history] + [turn.message]
    return sum(len(_text(content).split()) for content in contents)


def _text(content: Content) -> str:
    if isinstance(content, str):
        return content
    return " ".join(str(part.get("text", "")) for part in content)


def _images(content: Content) -> int:
    return 0 if isinstance(content, str) else sum("image" in str(part.get("type")) for part in content)
