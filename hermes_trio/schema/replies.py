"""What the routes answer, as classes: the OpenAPI document is made of them, and tests hold the answers against them."""

from __future__ import annotations

from typing import Any, Literal

from attrs import field, frozen


@frozen
class ErrorBody:
    """One error."""

    message: str
    type: str
    param: str | None
    code: str | None
    hermes: dict[str, Any] | None = None


@frozen
class ErrorEnvelope:
    """Every error of every route."""

    error: ErrorBody


@frozen
class ChatUsage:
    """Token counts of the whole turn, over all model calls."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: dict[str, int]
    completion_tokens_details: dict[str, int]


@frozen
class AssistantMessage:
    """The answer."""

    content: str | None  # null if there are only calls of the client's tools
    role: Literal["assistant"] = "assistant"
    reasoning_content: str | None = None
    tool_calls: list[dict[str, Any]] | None = None


@frozen
class ChatChoice:
    """The one choice."""

    message: AssistantMessage
    finish_reason: Literal["stop", "length", "tool_calls", "error"]
    index: int = 0


@frozen
class HermesBlock:
    """What a finish reason cannot say; present unless the turn simply completed."""

    completed: bool
    partial: bool
    failed: bool
    reason: str | None
    error: str | None
    error_code: str


@frozen
class ChatCompletion:
    """A whole answer."""

    id: str
    created: int
    model: str
    choices: list[ChatChoice]
    usage: ChatUsage
    object: Literal["chat.completion"] = "chat.completion"
    hermes: HermesBlock | None = None


@frozen
class ChunkDelta:
    """What a chunk adds."""

    role: Literal["assistant"] | None = None
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[dict[str, Any]] | None = None


@frozen
class ChunkChoice:
    """The one choice of a chunk."""

    delta: ChunkDelta
    finish_reason: Literal["stop", "length", "tool_calls", "error"] | None
    index: int = 0


@frozen
class ChatChunk:
    """One ``data:`` line of a stream. Under the event name ``hermes.tool.progress`` it also tells of a tool call."""

    id: str
    created: int
    model: str
    choices: list[ChunkChoice]
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    usage: ChatUsage | None = None
    hermes: HermesBlock | None = None
    error: ErrorBody | None = None
    tool: str | None = None
    name: str | None = None
    emoji: str | None = None
    label: str | None = None
    toolCallId: str | None = None  # noqa: N815 - the wire's name
    status: Literal["running", "completed", "cancelled"] | None = None
    args: dict[str, Any] | None = None
    input: dict[str, Any] | None = None
    result: str | None = None
    output: str | None = None
    duration: float | None = None
    isError: bool | None = None  # noqa: N815 - the wire's name
    event: dict[str, Any] | None = None
    approval: dict[str, Any] | None = None


@frozen
class Model:
    """A model that can be asked for."""

    id: str
    created: int
    root: str
    parent: str | None
    object: Literal["model"] = "model"
    owned_by: str = "hermes"
    permission: list[Any] = field(factory=list)


@frozen
class ModelList:
    """All of them."""

    data: list[Model]
    object: Literal["list"] = "list"


@frozen
class ShownSetting:
    """One option of the server; the value is empty if it is not set."""

    name: str
    value: str
    help: str


@frozen
class SettingList:
    """All of them."""

    data: list[ShownSetting]
    object: Literal["list"] = "list"


@frozen
class Health:
    """The process answers."""

    status: str
    platform: str
    version: str


@frozen
class Readiness:
    """Whether new runs are welcome."""

    status: Literal["ok", "unavailable"]
    reason: str | None = None


@frozen
class HealthDetails:
    """The state of the parts."""

    status: Literal["ok", "degraded"]
    readiness: dict[str, Any]
    platform: str
    version: str
    gateway_state: str
    platforms: dict[str, Any]
    active_agents: int
    slots: dict[str, int]
    tasks: int
    gateway_busy: bool
    gateway_drainable: bool
    exit_reason: str | None
    pid: int
    updated_at: float


@frozen
class Version:
    """The version, alone."""

    version: str


@frozen
class OpenApi:
    """The OpenAPI document."""

    openapi: str
    info: dict[str, Any]
    paths: dict[str, Any]
    components: dict[str, Any]


@frozen
class Capabilities:
    """What this server can do."""

    object: Literal["hermes.api_server.capabilities"]
    platform: str
    model: str
    auth: dict[str, Any]
    runtime: dict[str, Any]
    features: dict[str, Any]
    endpoints: dict[str, dict[str, str]]
