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

import hashlib
import inspect
import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import msgspec
import trio
from attrs import define, field, frozen

from hermes_trio.core.redact import redact
from hermes_trio.core.shorten import shorten
from hermes_trio.tools.sandbox import Sandbox

NOT_APPROVED = "the user did not approve"
MAX_THREADS = 100
_MAX_EXACT_PATTERN_CHARS = 200
_SHOWN_PATTERN_CHARS = 80

# The server's environment holds keys. A deny list of names that look secret would miss some, so
# child processes receive only what this allow list names.
SAFE_NAMES = frozenset(
    {
        "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TERM", "TMPDIR",
        "SSL_CERT_FILE", "SSL_CERT_DIR",
    }
)  # fmt: skip

_SECTION = re.compile(r"^(Args|Returns|Raises|Yields|Note|Example)s?:\s*$", re.MULTILINE)
_ARGUMENT = re.compile(r"^ {4}(\w+)(?: \([^)]*\))?: ", re.MULTILINE)
_LOCATION = re.compile(r"^(?P<what>.*) - at `\$\.(?P<name>.*)`$", re.DOTALL)
_FIELD = re.compile(
    r"^Object (?P<what>missing required|contains unknown) field `(?P<name>.*)`$", re.DOTALL
)

_thread_limiter: trio.lowlevel.RunVar[trio.CapacityLimiter] = trio.lowlevel.RunVar("tool threads")


class ToolError(Exception):
    """A failure that the model should read.

    The call ends as an error with this text; the turn continues.
    """


OutputListener = Callable[[str], Awaitable[None]]
Approver = Callable[[str, str, tuple[str, ...], bool], Awaitable[bool]]


async def _discard_output(_text: str) -> None:
    pass


async def _deny(
    _command: str, _description: str, _patterns: tuple[str, ...], _allow_permanent: bool
) -> bool:
    return False


@define
class ToolUse:
    """One call, as the tool sees it."""

    call_id: str
    workspace: Path
    session_id: str = ""
    principal: str = "default"
    sandbox: Sandbox | None = field(default=None, kw_only=True, repr=False)
    _output: OutputListener = field(default=_discard_output, kw_only=True, repr=False)
    _ask: Approver = field(default=_deny, kw_only=True, repr=False)

    async def output(self, text: str) -> None:
        """Show output to the client while the call is still running."""
        await self._output(text)

    async def ask(
        self,
        command: str,
        description: str = "",
        patterns: tuple[str, ...] = (),
        allow_permanent: bool = True,
    ) -> bool:
        """Ask the user for approval and return the decision; False if there is no user to ask.

        Args:
            command: what is about to be done, in one exact line.
            description: why approval is needed.
            patterns: what a lasting approval is remembered by; by default the command. Later
                requests with the same patterns are approved without asking.
            allow_permanent: whether the user may approve for all sessions.
        """
        return await self._ask(command, description, patterns, allow_permanent)


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
    toolset: str = ""  # the group that it is listed in; "" for the default one


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


class InvalidArguments(Exception):
    """Arguments do not match the signature. The message names the offending argument."""


@frozen
class Signature:
    """The parameters of a function, except those that its caller injects."""

    schema: Mapping[str, Any]
    shape: type[msgspec.Struct]
    injected: tuple[str, ...]  # names of the parameters that the caller supplies

    def arguments(self, sent: Mapping[str, Any]) -> dict[str, Any]:
        """Validate JSON values and fill in defaults. Numbers and booleans may be given as strings.

        Raises:
            InvalidArguments: an argument is missing, unknown or of the wrong type.
        """
        try:
            value = msgspec.convert(dict(sent), self.shape, strict=False)
        except msgspec.ValidationError as error:
            raise InvalidArguments(_explain(str(error))) from None
        return {name: getattr(value, name) for name in self.shape.__struct_fields__}


def read_signature(function: Callable[..., Any], injected_type: type) -> Signature:
    """Inspect a function.

    Args:
        function: every parameter must be named and annotated with a type that JSON can represent.
        injected_type: parameters of this type are supplied by the caller and left out of the
            schema.

    Raises:
        TypeError: the function has a parameter that a schema cannot express.
    """
    hints = get_type_hints(function, include_extras=True)
    parameters = inspect.signature(function).parameters.values()
    descriptions = argument_descriptions(inspect.getdoc(function) or "")
    fields: list[tuple[str, Any, Any]] = []
    injected: list[str] = []
    for parameter in parameters:
        name = parameter.name
        if hints.get(name) is injected_type:
            injected.append(name)
            continue
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(f"a tool takes named parameters only, not {parameter}")
        if name not in hints:
            raise TypeError(f"parameter {name!r} needs a type annotation")
        annotation = hints[name]
        if name in descriptions:
            annotation = Annotated[annotation, msgspec.Meta(description=descriptions[name])]
        default = msgspec.NODEFAULT if parameter.default is parameter.empty else parameter.default
        fields.append((name, annotation, msgspec.field(default=default)))
    shape = msgspec.defstruct(function.__name__, fields, kw_only=True, forbid_unknown_fields=True)
    return Signature(_schema(shape), shape, tuple(injected))


def _schema(shape: type[msgspec.Struct]) -> dict[str, Any]:
    (reference,), parts = msgspec.json.schema_components((shape,), ref_template="#/$defs/{name}")
    schema = parts.pop(reference["$ref"].removeprefix("#/$defs/"))
    del schema["title"]
    schema.pop("description", None)  # of the generated struct
    return {**schema, "$defs": parts} if parts else schema


def summary(docstring: str) -> str:
    """Return the part of a docstring before its first section."""
    return _SECTION.split(docstring, maxsplit=1)[0].strip()


def argument_descriptions(docstring: str) -> dict[str, str]:
    """Return the descriptions in a docstring's ``Args:`` section, by argument."""
    parts = _SECTION.split(docstring)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    found = _ARGUMENT.split(sections.get("Args", "").strip("\n"))
    return {
        name: " ".join(text.split())
        for name, text in zip(found[1::2], found[2::2], strict=True)
        if text.strip()
    }


def _explain(error: str) -> str:
    """Rephrase a validation message in terms of arguments."""
    if found := _LOCATION.match(error):
        return f"argument {found['name']!r}: {found['what'][:1].lower()}{found['what'][1:]}"
    if found := _FIELD.match(error):
        return (
            f"{'missing' if 'missing' in found['what'] else 'unknown'} argument {found['name']!r}"
        )
    return error


def approval_pattern(kind: str, action: str) -> str:
    """Return what the approval of an action is remembered by: this action and no other.

    An action that is long, or contains a secret, is replaced by its beginning and a digest.

    Args:
        kind: what kind of action it is, such as ``terminal``.
        action: the whole action.
    """
    shown = redact(action)
    if shown == action and len(action) <= _MAX_EXACT_PATTERN_CHARS:
        return f"{kind}: {action}"
    digest = hashlib.sha256(action.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{kind}: {shorten(shown, _SHOWN_PATTERN_CHARS)} [sha256 {digest}]"


def safe_environment(environ: Mapping[str, str], also: Collection[str] = ()) -> dict[str, str]:
    """Return the variables that may be passed to a child process.

    This keeps secrets out of tool output; it is not a sandbox, because commands run as the server's
    own user.

    Args:
        environ: the environment to filter.
        also: additional names to allow.
    """
    return {
        name: value
        for name, value in environ.items()
        if name in SAFE_NAMES or name.startswith("LC_") or name in also
    }
