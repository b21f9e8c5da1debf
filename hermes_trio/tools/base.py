"""The tool interface, for tool authors and for the agents that call tools.

A tool is a function with type annotations and a docstring::

    @tool
    async def weather(city: str, days: int = 1, *, use: ToolUse) -> str:
        '''Return the weather forecast for a city.'''
        await use.output("looking out of the window")
        return f"{city}: rain for {days} days"

The model sees the name, the docstring and a JSON schema derived from the annotations. Arguments are
validated against that schema before the function is called.
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

from hermes_trio.tools.signature import InvalidArguments, read_signature, summary

NOT_APPROVED = "the user did not approve"
MAX_THREADS = 100

_thread_limiter: trio.lowlevel.RunVar[trio.CapacityLimiter] = trio.lowlevel.RunVar("tool threads")


class ToolError(Exception):
    """A failure that the model should read.

    The call ends as an error with this text; the turn continues.
    """


OutputListener = Callable[[str], Awaitable[None]]
Approver = Callable[[str, str, tuple[str, ...]], Awaitable[bool]]


async def _discard_output(_text: str) -> None:
    pass


async def _deny(_command: str, _description: str, _patterns: tuple[str, ...]) -> bool:
    return False


@define
class ToolUse:
    """One call, as the tool sees it."""

    call_id: str
    workspace: Path
    session_id: str = ""
    principal: str = "default"
    _output: OutputListener = field(default=_discard_output, kw_only=True, repr=False)
    _ask: Approver = field(default=_deny, kw_only=True, repr=False)

    async def output(self, text: str) -> None:
        """Show output to the client while the call is still running."""
        await self._output(text)

    async def ask(
        self, command: str, description: str = "", patterns: tuple[str, ...] = ()
    ) -> bool:
        """Ask the user for approval and return the decision; False if there is no user to ask.

        Args:
            command: what is about to be done, in one exact line.
            description: why approval is needed.
            patterns: keys of the rules that triggered the question. The user may approve these keys
                permanently.
        """
        return await self._ask(command, description, patterns)


Run = Callable[[Mapping[str, Any], ToolUse], Awaitable[str]]


@frozen
class Tool:
    """A function that a model can call.

    ``run`` takes the arguments as the model sent them and returns the text for the model. It raises
    :class:`ToolError` for failures that the model should read; any other exception is a defect in
    the tool.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]  # JSON schema
    run: Run


def tool(function: Callable[..., Any]) -> Tool:
    """Turn a function into a tool.

    The function's name and docstring become the tool's name and description. Its parameters become
    the schema, with descriptions from the docstring's ``Args:`` section. A parameter annotated with
    :class:`ToolUse` receives the call. A synchronous function runs in a thread, which is abandoned
    if the call is cancelled. A result that is not a string is encoded as JSON.

    Raises:
        TypeError: the function has a parameter that a schema cannot express.
    """
    signature = read_signature(function, ToolUse)
    call = function if inspect.iscoroutinefunction(function) else partial(_call_in_thread, function)

    async def run(sent: Mapping[str, Any], use: ToolUse) -> str:
        try:
            arguments = signature.arguments(sent)
        except InvalidArguments as error:
            raise ToolError(str(error)) from None
        result = await call(**arguments, **dict.fromkeys(signature.injected, use))
        if isinstance(result, str):
            return result
        return "" if result is None else msgspec.json.encode(result, enc_hook=str).decode()

    return Tool(function.__name__, summary(inspect.getdoc(function) or ""), signature.schema, run)


async def _call_in_thread(function: Callable[..., Any], **arguments: Any) -> Any:
    return await trio.to_thread.run_sync(
        partial(function, **arguments), abandon_on_cancel=True, limiter=tool_thread_limiter()
    )


def tool_thread_limiter() -> trio.CapacityLimiter:
    """Return the limiter for tool threads, one per Trio run.

    It is separate from Trio's default limiter, so that hanging tools cannot starve the store of
    threads. An abandoned thread keeps its token until it ends.
    """
    limiter = _thread_limiter.get(trio.CapacityLimiter(MAX_THREADS))
    _thread_limiter.set(limiter)
    return limiter
