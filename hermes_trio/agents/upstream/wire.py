"""From a turn to the body of a chat-completions request. Pure.

A request is built from the profile (system prompt, model, fixed fields), the turn (instructions, history, message,
options) and the tools. What the client asked for wins over what the profile says, apart from the model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from attrs import frozen

from hermes_trio.agent.interface import AgentConfig, TurnRequest
from hermes_trio.agents.upstream.answer import Answer
from hermes_trio.core.messages import Content, Message, ToolCall
from hermes_trio.tools.base import Tool

Json = dict[str, Any]

NO_RESULT = "[no result: the call was not answered]"

# Options of a request that mean the same to every model's server.
_PASSED = (
    "temperature", "top_p", "max_tokens", "stop", "seed", "presence_penalty", "frequency_penalty",
    "response_format", "reasoning_effort", "user",
)  # fmt: skip


@frozen
class Offer:
    """The tools of one turn, as the model is told of them."""

    tools: tuple[Json, ...]
    client_names: frozenset[str]  # calls of these end the turn; the client runs them
    choice: Any = None  # of the first call: a word or an object, None for the server's default
    parallel: Any = None

    def fields(self, round_number: int, is_last: bool) -> Json:
        """What a request says about tools. A forced call is forced once, or the turn would never end."""
        if not self.tools:
            return {}
        forced = self.choice is not None and self.choice not in ("auto", "none")
        choice = "none" if is_last else "auto" if forced and round_number else self.choice
        given = {"tool_choice": choice, "parallel_tool_calls": self.parallel}
        return {"tools": list(self.tools)} | {
            name: value for name, value in given.items() if value is not None
        }


def offer(server: Iterable[Tool], options: Mapping[str, Any]) -> Offer:
    """All tools of a turn. A client's tool takes the place of a server's tool of the same name."""
    theirs = {tool["function"]["name"]: tool for tool in _client_tools(options.get("tools"))}
    ours = {tool.name: _described(tool) for tool in server}
    return Offer(
        tuple((ours | theirs).values()),
        frozenset(theirs),
        _choice(options.get("tool_choice")),
        options.get("parallel_tool_calls"),
    )


def fixed_fields(config: AgentConfig, turn: TurnRequest, model: str) -> Json:
    """What stays the same in every request of a turn: the model and how it samples."""
    fixed = config.options.get("request")
    return {
        **(fixed if isinstance(fixed, Mapping) else {}),
        **_sampling(turn.options),
        **({"model": model} if model else {}),
    }


def opening(config: AgentConfig, turn: TurnRequest) -> list[Json]:
    """The messages of a turn's first request: the layers of the system prompt, the past, what the user says."""
    layers = [config.system_prompt, turn.instructions, *_system_texts(turn.history)]
    system = "\n\n".join(layer for layer in layers if layer)
    past = [message for message in turn.history if message.role != "system"]
    keep = bool(config.options.get("send_reasoning"))
    messages = [{"role": "system", "content": system}] if system else []
    messages += [told for message in _answered(past) for told in _message(message, keep)]
    # Nothing to say and a past: the client returned the results of its own tools.
    return messages if turn.message == "" and past else [*messages, _user(Message("user", turn.message))]


def assistant_message(answer: Answer, calls: Sequence[ToolCall], config: AgentConfig) -> Json:
    """What the model said, for the next request."""
    said = Message("assistant", answer.text, tuple(calls), reasoning=answer.reasoning)
    return _assistant(said, bool(config.options.get("send_reasoning")))


def tool_message(call_id: str, result: str) -> Json:
    """What came of a call, for the next request."""
    return {"role": "tool", "tool_call_id": call_id, "content": result}


def _sampling(options: Mapping[str, Any]) -> Json:
    found = {name: options[name] for name in _PASSED if options.get(name) is not None}
    if "max_tokens" not in found and options.get("max_output_tokens") is not None:
        found["max_tokens"] = options["max_output_tokens"]
    return _text_options(options.get("text")) | found


def _text_options(text: object) -> Json:
    """The ``text`` object of Responses, as Chat Completions has it."""
    if not isinstance(text, Mapping):
        return {}
    found = {"verbosity": text["verbosity"]} if text.get("verbosity") else {}
    shape = text.get("format")
    if not isinstance(shape, Mapping) or shape.get("type") in (None, "text"):
        return found
    if shape["type"] == "json_schema" and "json_schema" not in shape:
        schema = {name: value for name, value in shape.items() if name != "type" and value is not None}
        return found | {"response_format": {"type": "json_schema", "json_schema": schema}}
    return found | {"response_format": dict(shape)}


# -- tools --


def _described(tool: Tool) -> Json:
    shown = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return {"type": "function", "function": shown}


def _client_tools(tools: object) -> Iterator[Json]:
    """Functions in the form of Chat Completions; tools of other types are hosted elsewhere, not here."""
    for tool in tools if isinstance(tools, list | tuple) else ():
        if isinstance(tool, Mapping) and tool.get("type", "function") == "function":
            inner = tool.get("function")
            flat = inner if isinstance(inner, Mapping) else tool
            if isinstance(flat.get("name"), str) and flat["name"]:
                shown = {k: v for k, v in flat.items() if k != "type" and v is not None}
                yield {"type": "function", "function": shown}


def _choice(choice: object) -> object:
    """A word, or the one function to call, whichever of the two APIs it was written for."""
    if isinstance(choice, str):
        return choice
    if not isinstance(choice, Mapping) or choice.get("type") != "function":
        return None
    inner = choice.get("function")
    name = (inner if isinstance(inner, Mapping) else choice).get("name")
    return {"type": "function", "function": {"name": name}} if name else None


# -- messages --


def _system_texts(history: Iterable[Message]) -> Iterator[str]:
    """Many models take one system message only, and it has to be the first."""
    return (_plain(message.content) for message in history if message.role == "system")


def _answered(history: Sequence[Message]) -> Iterator[Message]:
    """The past with a result for every call: models refuse it otherwise, and a client may have moved on."""
    for number, message in enumerate(history):
        yield message
        if message.tool_calls:
            results = {other.tool_call_id for other in history[number + 1 :] if other.role == "tool"}
            for call in message.tool_calls:
                if call.call_id not in results:
                    yield Message("tool", NO_RESULT, tool_call_id=call.call_id, name=call.name)


def _message(message: Message, keep_reasoning: bool) -> list[Json]:
    match message.role:
        case "assistant":
            said = _assistant(message, keep_reasoning)
            return [said] if said["content"] or "tool_calls" in said else []
        case "tool":
            return [tool_message(message.tool_call_id, "") | {"content": _content(message.content)}]
        case _:
            return [_user(message)]


def _user(message: Message) -> Json:
    named = {"name": message.name} if message.name else {}
    return {"role": "user", "content": _content(message.content), **named}


def _assistant(message: Message, keep_reasoning: bool) -> Json:
    said: Json = {"role": "assistant", "content": _content(message.content) or None}
    if message.tool_calls:
        said["tool_calls"] = [_call(call) for call in message.tool_calls]
    if keep_reasoning and message.reasoning:
        said["reasoning_content"] = message.reasoning
    return said


def _call(call: ToolCall) -> Json:
    function = {"name": call.name, "arguments": call.arguments or "{}"}
    return {"id": call.call_id, "type": "function", "function": function}


def _content(content: Content) -> Any:
    return content if isinstance(content, str) else [dict(part) for part in content]


def _plain(content: Content) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(str(part["text"]) for part in content if part.get("type") == "text")
