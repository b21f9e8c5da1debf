"""Items and the conversations made of them, as the Responses and Conversations APIs take and show them.

Items are validated, brought into the one form that the API shows, and converted to the transcript an agent reads.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from attrs import define, field, frozen

from hermes_trio.core.dialects.responses_items import SERVER_LABEL, input_text, item_id
from hermes_trio.core.dialects.wire import encode
from hermes_trio.core.errors import bad_request
from hermes_trio.core.messages import Content, Message, ToolCall
from hermes_trio.core.records import Conversation
from hermes_trio.core.shorten import shorten
from hermes_trio.schema.content import system_text, user_content
from hermes_trio.schema.parsing import convert, parse_object, read_text, require_text

InputItem = Mapping[str, Any]

SYSTEM_ROLES = frozenset({"system", "developer"})
ROLES = SYSTEM_ROLES | {"user", "assistant"}
STATUSES = frozenset({"in_progress", "completed", "incomplete"})
MCP_STATUSES = STATUSES | {"calling", "failed"}

REFERENCE = "item_reference"

_PREFIXES = {
    "message": "msg",
    "function_call": "fc",
    "function_call_output": "fco",
    "mcp_call": "mcp",
    "reasoning": "rs",
    "mcp_approval_request": "mcpr",
    "mcp_approval_response": "mcpa",
}
_APPROVAL_ITEMS = frozenset({"mcp_approval_request", "mcp_approval_response"})
_CUT_SHORT = "[cancelled before it ended]"  # as in core.messages.transcript()


def read_input(value: object) -> tuple[InputItem, ...]:
    """Parse the ``input`` of a response: a string, or an array of strings, items and references.

    Items get no ids yet.

    Raises:
        ApiError: 400, naming the invalid item.
    """
    if isinstance(value, str):
        return (_message_item("user", value, "input"),)
    if not isinstance(value, list):
        raise bad_request("'input' must be a string or an array.", "input")
    return tuple(_input_item(item, f"input[{n}]") for n, item in enumerate(value))


def read_items(values: Iterable[object], param: str) -> tuple[InputItem, ...]:
    """Parse an array of items into the form that the API shows.

    Raises:
        ApiError: 400, naming the invalid item.
    """
    return tuple(_item(value, f"{param}[{n}]") for n, value in enumerate(values))


def with_ids(seed: str, items: Iterable[InputItem]) -> tuple[InputItem, ...]:
    """Add ids derived from a seed that is unique per list, such as a run's id. Output items keep theirs.

    Items parsed from a request have no ids even if the client sent some: those belong to the items they were copied from.
    """
    return tuple(
        {"id": item_id(_PREFIXES[item["type"]], seed, f"input {n}"), **item}
        for n, item in enumerate(items)
    )


def _item(value: object, param: str) -> InputItem:
    if isinstance(value, str):
        return _message_item("user", value, param)
    if not isinstance(value, Mapping):
        raise bad_request(f"'{param}' must be a string or an object.", param)
    kind = read_text(value, "type", "message", f"{param}.type")
    if kind in _READERS:
        return _READERS[kind](value, param)
    if kind == REFERENCE:
        message = (
            f"{param}: a reference is only possible in the input of a turn, send the item itself."
        )
    else:
        known = ", ".join(_READERS)
        message = f"{param}: items of type '{shorten(kind, 60)}' are not supported, only {known}."
    raise bad_request(message, f"{param}.type", "unsupported_item_type")


def _input_item(value: object, param: str) -> InputItem:
    """Parse an item of an ``input``, which may refer to a stored one."""
    if isinstance(value, Mapping) and (
        value.get("type") == REFERENCE or value.keys() == {"id"}  # the type of one is optional
    ):
        return {"type": REFERENCE, "id": require_text(value, "id", f"{param}.id")}
    return _item(value, param)


def find_references(items: Iterable[InputItem]) -> dict[int, str]:
    """Return the ids of the items that an input refers to, by position."""
    return {n: item["id"] for n, item in enumerate(items) if item["type"] == REFERENCE}


def _message(value: InputItem, param: str) -> InputItem:
    role = read_text(value, "role", "user", f"{param}.role")
    if role not in ROLES:
        known = ", ".join(sorted(ROLES))
        raise bad_request(
            f"{param}: unknown role. Known roles: {known}.", f"{param}.role", "invalid_role"
        )
    return {
        **_message_item(role, value.get("content"), f"{param}.content"),
        **_status(value, param),
    }


def _message_item(role: str, content: object, param: str) -> dict[str, Any]:
    parts = _parts(content, param)
    if role == "assistant":
        parts = [
            {"type": "output_text", "text": part["text"], "annotations": []}
            if "text" in part
            else part
            for part in parts
        ]
    return {"type": "message", "role": role, "status": "completed", "content": parts}


def _parts(content: object, param: str) -> list[dict[str, Any]]:
    """Return content as the API shows it: a list with one part for each part the client sent."""
    whole = user_content(
        content, param
    )  # rejects invalid content before parts are converted one by one
    if not isinstance(content, list):
        return _as_input(whole)
    return [part for piece in content for part in _as_input(user_content([piece], param))]


def _as_input(content: Content) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [input_text(content)] if content else []
    images = (part["image_url"] for part in content)
    return [
        {"type": "input_image", "image_url": image["url"], "detail": image.get("detail", "auto")}
        for image in images
    ]


def _call(value: InputItem, param: str) -> InputItem:
    return {
        "type": "function_call",
        "call_id": require_text(value, "call_id", f"{param}.call_id"),
        "name": require_text(value, "name", f"{param}.name"),
        "arguments": read_text(value, "arguments", "{}", f"{param}.arguments"),
        **_status(value, param),
    }


def _result(value: InputItem, param: str) -> InputItem:
    output = value.get("output")
    if not isinstance(output, str | list):
        raise bad_request(
            f"'{param}.output' must be a string or an array of parts.", f"{param}.output"
        )
    return {
        "type": "function_call_output",
        "call_id": require_text(value, "call_id", f"{param}.call_id"),
        "output": output if isinstance(output, str) else _parts(output, f"{param}.output"),
        **_status(value, param),
    }


def _mcp_call(value: InputItem, param: str) -> InputItem:
    """Read a tool call that a server has run: the call and its result in one item."""
    error = value.get("error")
    failed = {"error": error} if isinstance(error, str | Mapping) else {}
    return {
        "type": "mcp_call",
        "server_label": read_text(value, "server_label", SERVER_LABEL, f"{param}.server_label"),
        "name": require_text(value, "name", f"{param}.name"),
        "arguments": read_text(value, "arguments", "{}", f"{param}.arguments"),
        "output": read_text(value, "output", "", f"{param}.output") or None,
        "error": None,
        "approval_request_id": None,
        **failed,
        **_status(value, param, MCP_STATUSES),
    }


def _reasoning(value: InputItem, param: str) -> InputItem:
    summary = value.get("summary") or []
    if not isinstance(summary, list):
        raise bad_request(f"'{param}.summary' must be an array.", f"{param}.summary")
    parts = []
    for n, part in enumerate(summary):
        place = f"{param}.summary[{n}]"
        if not isinstance(part, Mapping):
            raise bad_request(f"'{place}' must be an object.", place)
        parts.append({"type": "summary_text", "text": read_text(part, "text", "", f"{place}.text")})
    return {"type": "reasoning", "summary": parts, **_status(value, param)}


def _approval_request(value: InputItem, param: str) -> InputItem:
    """Read an approval request of an earlier response. It keeps its id, which the answer names."""
    given_id = read_text(value, "id", param=f"{param}.id")
    return {
        "type": "mcp_approval_request",
        "server_label": read_text(value, "server_label", SERVER_LABEL, f"{param}.server_label"),
        "name": require_text(value, "name", f"{param}.name"),
        "arguments": read_text(value, "arguments", "{}", f"{param}.arguments"),
        **({"id": given_id} if given_id else {}),
    }


def _approval_response(value: InputItem, param: str) -> InputItem:
    if not isinstance(value.get("approve"), bool):
        raise bad_request(f"'{param}.approve' must be true or false.", f"{param}.approve")
    place = f"{param}.approval_request_id"
    return {
        "type": "mcp_approval_response",
        "approval_request_id": require_text(value, "approval_request_id", place),
        "approve": value["approve"],
        "reason": read_text(value, "reason", param=f"{param}.reason") or None,
    }


def _status(value: InputItem, param: str, statuses: frozenset[str] = STATUSES) -> dict[str, str]:
    status = read_text(value, "status", "completed", f"{param}.status")
    if status not in statuses:
        known = ", ".join(sorted(statuses))
        raise bad_request(f"'{param}.status' must be one of {known}.", f"{param}.status")
    return {"status": status}


_READERS: dict[str, Callable[[InputItem, str], InputItem]] = {
    "message": _message,
    "function_call": _call,
    "function_call_output": _result,
    "mcp_call": _mcp_call,
    "reasoning": _reasoning,
    "mcp_approval_request": _approval_request,
    "mcp_approval_response": _approval_response,
}


@frozen
class ApprovalResponseItem:
    """An answer to an approval request in the input of a turn."""

    position: int  # in the input
    request_id: str
    is_approved: bool


def find_approval_replies(items: Iterable[InputItem]) -> tuple[ApprovalResponseItem, ...]:
    """Return the answers to approval requests in an input, in its order."""
    return tuple(
        ApprovalResponseItem(n, item["approval_request_id"], item["approve"])
        for n, item in enumerate(items)
        if item["type"] == "mcp_approval_response"
    )


@define
class _AssistantRound:
    """One assistant message under construction, and the results of its calls."""

    text: list[Content] = field(factory=list)
    reasoning: list[str] = field(factory=list)
    calls: list[tuple[ToolCall, InputItem | None]] = field(factory=list)

    def messages(self) -> list[Message]:
        if not (self.text or self.reasoning or self.calls):
            return []
        asked = tuple(call for call, _ in self.calls)
        said = Message("assistant", _joined(self.text), asked, reasoning="".join(self.reasoning))
        return [
            said,
            *(
                _result_message(result, call.name)
                for call, result in self.calls
                if result is not None
            ),
        ]


def items_to_messages(items: Sequence[InputItem]) -> tuple[Message, ...]:
    """Convert input or output items to the transcript that an agent reads.

    Each result follows the message that made its call, wherever it was among the items, because models require it. A result
    without a call answers a call of an earlier turn and keeps its position.
    """
    # What was approved shows in the calls that were run.
    items = _split_mcp_calls([item for item in items if item["type"] not in _APPROVAL_ITEMS])
    results = _match_results(items)
    messages: list[Message] = []
    current = _AssistantRound()
    for n, item in enumerate(items):
        if _begins_round(item, n, current, results):
            messages += current.messages()
            current = _AssistantRound()
        messages += _add(current, item, n, results)
    return (*messages, *current.messages())


def _split_mcp_calls(items: Sequence[InputItem]) -> list[InputItem]:
    """Replace each ``mcp_call`` by the call and the result that it is made of."""
    split: list[InputItem] = []
    for n, item in enumerate(items):
        if item["type"] != "mcp_call":
            split.append(item)
            continue
        call_id = item.get("id") or f"mcp_{n}"
        output = item["output"] or (encode(item["error"]) if item["error"] else "")
        status = "incomplete" if item["status"] == "incomplete" else "completed"
        call = {"type": "function_call", "name": item["name"], "arguments": item["arguments"]}
        split.append({**call, "call_id": call_id})
        split.append(
            {"type": "function_call_output", "call_id": call_id, "output": output, "status": status}
        )
    return split


def _match_results(items: Sequence[InputItem]) -> dict[int, InputItem]:
    """Map each call's position to its result, and each result without a call to itself by its own position.

    Call ids are unique in a turn, not in a conversation: a result belongs to the oldest open call with its id. A
    second result is appended to the first: frameworks that tried to run a call of the server send one.
    """
    matched: dict[int, InputItem] = {}
    waiting: defaultdict[str, list[int]] = defaultdict(list)
    answered: dict[str, int] = {}
    for n, item in enumerate(items):
        if item["type"] == "function_call":
            waiting[item["call_id"]].append(n)
        elif item["type"] == "function_call_output":
            call_id = item["call_id"]
            if waiting[call_id]:
                answered[call_id] = waiting[call_id].pop(0)
                matched[answered[call_id]] = item
            elif call_id in answered:
                first = matched[answered[call_id]]
                output = [*_output_parts(first), *_output_parts(item)]
                matched[answered[call_id]] = {**first, "output": output}
            else:
                matched[n] = item
    return matched


def _output_parts(result: InputItem) -> list[dict[str, Any]]:
    output = result["output"]
    return _as_input(output) if isinstance(output, str) else list(output)


def _begins_round(
    item: InputItem, n: int, current: _AssistantRound, results: Mapping[int, InputItem]
) -> bool:
    """Return whether the current assistant message ends before this item."""
    if item["type"] == "message" and item["role"] != "assistant":
        return True
    if item["type"] == "function_call_output":
        return n in results
    return item["type"] != "function_call" and bool(current.calls)


def _add(
    into: _AssistantRound, item: InputItem, n: int, results: Mapping[int, InputItem]
) -> list[Message]:
    """Add the item to the assistant message, or return it as a message of its own."""
    match item["type"]:
        case "function_call":
            into.calls.append(
                (ToolCall(item["call_id"], item["name"], item["arguments"]), results.get(n))
            )
        case "function_call_output":
            return [_result_message(item, "")] if n in results else []
        case "reasoning":
            into.reasoning += [part["text"] for part in item["summary"]]
        case _ if item["role"] == "assistant":
            into.text.append(user_content(item["content"], "content"))
        case _ if item["role"] in SYSTEM_ROLES:
            return [Message("system", system_text(item["content"]))]
        case _:
            return [Message("user", user_content(item["content"], "content"))]
    return []


def _joined(texts: list[Content]) -> Content:
    if all(isinstance(text, str) for text in texts):
        return "".join(text for text in texts if isinstance(text, str))
    parts: list[Mapping[str, Any]] = []
    for text in texts:
        parts += [{"type": "text", "text": text}] if isinstance(text, str) else text
    return tuple(parts)


def _result_message(item: InputItem, name: str) -> Message:
    output = item["output"]
    content = output if isinstance(output, str) else user_content(output, "output")
    if item.get("status") == "incomplete" and isinstance(content, str):
        content = f"{content}\n{_CUT_SHORT}".lstrip()
    return Message("tool", content, tool_call_id=item["call_id"], name=name)


MAX_ITEMS = 20  # in one call
MAX_PAIRS = 16
MAX_KEY = 64
MAX_VALUE = 512


@frozen
class ConversationBody:
    """``POST /v1/conversations``."""

    items: list[Any] | None = None
    metadata: dict[str, Any] | None = None


@frozen
class ConversationUpdateBody:
    """``POST /v1/conversations/{conversation_id}``."""

    metadata: dict[str, Any] | None


@frozen
class ConversationItemsBody:
    """``POST /v1/conversations/{conversation_id}/items``."""

    items: list[Any]


@frozen
class ConversationRequest:
    """A parsed request to create a conversation."""

    items: tuple[InputItem, ...]  # without ids
    metadata: Mapping[str, str]


def parse_conversation(raw: bytes) -> ConversationRequest:
    """Parse the body that creates a conversation; an empty body creates an empty one.

    Raises:
        ApiError: 400, naming the invalid parameter.
    """
    body = convert(parse_object(raw or b"{}"), ConversationBody)
    return ConversationRequest(_items(body.items or []), read_metadata(body.metadata))


def parse_conversation_update(raw: bytes) -> Mapping[str, str]:
    """Parse the body that replaces the metadata of a conversation.

    Raises:
        ApiError: 400, naming the invalid parameter.
    """
    return read_metadata(convert(parse_object(raw), ConversationUpdateBody).metadata)


def parse_conversation_items(raw: bytes) -> tuple[InputItem, ...]:
    """Parse the body that appends items to a conversation.

    Raises:
        ApiError: 400, naming the invalid parameter.
    """
    body = convert(parse_object(raw), ConversationItemsBody)
    if not body.items:
        raise bad_request("'items' must be a non-empty array.", "items")
    return _items(body.items)


def read_metadata(value: Mapping[str, Any] | None) -> Mapping[str, str]:
    """Validate the metadata that a client attaches.

    Raises:
        ApiError: 400, naming the invalid pair.
    """
    pairs = value or {}
    if len(pairs) > MAX_PAIRS:
        raise bad_request(f"'metadata' must have at most {MAX_PAIRS} pairs.", "metadata")
    for key, text in pairs.items():
        param = f"metadata.{shorten(key, MAX_KEY)}"
        if len(key) > MAX_KEY:
            raise bad_request(f"'{param}': keys must be at most {MAX_KEY} characters long.", param)
        if not isinstance(text, str):
            raise bad_request(f"'{param}' must be a string.", param)
        if len(text) > MAX_VALUE:
            raise bad_request(f"'{param}' must be at most {MAX_VALUE} characters long.", param)
    return dict(pairs)


def conversation_object(conversation: Conversation) -> dict[str, Any]:
    """Return a conversation as the API shows it."""
    return {
        "id": conversation.conversation_id,
        "object": "conversation",
        "created_at": int(conversation.created_at),
        "metadata": dict(conversation.metadata),
    }


def item_list(items: Sequence[InputItem], has_more: bool) -> dict[str, Any]:
    """Return a page of items. SDKs request the next page after ``last_id``."""
    return {
        "object": "list",
        "data": list(items),
        "first_id": items[0]["id"] if items else None,
        "last_id": items[-1]["id"] if items else None,
        "has_more": has_more,
    }


def _items(values: list[Any]) -> tuple[InputItem, ...]:
    if len(values) > MAX_ITEMS:
        raise bad_request(f"'items' must have at most {MAX_ITEMS} items.", "items")
    return read_items(values, "items")
