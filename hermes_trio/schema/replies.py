"""Replies of every route, as classes.

The OpenAPI document is generated from these classes, including their docstrings, and tests validate replies against them.
"""

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


@frozen
class ResponseReply:
    """A response. Every field is there, null where it says nothing."""

    id: str
    object: Literal["response"]
    created_at: int
    status: Literal["completed", "failed", "in_progress", "cancelled", "queued", "incomplete"]
    background: bool
    completed_at: int | None
    error: dict[str, Any] | None
    incomplete_details: dict[str, Any] | None
    model: str
    output: list[dict[str, Any]]
    conversation: dict[str, Any] | None
    frequency_penalty: float
    instructions: str | None
    max_output_tokens: int | None
    max_tool_calls: int | None
    metadata: dict[str, str]
    parallel_tool_calls: bool
    presence_penalty: float
    previous_response_id: str | None
    prompt_cache_key: str | None
    reasoning: dict[str, Any] | None
    safety_identifier: str | None
    service_tier: str
    store: bool
    temperature: float
    text: dict[str, Any]
    tool_choice: str | dict[str, Any]
    tools: list[dict[str, Any]]
    top_logprobs: int
    top_p: float
    truncation: str
    user: str | None
    usage: dict[str, Any] | None
    hermes: dict[str, Any] | None = None


@frozen
class ResponseEvent:
    """One event of a stream; the rest of its fields depend on its type."""

    type: str
    sequence_number: int


@frozen
class Deleted:
    """What was forgotten."""

    id: str
    object: str
    deleted: bool


@frozen
class Item:
    """An item of an input, an output or a conversation; the rest of its fields depend on its type."""

    id: str
    type: str


@frozen
class ItemList:
    """A page of items."""

    data: list[Item]
    first_id: str | None
    last_id: str | None
    has_more: bool
    object: Literal["list"] = "list"


@frozen
class ConversationReply:
    """A conversation, without its items."""

    id: str
    created_at: int
    metadata: dict[str, str]
    object: Literal["conversation"] = "conversation"


@frozen
class RunStarted:
    """A run that was begun."""

    run_id: str
    status: Literal["started"]


@frozen
class RunReply:
    """A run as it stands. One that has ended has its output and usage, and says why it did not simply complete."""

    object: Literal["hermes.run"]
    run_id: str
    kind: str
    status: Literal[
        "queued", "running", "waiting_for_approval", "stopping", "completed", "failed", "cancelled"
    ]
    created_at: float
    updated_at: float
    session_id: str
    model: str
    last_event: str
    metadata: dict[str, str]
    output: str | None = None
    usage: dict[str, Any] | None = None
    error: str | None = None
    reason: str | None = None
    incomplete: bool | None = None
    approval: dict[str, Any] | None = None  # the question that waits longest
    approvals_pending: int | None = None


@frozen
class RunList:
    """A page of runs, without their output."""

    object: Literal["list"]
    data: list[RunReply]
    first_id: str | None
    last_id: str | None
    has_more: bool


@frozen
class RunStopped:
    """A run that was asked to stop, or that had ended before."""

    run_id: str
    status: Literal["stopping", "completed", "failed", "cancelled"]


@frozen
class RunEvent:
    """One event of a run; the rest of its fields depend on its kind."""

    event: str
    run_id: str
    timestamp: float
    seq: int


@frozen
class ApprovalReply:
    """Questions that were answered."""

    object: Literal["hermes.run.approval_response"]
    run_id: str
    choice: Literal["once", "session", "always", "deny"]
    resolved: int


@frozen
class RememberedApproval:
    """An approval that holds until it is revoked."""

    object: Literal["hermes.approval"]
    pattern: str
    session_id: str | None  # null: in all sessions
    created_at: float


@frozen
class RememberedApprovals:
    """All of them, oldest first."""

    object: Literal["list"]
    data: list[RememberedApproval]


@frozen
class RevokedApproval:
    """One that does not hold any more."""

    object: Literal["hermes.approval.deleted"]
    pattern: str
    session_id: str | None
    deleted: Literal[True]


@frozen
class SessionObject:
    """A session. Its system prompt is not told, only that there is one."""

    id: str
    source: Literal["api_server"]
    kind: str  # the API that made it: chat, responses, runs, sessions
    user_id: str | None
    model: str | None
    title: str | None
    started_at: float
    ended_at: float | None
    end_reason: str | None
    message_count: int
    tool_call_count: int
    api_call_count: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    estimated_cost_usd: float | None
    actual_cost_usd: float | None
    parent_session_id: str | None
    last_active: float
    preview: str
    has_system_prompt: bool
    has_model_config: bool


@frozen
class SessionReply:
    """One session."""

    object: Literal["hermes.session"]
    session: SessionObject


@frozen
class SessionList:
    """A page of sessions, the one with the latest activity first."""

    object: Literal["list"]
    data: list[SessionObject]
    limit: int
    offset: int
    has_more: bool


@frozen
class SessionGone:
    """A session that was deleted."""

    object: Literal["hermes.session.deleted"]
    id: str
    deleted: bool


@frozen
class SessionMessage:
    """One message of a transcript."""

    id: int
    session_id: str
    role: str
    content: str | list[dict[str, Any]]
    tool_call_id: str | None
    tool_calls: list[dict[str, Any]] | None
    tool_name: str | None
    reasoning: str | None
    timestamp: float
    token_count: int | None
    finish_reason: str | None
    run_id: str


@frozen
class SessionMessages:
    """A page of a transcript, in the order it was said."""

    object: Literal["list"]
    session_id: str
    data: list[SessionMessage]
    has_more: bool


@frozen
class SessionChatReply:
    """A turn in one piece."""

    object: Literal["hermes.session.chat.completion"]
    session_id: str
    run_id: str
    message: dict[str, Any]
    usage: dict[str, Any]
    completed: bool
    partial: bool
    interrupted: bool
    reason: str | None = None


@frozen
class SessionEvent:
    """One event of a turn; the rest of its fields depend on its kind."""

    session_id: str
    run_id: str
    seq: int
    ts: float
