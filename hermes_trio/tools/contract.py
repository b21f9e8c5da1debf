"""What a tool is, for those who write one and for the agents that use them.

A tool is a function with types and a docstring::

    @tool
    async def weather(city: str, days: int = 1, *, use: ToolUse) -> str:
        '''Tell the weather of a city.'''
        await use.output("looking out of the window")
        return f"{city}: rain for {days} days"

The model reads the name, the docstring and a schema made from the types. What it sends is checked against them before
the function is called.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import trio
from attrs import define, field, frozen

from hermes_trio.tools.signature import Misfit, read_signature, summary
from hermes_trio.tools.threads import tool_threads

NOT_APPROVED = "the user did not approve"


class ToolProblem(Exception):
    """Something the model should read: the call ends as an error with this text, the turn goes on."""


async def _unheard(_text: str) -> None:
    """For calls that nobody watches."""


async def _refused(_command: str, _description: str, _patterns: tuple[str, ...]) -> bool:
    """For calls where nobody can be asked."""
    return False


Listener = Callable[[str], Awaitable[None]]
Judge = Callable[[str, str, tuple[str, ...]], Awaitable[bool]]


@define
class ToolUse:
    """One call, as the tool sees it."""

    call_id: str
    workspace: Path
    session_id: str = ""
    principal: str = "default"
    _output: Listener = field(default=_unheard, kw_only=True, repr=False)
    _ask: Judge = field(default=_refused, kw_only=True, repr=False)

    async def output(self, text: str) -> None:
        """Show something while the call still runs."""
        await self._output(text)

    async def ask(self, command: str, description: str = "", patterns: tuple[str, ...] = ()) -> bool:
        """Ask the user whether to go on. Nobody to ask means no.

        Args:
            command: what would be done, as exactly as can be said in a line.
            description: why the question is asked.
            patterns: keys of the rules behind it. An approval may be given to these for good.
        """
        return await self._ask(command, description, patterns)


Run = Callable[[Mapping[str, Any], ToolUse], Awaitable[str]]


@frozen
class Tool:
    """Something a model can call.

    ``run`` takes the arguments as the model sent them, and returns the text that the model gets. It raises
    :class:`ToolProblem` for what the model should know; anything else it raises is a defect of the tool.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]  # JSON schema
    run: Run


def tool(function: Callable[..., Any]) -> Tool:
    """Make a tool of a function.

    The name and the description are the function's own; the schema comes from its parameters, and what a section
    ``Args:`` of the docstring says of them. A parameter of type :class:`ToolUse` gets the call. A plain function runs
    in a thread, which is left to itself when the call is cancelled. What is returned and is no text becomes JSON.

    Raises:
        TypeError: the function takes what a schema cannot express.
    """
    signature = read_signature(function, ToolUse)
    call = function if inspect.iscoroutinefunction(function) else partial(_in_thread, function)

    async def run(sent: Mapping[str, Any], use: ToolUse) -> str:
        try:
            arguments = signature.arguments(sent)
        except Misfit as misfit:
            raise ToolProblem(str(misfit)) from None
        return _text(await call(**arguments, **dict.fromkeys(signature.given, use)))

    return Tool(function.__name__, summary(inspect.getdoc(function) or ""), signature.schema, run)


async def _in_thread(function: Callable[..., Any], **arguments: Any) -> Any:
    return await trio.to_thread.run_sync(
        partial(function, **arguments), abandon_on_cancel=True, limiter=tool_threads()
    )


def _text(result: object) -> str:
    if isinstance(result, str):
        return result
    return "" if result is None else msgspec.json.encode(result, enc_hook=str).decode()
