"""The built-in demo agent.

Works offline, is deterministic, and exercises everything that the server supports.

It has no model. Lines that start with a slash are commands, which run real tools in the workspace;
anything else is echoed. It only ever blocks on what :meth:`DemoAgent.interrupt` can end at once.
"""

from __future__ import annotations

import json
import math
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import Any, ClassVar

from hermes_trio.agent.emitter import Emitter, ToolCallHandle
from hermes_trio.agent.interface import AgentContext, TurnRequest
from hermes_trio.agent.inventory import Inventory, Toolset, with_inventory
from hermes_trio.core.events import Result, Verdict
from hermes_trio.core.messages import Content, Usage, text_of
from hermes_trio.core.shorten import shorten
from hermes_trio.tools.base import approval_pattern
from hermes_trio.tools.danger import Danger, find_dangers
from hermes_trio.tools.files import FileError, read_lines, write_text
from hermes_trio.tools.sandbox import Sandbox, open_sandbox
from hermes_trio.tools.terminal import CommandResult, Terminal

WORD_DELAY = 0.02  # seconds; slow enough to see that it streams
TOOLS = ("read_file", "sleep", "terminal", "write_file")
MAX_SLEEP_SECONDS = 86_400.0
MAX_WORDS = 1_000_000
MAX_QUOTED_CHARS = 300

INTRODUCTION = (
    "I am the built-in demo agent of hermes-trio. There is no model behind me; "
    "connect a real agent with `--agent module:factory`."
)
HELP = """I know these commands, one per line:
- `/terminal CMD` runs a shell command; if it looks dangerous, I ask you first
- `/read PATH` reads a file in the workspace
- `/write PATH TEXT` writes one
- `/sleep N` waits N seconds
- `/think TEXT` shows some reasoning
- `/long N` says N words
- `/ask CMD` runs a shell command once you have approved it
- `/call NAME JSON` calls a tool that your client has given me
- `/fail TEXT` fails with an error
- `/help` shows this list"""


class _DemoInterrupted(Exception):
    """Unwinds an interrupted turn."""


class _OutOfTokens(Exception):
    """Unwinds a turn that has reached its token limit."""


class _WordStream:
    """Emits text word by word and counts the words, which stand in for tokens."""

    def __init__(self, emitter: Emitter, limit: float, delay: Callable[[], None]) -> None:
        self._emitter, self._limit, self._delay = emitter, limit, delay
        self.words = self.reasoning_words = 0

    def answer(self, text: str) -> None:
        """Emit a paragraph of the answer."""
        self.answer_words(_split_words(text))

    def answer_words(self, words: Iterable[str]) -> None:
        """Emit a paragraph of the answer, given as single words."""
        gap = "\n\n" if self.words else ""
        for word in words:
            if self.words >= self._limit:
                raise _OutOfTokens
            self._delay()
            self._emitter.text(gap + word)
            self.words += 1
            gap = ""

    def reason(self, text: str) -> None:
        """Emit a paragraph of reasoning."""
        gap = "\n\n" if self.reasoning_words else ""
        for word in _split_words(text):
            self._delay()
            self._emitter.reasoning(gap + word)
            self.reasoning_words += 1
            gap = ""


_TOOLS_OF_COMMANDS = {
    "terminal": "terminal",
    "ask": "terminal",
    "read": "read_file",
    "write": "write_file",
    "sleep": "sleep",
}


class DemoAgent:
    """Runs one turn of the demo."""

    def __init__(
        self, workspace: Path, word_delay: float = WORD_DELAY, sandbox: Sandbox | None = None
    ) -> None:
        self._workspace, self._word_delay = workspace, word_delay
        self._terminal = Terminal(workspace, sandbox=sandbox)
        self._interrupted = threading.Event()
        self._reason = ""

    def interrupt(self, reason: str) -> None:
        """End the turn, whatever it is doing. Thread-safe; may be called before the turn starts."""
        self._reason = reason
        self._interrupted.set()
        self._terminal.stop()

    def run(self, turn: TurnRequest, emitter: Emitter) -> Result:
        """Run the turn."""
        self._emitter = emitter
        self._run_id, self._client_calls = turn.run_id, 0
        self._permits_tool = turn.permits_tool
        self._client_tools = _client_tools(turn.options.get("tools"))
        self._stream = _WordStream(emitter, _word_limit(turn.options), self._wait_word_delay)
        verdict, error = Verdict.COMPLETED, ""
        try:
            self._respond(turn)
        except _DemoInterrupted:
            verdict, error = Verdict.INTERRUPTED, self._reason
        except _OutOfTokens:
            verdict, error = Verdict.TRUNCATED, f"output truncated at {self._stream.words} tokens"
        usage = Usage(
            _count_input_words(turn),
            self._stream.words,
            reasoning_tokens=self._stream.reasoning_words,
        )
        return Result(verdict=verdict, error=error, usage=usage)  # the text has been streamed

    def _respond(self, turn: TurnRequest) -> None:
        self._wait(0)
        if not turn.history:
            self._stream.answer(INTRODUCTION)
        commands = [
            line.strip()
            for line in turn.text.splitlines()
            if turn.allows_tools and line.lstrip().startswith("/")
        ]
        if images := _count_images(turn.message):
            self._stream.answer(
                f"You sent me {images} image{'s' * (images > 1)}, which I cannot see."
            )
        if returned := _returned_results(turn):
            self._stream.answer("\n".join(("Here is what your tools returned:", *returned)))
        elif commands:
            outcomes = ((line, self._run_command(line)) for line in commands)
            results = [
                f"- `{shorten(line, MAX_QUOTED_CHARS)}`: {outcome}"
                for line, outcome in outcomes
                if outcome
            ]
            if results:
                self._stream.answer("\n".join(("Here is what came of it:", *results)))
        elif mentioned := _mentioned_tool(turn):
            self._call_client_tool(*mentioned)
        else:
            self._stream.answer(_echo(turn.text))

    def _run_command(self, line: str) -> str:
        """Run the command in one line.

        Return its outcome for the closing summary, "" if there is none.
        """
        name, _, rest = line[1:].partition(" ")
        command = self._COMMANDS.get(name)
        if command is None:
            self._stream.answer(f"I do not know `/{shorten(name, 50)}`.\n{HELP}")
            return ""
        tool = _TOOLS_OF_COMMANDS.get(name, "")
        if tool and not self._permits_tool(tool):
            self._stream.answer(f"Your API key does not allow the tool `{tool}`.")
            return ""
        return command(self, rest.strip())

    # -- commands --

    def _run_terminal(self, command: str) -> str:
        with self._tool("terminal", {"command": command}) as call:
            found = find_dangers(command)
            if not found or self._approve(
                command, call, "; ".join(each.description for each in found), found
            ):
                self._execute(command, call)
        return _quote(call)

    def _ask(self, command: str) -> str:
        with self._tool("terminal", {"command": command}) as call:
            if self._approve(command, call, "You told me to ask before I run this."):
                self._execute(command, call)
        return _quote(call)

    def _approve(
        self, command: str, call: ToolCallHandle, description: str, found: Iterable[Danger] = ()
    ) -> bool:
        decision = self._emitter.ask(
            command,
            description,
            [approval_pattern("terminal", command)],
            call.call_id,
            all(danger.allows_permanent for danger in found),
        )
        if not decision.approved:
            call.result, call.is_error = f"not approved ({decision.by})", True
        return decision.approved

    def _execute(self, command: str, call: ToolCallHandle) -> None:
        result = self._terminal.run(
            command, lambda text: self._emitter.tool_output(call.call_id, text)
        )
        call.result, call.is_error = _describe(result), result.exit_code != 0 or result.timed_out

    def _read(self, path: str) -> str:
        with self._tool("read_file", {"path": path}) as call, _report_file_errors(call):
            call.result = read_lines(self._workspace, path)
        return _quote(call)

    def _write(self, rest: str) -> str:
        path, _, text = rest.partition(" ")
        with (
            self._tool("write_file", {"path": path, "content": text}) as call,
            _report_file_errors(call),
        ):
            call.result = f"wrote {write_text(self._workspace, path, text)} bytes to {path}"
        return _quote(call)

    def _sleep(self, rest: str) -> str:
        seconds = _parse_number(rest, MAX_SLEEP_SECONDS)
        if seconds is None:
            return f"`{shorten(rest, 50)}` is not a number of seconds that I can sleep"
        with self._tool("sleep", {"seconds": seconds}) as call:
            slept = not self._interrupted.wait(seconds)
            call.result, call.is_error = (
                f"slept {seconds:g} s" if slept else "interrupted",
                not slept,
            )
        return _quote(call)

    def _think(self, text: str) -> str:
        self._stream.reason(text)
        return "I thought about it"

    def _long(self, rest: str) -> str:
        count = _parse_number(rest, MAX_WORDS)
        if count is None or count != int(count):
            return f"`{shorten(rest, 50)}` is not a number of words that I can say"
        self._stream.answer_words(f"word{number} " for number in range(1, int(count) + 1))
        return ""

    def _fail(self, text: str) -> str:
        raise RuntimeError(text or "the demo agent was told to fail")

    def _call(self, rest: str) -> str:
        """Call a tool of the client. Its result comes with the next turn."""
        name, _, arguments = rest.partition(" ")
        if name not in self._client_tools:
            known = ", ".join(self._client_tools) or "none"
            return f"your client has not given me this tool; it has given me: {known}"
        arguments = arguments.strip() or "{}"
        try:
            is_object = isinstance(json.loads(arguments), dict)
        except (ValueError, RecursionError):
            is_object = False
        if not is_object:
            return "the arguments are not a JSON object"
        self._call_client_tool(name, arguments)
        return ""

    def _help(self, _rest: str) -> str:
        self._stream.answer(HELP)
        return ""

    _COMMANDS: ClassVar[Mapping[str, Callable[[DemoAgent, str], str]]] = {
        "terminal": _run_terminal,
        "ask": _ask,
        "call": _call,
        "read": _read,
        "write": _write,
        "sleep": _sleep,
        "think": _think,
        "long": _long,
        "fail": _fail,
        "help": _help,
    }

    def _call_client_tool(self, name: str, arguments: str) -> None:
        self._client_calls += 1
        # Unique in the conversation: clients match results to calls by this id.
        call_id = f"call_{self._run_id[-12:]}_client_{self._client_calls}"
        self._emitter.client_call(call_id, name, arguments)

    # -- waiting --

    @contextmanager
    def _tool(self, name: str, args: Mapping[str, Any]) -> Iterator[ToolCallHandle]:
        """Report a tool call.

        An interrupted call is reported with the result so far, and ends the turn.
        """
        self._wait(0)
        with self._emitter.tool(name, args) as call:
            yield call
        self._wait(0)

    def _wait_word_delay(self) -> None:
        self._wait(self._word_delay)

    def _wait(self, seconds: float) -> None:
        if self._interrupted.wait(seconds):
            raise _DemoInterrupted


@with_inventory(
    lambda: Inventory((Toolset("demo", TOOLS, "Demo", "What the slash commands of /help use"),))
)
def factory(context: AgentContext) -> DemoAgent:
    """Create the agent for one turn."""
    return DemoAgent(context.workspace, sandbox=open_sandbox(context.config.sandbox))


@contextmanager
def _report_file_errors(call: ToolCallHandle) -> Iterator[None]:
    """Report a file error as the result of the call, instead of ending the turn."""
    try:
        yield
    except FileError as error:
        call.result, call.is_error = str(error), True


def _describe(result: CommandResult) -> str:
    """Return the output of a command, with notes on how it failed."""
    notes = {
        f"[exit code {result.exit_code}]": result.exit_code != 0,
        "[timed out]": result.timed_out,
        "[interrupted]": result.interrupted,
    }
    return "\n".join(
        filter(
            None, (result.output.rstrip("\n"), *(note for note, holds in notes.items() if holds))
        )
    )


def _quote(call: ToolCallHandle) -> str:
    text = shorten(str(call.result), MAX_QUOTED_CHARS)
    return f"\n```\n{text}\n```" if "\n" in text else text or "(no output)"


def _echo(text: str) -> str:
    said = (
        f"You said: “{shorten(text.strip(), MAX_QUOTED_CHARS)}”."
        if text.strip()
        else "You said nothing in words."
    )
    return f"{said} Try `/help` to see what I can do."


def _split_words(text: str) -> Iterator[str]:
    """Yield the words, each with the whitespace after it, so that joining them gives the text again."""
    return (found.group() for found in re.finditer(r"\S+\s*", text.lstrip()))


def _parse_number(text: str, maximum: float) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and 0 <= number <= maximum else None


def _client_tools(tools: object) -> dict[str, Mapping[str, Any]]:
    """Return the function tools of a request, in the form of either API: names and parameters."""
    given = [tool for tool in tools if isinstance(tool, Mapping)] if isinstance(tools, list) else []
    functions = [tool for tool in given if tool.get("type", "function") == "function"]
    flat = [
        tool["function"] if isinstance(tool.get("function"), Mapping) else tool
        for tool in functions
    ]
    named = [tool for tool in flat if isinstance(tool.get("name"), str)]
    schemas = {tool["name"]: tool.get("parameters") for tool in named}
    return {name: schema if isinstance(schema, Mapping) else {} for name, schema in schemas.items()}


def _returned_results(turn: TurnRequest) -> list[str]:
    """Return one line for each result with which the client continues the turn; none for a new message.

    The last messages also hold the results of tools that the server ran in the same round; only
    those of the client's tools are returned.
    """
    if turn.message != "":
        return []
    names = {call.call_id: call.name for each in turn.history for call in each.tool_calls}
    results = [*takewhile(lambda message: message.role == "tool", reversed(turn.history))]
    lines = [
        (names.get(each.tool_call_id, each.name), text_of(each.content, " "))
        for each in reversed(results)
    ]
    known = _client_tools(turn.options.get("tools"))
    return [
        f"- `{name or 'tool'}`: {shorten(text, MAX_QUOTED_CHARS)}"
        for name, text in lines
        if not known or name in known
    ]


def _mentioned_tool(turn: TurnRequest) -> tuple[str, str] | None:
    """Return the first client tool whose name shares a long word with the message, and arguments.

    The arguments are placeholders: the message may be anything, and the tool may be a shell.
    """
    said = set(re.findall(r"[a-z]{5,}", turn.text.lower()))
    for name, parameters in _client_tools(turn.options.get("tools")).items():
        if said.isdisjoint(re.findall(r"[a-z]{5,}", name.lower())):
            continue
        required = parameters.get("required")
        names = required if isinstance(required, list) else []
        return name, json.dumps({each: "example" for each in names if isinstance(each, str)})
    return None


def _word_limit(options: Mapping[str, Any]) -> float:
    limit = options.get("max_tokens")
    return limit if isinstance(limit, int) and not isinstance(limit, bool) else math.inf


def _count_input_words(turn: TurnRequest) -> int:
    contents = [message.content for message in turn.history] + [turn.message]
    return sum(len(text_of(content, " ").split()) for content in contents)


def _count_images(content: Content) -> int:
    return (
        0 if isinstance(content, str) else sum("image" in str(part.get("type")) for part in content)
    )
