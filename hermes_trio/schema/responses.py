"""``POST /v1/responses``: the body as clients send it, parsed into a ``ResponsesRequest``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from attrs import asdict, evolve, frozen

from hermes_trio.core.dialects.responses import ECHO
from hermes_trio.core.dialects.responses_items import SERVER_LABEL
from hermes_trio.core.errors import bad_request
from hermes_trio.core.messages import Content, Message
from hermes_trio.core.records import NOTHING
from hermes_trio.schema.chat import (
    CONVERSATION_ROLES,
    HistoryBody,
    check_answer,
    read_message,
)
from hermes_trio.schema.content import has_visible_payload, system_text
from hermes_trio.schema.conversations import (
    SYSTEM_ROLES,
    InputItem,
    find_references,
    items_to_messages,
    read_input,
    read_metadata,
)
from hermes_trio.schema.front_ends import BodyIds
from hermes_trio.schema.parsing import (
    convert,
    parse_bool,
    parse_object,
    read_integer,
    read_number,
    read_text,
)

MAX_NAME = 256  # characters of a conversation's name and of an id


@frozen
class ConversationRef:
    """A conversation by its id."""

    id: str


@frozen
class ResponsesBody:
    """A Responses request. Unknown fields are ignored."""

    input: Any = None
    model: str | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation: str | ConversationRef | None = None
    conversation_history: list[HistoryBody] | None = None
    store: Any = True
    stream: Any = False
    background: Any = False
    stream_options: dict[str, Any] | None = None
    include: list[str] | None = None
    truncation: Literal["auto", "disabled"] | None = None
    metadata: dict[str, Any] | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_logprobs: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: Literal["auto", "none", "required"] | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    reasoning: dict[str, Any] | None = None
    text: dict[str, Any] | None = None
    service_tier: str | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None


# Fields that are passed on to the agent.
_OPTIONS = (
    "temperature", "top_p", "max_tokens", "max_tool_calls", "presence_penalty", "frequency_penalty", "tools",
    "tool_choice", "parallel_tool_calls", "reasoning", "reasoning_effort", "text", "include", "truncation", "metadata",
    "user",
)  # fmt: skip

_WHOLE_NUMBERS: dict[str, tuple[int, int | None]] = {
    "max_output_tokens": (1, None),  # OpenAI requires at least 16; smaller values do no harm here
    "max_tool_calls": (1, None),
    "top_logprobs": (0, 20),
}
_NUMBERS = {
    "temperature": (0, 2),
    "top_p": (0, 1),
    "presence_penalty": (-2, 2),
    "frequency_penalty": (-2, 2),
}


@frozen
class ResponsesRequest:
    """A parsed request."""

    message: Content  # "" if the client returns results of its own tools, or continues an answer
    history: tuple[Message, ...]  # what precedes the message in the input
    messages: tuple[Message, ...]  # everything the client sent in this turn, including the message
    # the input as the API shows it, without ids; while it has references, the three above are empty
    input_items: tuple[InputItem, ...]
    instructions: str  # the field, and the system messages of the input
    has_instructions: bool  # if not, those of the previous response apply
    model: str  # "" if the client named none
    stream: bool
    store: bool
    background: bool
    truncate: bool  # a long history may be truncated
    previous_response_id: str  # "" for none
    conversation: str  # a name or an id, "" for none
    explicit_history: tuple[
        Message, ...
    ]  # overrides previous_response_id and conversation, unless empty
    metadata: Mapping[str, str]
    options: Mapping[str, Any]
    echo: Mapping[str, Any]  # fields that replies repeat; kept in the header of the run
    ids: BodyIds  # of its end user and its chat

    @property
    def is_chained(self) -> bool:
        """Whether it continues a conversation or a response that the server has."""
        return bool(self.conversation or self.previous_response_id)

    @property
    def is_continuation(self) -> bool:
        """Whether the last message is the start of the answer, which the agent is to continue."""
        return bool(self.messages) and self.messages[-1].role == "assistant"

    @property
    def answers_approval(self) -> bool:
        """Whether the input ends with an answer to an approval request, whose run it continues."""
        return bool(self.input_items) and self.input_items[-1]["type"] == "mcp_approval_response"

    @property
    def wants_approval_items(self) -> bool:
        """Whether the client knows this server as a hosted MCP server that may ask for approvals."""
        tools = self.options.get("tools", ())
        return any(
            tool["type"] == "mcp"
            and tool.get("server_label") == SERVER_LABEL
            and tool.get("require_approval") != "never"
            for tool in tools
        )


def parse_responses(raw: bytes) -> ResponsesRequest:
    """Parse a request body.

    Raises:
        ApiError: 400, naming the invalid parameter.
    """
    return read_responses(convert(parse_object(raw), ResponsesBody))


def read_responses(body: ResponsesBody) -> ResponsesRequest:
    """Parse a body whose fields have the right types. The Runs API uses it for the fields it shares.

    Raises:
        ApiError: 400, naming the invalid parameter.
    """
    _check(body)
    items = read_input(body.input)
    request = ResponsesRequest(
        message="",
        history=(),
        messages=(),
        input_items=items,
        instructions=body.instructions or "",
        has_instructions=bool(body.instructions),
        model=body.model or "",
        stream=parse_bool(body.stream, default=False),
        store=parse_bool(body.store, default=True),
        background=parse_bool(body.background, default=False),
        truncate=body.truncation == "auto",
        previous_response_id=body.previous_response_id or "",
        conversation=_conversation(body),
        explicit_history=tuple(
            _history_message(message, f"conversation_history[{n}]")
            for n, message in enumerate(body.conversation_history or ())
        ),
        metadata=read_metadata(body.metadata),
        options=_options(body),
        echo=_echo(body),
        ids=BodyIds(
            body.user or "",
            body.safety_identifier or "",
            body.prompt_cache_key or "",
            body.metadata or NOTHING,
        ),
    )
    return request if find_references(items) else with_input(request, items)


def with_input(request: ResponsesRequest, items: tuple[InputItem, ...]) -> ResponsesRequest:
    """Return a request with an input that has no references left.

    Raises:
        ApiError: 400 if there is nothing to answer in it.
    """
    request = evolve(request, input_items=items)
    if request.answers_approval:  # the agent that asked has everything else
        return request
    messages = tuple(message for message in items_to_messages(items) if message.role != "system")
    is_question = _is_question(messages)
    instructions = join_instructions(request.instructions, items)
    return evolve(
        request,
        message=messages[-1].content if is_question else "",
        history=messages[:-1] if is_question else messages,
        messages=messages,
        instructions=instructions,
        has_instructions=bool(instructions),
    )


def _check(body: ResponsesBody) -> None:
    if body.input is None:
        raise bad_request("Missing required parameter: 'input'.", "input")
    _check_chain(body)
    if parse_bool(body.background, default=False) and not parse_bool(body.store, default=True):
        raise bad_request(
            "'background' needs 'store': nobody could fetch the response.", "background"
        )
    given = asdict(body, recurse=False)
    for name, (low, high) in _WHOLE_NUMBERS.items():
        read_integer(given, name, low, high)
    for name, (least, most) in _NUMBERS.items():
        read_number(given, name, least, most)
    for n, tool in enumerate(body.tools or ()):
        if not read_text(tool, "type", param=f"tools[{n}].type"):
            raise bad_request(f"Missing required parameter: 'tools[{n}].type'.", f"tools[{n}].type")


def _check_chain(body: ResponsesBody) -> None:
    conversation = _conversation(body)
    if conversation and body.previous_response_id:
        raise bad_request(
            "Cannot use both 'conversation' and 'previous_response_id'.", "conversation"
        )
    given = {"conversation": conversation, "previous_response_id": body.previous_response_id}
    for name in given:
        read_text(given, name, limit=MAX_NAME)


def _conversation(body: ResponsesBody) -> str:
    named = body.conversation
    return (named.id if isinstance(named, ConversationRef) else named) or ""


def join_instructions(given: str, items: Iterable[InputItem]) -> str:
    """Return the instructions of a request with those in the messages of its input."""
    texts = [
        system_text(item["content"])
        for item in items
        if item["type"] == "message" and item["role"] in SYSTEM_ROLES
    ]
    return "\n".join(text for text in (given, *texts) if text)


def _is_question(messages: tuple[Message, ...]) -> bool:
    """Return whether the last message is a question.

    It is not if the client returns results of its own tools, or continues an answer.
    """
    if messages and messages[-1].role == "tool":
        return False
    if not messages or not has_visible_payload(messages[-1].content):
        raise bad_request("No user message found in 'input'.", "input")
    if messages[-1].role == "assistant":
        check_answer(messages[-1], "input")
        return False
    return True


def _history_message(body: HistoryBody, param: str) -> Message:
    if body.role not in CONVERSATION_ROLES | SYSTEM_ROLES:
        known = ", ".join(sorted(CONVERSATION_ROLES | SYSTEM_ROLES))
        raise bad_request(f"Unknown role. Known roles: {known}.", f"{param}.role", "invalid_role")
    if body.role in SYSTEM_ROLES:
        return Message("system", system_text(body.content, f"{param}.content"))
    return read_message(body, param)


def _options(body: ResponsesBody) -> dict[str, Any]:
    given = asdict(body, recurse=False)
    given["max_tokens"] = body.max_output_tokens
    given["reasoning_effort"] = (body.reasoning or {}).get("effort")
    return {name: given[name] for name in _OPTIONS if given[name] is not None}


def _echo(body: ResponsesBody) -> dict[str, Any]:
    """Return the fields that replies repeat, in the complete form that strict clients require."""
    given = asdict(body, recurse=False)
    given["store"] = parse_bool(body.store, default=True)
    given["previous_response_id"] = body.previous_response_id or None
    if body.tools is not None:
        given["tools"] = [_shown_tool(tool) for tool in body.tools]
    if body.reasoning is not None:
        given["reasoning"] = {"effort": None, "summary": None, **body.reasoning}
    if body.text is not None:
        given["text"] = {**ECHO["text"], **body.text}
    return {name: given[name] for name in ECHO if given[name] is not None}


def _shown_tool(tool: dict[str, Any]) -> dict[str, Any]:
    if tool["type"] != "function":
        return tool
    inner = tool.get(
        "function"
    )  # Chat Completions nests what Responses has flat; clients confuse the two
    flat = {**tool, **inner} if isinstance(inner, dict) else tool
    blank = {
        "type": "function",
        "name": "",
        "description": None,
        "parameters": None,
        "strict": None,
    }
    return {**blank, **{key: value for key, value in flat.items() if key != "function"}}
