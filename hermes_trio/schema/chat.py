"""``POST /v1/chat/completions``: the body as clients send it, parsed into a ``ChatRequest``."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from attrs import frozen

from hermes_trio.core.errors import bad_request
from hermes_trio.core.messages import Content, Message, ToolCall
from hermes_trio.core.records import NOTHING
from hermes_trio.core.sessions import DERIVED_PREFIX
from hermes_trio.schema.content import has_visible_payload, system_text, user_content
from hermes_trio.schema.front_ends import BodyIds
from hermes_trio.schema.parsing import convert, parse_bool, parse_object

SYSTEM_ROLES = frozenset({"system", "developer"})
CONVERSATION_ROLES = frozenset({"user", "assistant", "tool"})
ROLES = SYSTEM_ROLES | CONVERSATION_ROLES


@frozen
class FunctionBody:
    """The function of a tool call in an assistant message."""

    name: str = ""
    arguments: str = ""


@frozen
class ToolCallBody:
    """A tool call that an earlier assistant message made."""

    id: str
    function: FunctionBody
    type: str = "function"


@frozen
class MessageBody:
    """One message. The content is a text or an array of parts."""

    role: str
    content: Any = None
    name: str | None = None
    tool_calls: list[ToolCallBody] | None = None
    tool_call_id: str | None = None


@frozen
class HistoryBody:
    """One message of an explicit history, in the form of Chat Completions."""

    role: str
    content: Any
    name: str | None = None
    tool_calls: list[ToolCallBody] | None = None
    tool_call_id: str | None = None


@frozen
class StreamOptionsBody:
    """Options for streamed replies."""

    include_usage: bool | None = None


@frozen
class ChatBody:
    """A Chat Completions request. Unknown fields are ignored."""

    messages: list[MessageBody]
    model: str | None = None
    stream: Any = False
    stream_options: StreamOptionsBody | None = None
    temperature: float | None = None
    top_p: float | None = None
    n: int | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    response_format: dict[str, Any] | None = None
    reasoning_effort: str | None = None
    metadata: dict[str, Any] | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None


# Fields that are passed on to the agent.
_OPTIONS = (
    "temperature", "top_p", "max_tokens", "stop", "seed", "presence_penalty", "frequency_penalty", "tools",
    "tool_choice", "parallel_tool_calls", "response_format", "reasoning_effort", "metadata", "user",
)  # fmt: skip


@frozen
class ChatRequest:
    """A parsed request."""

    message: Content  # "" if the client returns results of its own tools, or continues an answer
    history: tuple[Message, ...]  # what precedes the message
    messages: tuple[Message, ...]  # what is new in this turn
    is_continuation: bool  # the last message is the start of the answer
    instructions: str
    model: str  # "" if the client named none
    stream: bool
    include_usage: bool
    options: Mapping[str, Any]
    derived_session_id: str
    ids: BodyIds  # of its end user and its chat


def parse_chat(raw: bytes) -> ChatRequest:
    """Parse a request body.

    Raises:
        ApiError: 400, naming the invalid parameter.
    """
    given = parse_object(raw)
    body = convert(given, ChatBody)
    _check(body)
    conversation = _conversation_messages(body.messages)
    instructions = _instructions(body.messages)
    new = _new_messages(conversation)
    is_question = new[-1].role == "user"
    return ChatRequest(
        message=new[-1].content if is_question else "",
        history=tuple(conversation[:-1] if is_question else conversation),
        messages=new,
        is_continuation=new[-1].role == "assistant",
        instructions=instructions,
        model=body.model or "",
        stream=parse_bool(body.stream, default=False),
        include_usage=bool(body.stream_options and body.stream_options.include_usage),
        options=_options(body, given),
        derived_session_id=derive_session_id(instructions, conversation),
        ids=BodyIds(
            body.user or "",
            body.safety_identifier or "",
            body.prompt_cache_key or "",
            body.metadata or NOTHING,
        ),
    )


def derive_session_id(instructions: str, conversation: Iterable[Message]) -> str:
    """Derive a session id from the start of the conversation, which clients send with every turn."""
    first: Content = next(
        (message.content for message in conversation if message.role == "user"), ""
    )
    text = first if isinstance(first, str) else str(list(first))
    digest = hashlib.sha256(f"{instructions}\n{text}".encode("utf-8", "surrogatepass"))
    return f"{DERIVED_PREFIX}{digest.hexdigest()[:16]}"


def _check(body: ChatBody) -> None:
    if not body.messages:
        raise bad_request("'messages' must be a non-empty array.", "messages")
    if body.n is not None and body.n != 1:
        raise bad_request(
            "Only n=1 is supported: an agent's turn has one outcome.", "n", "unsupported_value"
        )
    limits = {"max_tokens": body.max_tokens, "max_completion_tokens": body.max_completion_tokens}
    for name, limit in limits.items():
        if limit is not None and limit < 1:
            raise bad_request(f"'{name}' must be at least 1.", name)


def _instructions(messages: list[MessageBody]) -> str:
    texts = [
        system_text(message.content, f"messages[{n}].content")
        for n, message in enumerate(messages)
        if message.role in SYSTEM_ROLES
    ]
    return "\n".join(text for text in texts if text)


def _conversation_messages(messages: list[MessageBody]) -> list[Message]:
    for n, message in enumerate(messages):
        if message.role not in ROLES:
            known = ", ".join(sorted(ROLES))
            raise bad_request(
                f"Unknown role. Known roles: {known}.", f"messages[{n}].role", "invalid_role"
            )
    return [
        read_message(message, f"messages[{n}]")
        for n, message in enumerate(messages)
        if message.role in CONVERSATION_ROLES
    ]


def read_message(body: MessageBody | HistoryBody, param: str) -> Message:
    """Convert a user, assistant or tool message.

    Raises:
        ApiError: 400, if its content is invalid.
    """
    calls = tuple(
        ToolCall(call.id, call.function.name, call.function.arguments)
        for call in body.tool_calls or ()
    )
    content = user_content(body.content, f"{param}.content")
    return Message(body.role, content, calls, body.tool_call_id or "", body.name or "")


def _new_messages(conversation: list[Message]) -> tuple[Message, ...]:
    """Return what is new in this turn: the last message, or all trailing results of the client's tools.

    If the last message is the start of an answer, the question is new as well.
    """
    first = len(conversation)
    while first and conversation[first - 1].role == "tool":
        first -= 1
    if results := conversation[first:]:
        return tuple(results)
    if not conversation or not has_visible_payload(conversation[-1].content):
        raise bad_request("No user message found in 'messages'.", "messages")
    if conversation[-1].role == "user":
        return (Message("user", conversation[-1].content),)
    check_answer(conversation[-1], "messages")
    asked = [n for n, message in enumerate(conversation) if message.role == "user"]
    return tuple(conversation[asked[-1] if asked else -1 :])


def check_answer(last: Message, param: str) -> None:
    """Check that an assistant message in the last place can be continued.

    Raises:
        ApiError: 400, if it calls tools.
    """
    if last.tool_calls:
        raise bad_request(
            f"The last message in '{param}' calls tools: send their results after it.", param
        )


def _options(body: ChatBody, given: dict[str, Any]) -> dict[str, Any]:
    named = [name for name in _OPTIONS if name in given and given[name] is not None]
    options = {name: getattr(body, name) for name in named} if named else {}
    if body.max_completion_tokens:
        options["max_tokens"] = body.max_completion_tokens
    return options
