"""Build the body of a chat-completions request from a turn. Pure.

A request combines the profile (system prompt, model, fixed fields), the turn (instructions,
history, message, options) and the tools. The client's options override the profile's, except for
the model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from attrs import evolve, frozen

from hermes_trio.agent.interface import AgentConfig, TurnRequest
from hermes_trio.agents.upstream.completion import Completion
from hermes_trio.core.messages import Content, Message, ToolCall
from hermes_trio.tools.base import Tool

Json = dict[str, Any]

NO_RESULT = "[no result: the call was not answered]"

# Request options that are passed through: they mean the same to every model server.
_PASSED_OPTIONS = (
    "temperature", "top_p", "max_tokens", "stop", "seed", "presence_penalty", "frequency_penalty",
    "response_format", "reasoning_effort", "user",
)  # fmt: skip


# -- tools --


@frozen
class OfferedTools:
    """The tools of one turn, as the model sees them."""

    tools: tuple[Json, ...]
    client_names: frozenset[str]  # a call to one of these ends the turn; the client executes it
    # for the first request: a string or an object, None for the server's default
    choice: Any = None
    parallel: Any = None

    def request_fields(self, round_number: int, is_last: bool) -> Json:
        """Return the tool fields of a request.

        A forced call is forced only once, or the turn would never end.
        """
        if not self.tools:
            return {}
        is_forced = self.choice is not None and self.choice not in ("auto", "none")
        choice = "none" if is_last else "auto" if is_forced and round_number else self.choice
        given = {"tool_choice": choice, "parallel_tool_calls": self.parallel}
        return {"tools": list(self.tools)} | {
            name: value for name, value in given.items() if value is not None
        }


NO_TOOLS = OfferedTools((), frozenset())


def offer_tools(server_tools: Iterable[Tool], options: Mapping[str, Any]) -> OfferedTools:
    """Collect the tools of a turn. A client's tool replaces a server's tool of the same name."""
    theirs = {tool["function"]["name"]: tool for tool in _client_tools(options.get("tools"))}
    ours: dict[str, Json] = {}
    for tool in server_tools:
        shown = {
            "name": tool.name,
            "description": tool.description,
            "parameters": dict(tool.parameters),
        }
        ours[tool.name] = {"type": "function", "function": shown}
    return OfferedTools(
        tuple((ours | theirs).values()),
        frozenset(theirs),
        _tool_choice(options.get("tool_choice")),
        options.get("parallel_tool_calls"),
    )


def _client_tools(tools: object) -> Iterator[Json]:
    """Yield function tools in Chat Completions form.

    Other tool types are hosted by their provider, not here.
    """
    for tool in tools if isinstance(tools, list | tuple) else ():
        if isinstance(tool, Mapping) and tool.get("type", "function") == "function":
            inner = tool.get("function")
            flat = inner if isinstance(inner, Mapping) else tool
            if isinstance(flat.get("name"), str) and flat["name"]:
                shown = {k: v for k, v in flat.items() if k != "type" and v is not None}
                yield {"type": "function", "function": shown}


def _tool_choice(choice: object) -> object:
    """Normalize a tool choice of either API: a string, or the one function to call."""
    if isinstance(choice, str):
        return choice
    if not isinstance(choice, Mapping) or choice.get("type") != "function":
        return None
    inner = choice.get("function")
    name = (inner if isinstance(inner, Mapping) else choice).get("name")
    return {"type": "function", "function": {"name": name}} if name else None


# -- requests --


def fixed_fields(config: AgentConfig, turn: TurnRequest, model: str) -> Json:
    """Return the fields that are the same in every request of a turn.

    The model and the sampling options.
    """
    fixed = config.options.get("request")
    return {
        **(fixed if isinstance(fixed, Mapping) else {}),
        **_sampling(turn.options),
        **({"model": model} if model else {}),
    }


def initial_messages(config: AgentConfig, turn: TurnRequest) -> list[Json]:
    """Return the messages of a turn's first request.

    System prompt, history, and the user's message.
    """
    # Many models accept only one system message, and only as the first.
    earlier = (_plain_text(message.content) for message in turn.history if message.role == "system")
    layers = [config.system_prompt, turn.instructions, *earlier]
    system = "\n\n".join(layer for layer in layers if layer)
    history = [message for message in turn.history if message.role != "system"]
    keep_reasoning = bool(config.options.get("send_reasoning"))
    messages = [{"role": "system", "content": system}] if system else []
    messages += [
        sent for message in _with_results(history) for sent in _message(message, keep_reasoning)
    ]
    # An empty message with a history: the client returned the results of its own tools, or the
    # history ends with the start of an answer, which model servers continue when it comes last.
    return (
        messages
        if turn.message == "" and history
        else [*messages, _user(Message("user", turn.message))]
    )


def assistant_message(
    completion: Completion, calls: Sequence[ToolCall], config: AgentConfig
) -> Json:
    """Return the model's output as a message for the next request."""
    message = Message("assistant", completion.text, tuple(calls), reasoning=completion.reasoning)
    return _assistant(message, bool(config.options.get("send_reasoning")))


def tool_message(call_id: str, result: str) -> Json:
    """Return the result of a tool call as a message for the next request."""
    return {"role": "tool", "tool_call_id": call_id, "content": result}


def _sampling(options: Mapping[str, Any]) -> Json:
    found = {name: options[name] for name in _PASSED_OPTIONS if options.get(name) is not None}
    if "max_tokens" not in found and options.get("max_output_tokens") is not None:
        found["max_tokens"] = options["max_output_tokens"]
    return _text_options(options.get("text")) | found


def _text_options(text: object) -> Json:
    """Translate the ``text`` object of the Responses API to Chat Completions fields."""
    if not isinstance(text, Mapping):
        return {}
    found = {"verbosity": text["verbosity"]} if text.get("verbosity") else {}
    shape = text.get("format")
    if not isinstance(shape, Mapping) or shape.get("type") in (None, "text"):
        return found
    if shape["type"] == "json_schema" and "json_schema" not in shape:
        schema = {
            name: value for name, value in shape.items() if name != "type" and value is not None
        }
        return found | {"response_format": {"type": "json_schema", "json_schema": schema}}
    return found | {"response_format": dict(shape)}


# -- messages --


def _with_results(history: Sequence[Message]) -> Iterator[Message]:
    """Yield the history with a result for every call.

    Models reject it otherwise, and a client may have moved on.
    """
    for number, message in enumerate(history):
        yield message
        if message.tool_calls:
            results = {
                other.tool_call_id for other in history[number + 1 :] if other.role == "tool"
            }
            for call in message.tool_calls:
                if call.call_id not in results:
                    yield Message("tool", NO_RESULT, tool_call_id=call.call_id, name=call.name)


def _message(message: Message, keep_reasoning: bool) -> list[Json]:
    match message.role:
        case "assistant":
            sent = _assistant(message, keep_reasoning)
            return [sent] if sent["content"] or "tool_calls" in sent else []
        case "tool":
            return [tool_message(message.tool_call_id, "") | {"content": _content(message.content)}]
        case _:
            return [_user(message)]


def _user(message: Message) -> Json:
    named = {"name": message.name} if message.name else {}
    return {"role": "user", "content": _content(message.content), **named}


def _assistant(message: Message, keep_reasoning: bool) -> Json:
    sent: Json = {"role": "assistant", "content": _content(message.content) or None}
    if message.tool_calls:
        sent["tool_calls"] = [_call(call) for call in message.tool_calls]
    if keep_reasoning and message.reasoning:
        sent["reasoning_content"] = message.reasoning
    return sent


def _call(call: ToolCall) -> Json:
    function = {"name": call.name, "arguments": call.arguments or "{}"}
    return {"id": call.call_id, "type": "function", "function": function}


def _content(content: Content) -> Any:
    return content if isinstance(content, str) else [dict(part) for part in content]


def _plain_text(content: Content) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(str(part["text"]) for part in content if part.get("type") == "text")


# -- differences between servers --

_REFUSALS = frozenset({400, 404, 405, 415, 422, 501})


@frozen
class ServerQuirks:
    """What a model server supports for one model, learned from its refusals."""

    supports_streaming: bool = True
    supports_usage: bool = True  # ``stream_options.include_usage``
    token_limit_field: str = "max_tokens"  # noqa: S105 - the name of a field
    # Streams are requested again after they did not work: the answer may still come as a whole,
    # after a long silence.
    is_retrial: bool = False

    def apply(self, body: Mapping[str, Any]) -> Json:
        """Return the request in the form that the server supports."""
        adapted = {**body, "stream": self.supports_streaming}
        if self.supports_streaming and self.supports_usage:
            adapted["stream_options"] = {"include_usage": True}
        if "max_tokens" in adapted:
            adapted[self.token_limit_field] = adapted.pop("max_tokens")
        return adapted

    def after_refusal(self, status: int, text: str) -> ServerQuirks:
        """Return what to try after a refusal; the same quirks if the refusal has another reason."""
        if status not in _REFUSALS:
            return self
        words = text.lower()
        if "max_completion_tokens" in words and self.token_limit_field == "max_tokens":  # noqa: S105
            return evolve(self, token_limit_field="max_completion_tokens")  # noqa: S106
        if not self.supports_streaming or "stream" not in words:
            return self
        if self.supports_usage and ("stream_options" in words or "include_usage" in words):
            return evolve(self, supports_usage=False)
        return evolve(self, supports_streaming=False)
