"""Replies of every route, as classes.

The OpenAPI document is generated from these classes, including their docstrings, and tests validate replies against them.
"""

from __future__ import annotations

from typing import Any, Literal

from attrs import field, frozen

from hermes_trio.core.metric_history import MetricSample, RouteSummary


@frozen
class ErrorBody:
    """An error."""

    message: str
    type: str
    param: str | None
    code: str | None
    hermes: dict[str, Any] | None = None


@frozen
class ErrorEnvelope:
    """The body of every error."""

    error: ErrorBody


@frozen
class ChatUsage:
    """Token counts of the turn, summed over all its model calls."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: dict[str, int]
    completion_tokens_details: dict[str, int]


@frozen
class AssistantMessage:
    """The assistant's reply."""

    content: str | None  # null if there are only calls of the client's tools
    role: Literal["assistant"] = "assistant"
    reasoning_content: str | None = None
    tool_calls: list[dict[str, Any]] | None = None


@frozen
class ChatChoice:
    """The reply; there is always exactly one choice."""

    message: AssistantMessage
    finish_reason: Literal["stop", "length", "tool_calls", "error"]
    index: int = 0


@frozen
class HermesBlock:
    """Details of the outcome that a finish reason cannot express. Absent if the turn completed."""

    completed: bool
    partial: bool
    failed: bool
    reason: str | None
    error: str | None
    error_code: str


@frozen
class ChatCompletion:
    """A complete reply."""

    id: str
    created: int
    model: str
    choices: list[ChatChoice]
    usage: ChatUsage
    object: Literal["chat.completion"] = "chat.completion"
    hermes: HermesBlock | None = None


@frozen
class ChunkDelta:
    """The content that a chunk adds."""

    role: Literal["assistant"] | None = None
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[dict[str, Any]] | None = None


@frozen
class ChunkChoice:
    """The content of a chunk; there is always exactly one choice."""

    delta: ChunkDelta
    finish_reason: Literal["stop", "length", "tool_calls", "error"] | None
    index: int = 0


@frozen
class ChatChunk:
    """One ``data:`` line of a stream. The event ``hermes.tool.progress`` reports tool calls.

    A failure is a line of its own, an ErrorEnvelope, just before the chunk with the finish reason.
    """

    id: str
    created: int
    model: str
    choices: list[ChunkChoice]
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    usage: ChatUsage | None = None
    hermes: HermesBlock | None = None
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
    """An available model."""

    id: str
    created: int
    root: str
    parent: str | None
    object: Literal["model"] = "model"
    owned_by: str = "hermes"
    permission: list[Any] = field(factory=list)


@frozen
class ModelList:
    """The available models."""

    data: list[Model]
    object: Literal["list"] = "list"


@frozen
class ShownSetting:
    """A setting of the server. The value is empty if it is not set."""

    name: str
    value: str
    help: str


@frozen
class SettingList:
    """The settings in force."""

    data: list[ShownSetting]
    object: Literal["list"] = "list"


@frozen
class Health:
    """A sign that the process responds."""

    status: str
    platform: str
    version: str


@frozen
class Readiness:
    """Whether the server accepts new runs."""

    status: Literal["ok", "degraded", "unavailable"]
    reason: str | None = None


@frozen
class HealthDetails:
    """The state of each component."""

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
    drain_remaining_seconds: float | None  # null unless the server drains
    exit_reason: str | None
    pid: int
    updated_at: float


@frozen
class WorkerStatus:
    """One of the processes that serve together."""

    number: int
    is_this: bool  # whether it is the one that answers
    not_ready: str  # why it takes no new runs; empty if it does
    live_runs: int | None  # null if it does not answer
    memory_bytes: int | None


@frozen
class RuntimeReport:
    """What the server process does that answers."""

    pid: int
    started_at: float
    uptime_seconds: float
    agents: list[str]  # the model ids that the caller may name
    live_runs: int
    slots: dict[str, int]
    store: dict[str, str]
    drain_remaining_seconds: float | None  # null unless the server drains
    workers: list[WorkerStatus]  # that serve together; empty if there is one process
    nodes: list[dict[str, Any]]  # that share the store, this one included


@frozen
class GatewayReport:
    """How the server is, or the gateway that it was told to ask."""

    object: Literal["hermes.status"]
    state: Literal["up", "degraded", "down"]
    reason: str
    version: str
    gateway_running: bool
    gateway_state: str | None
    gateway_pid: int | None  # null for another gateway
    gateway_version: str | None
    gateway_platforms: dict[str, str]
    gateway_exit_reason: str | None
    gateway_updated_at: float | str | None
    gateway_health_url: str | None  # null for the server itself
    active_agents: int | None
    server: RuntimeReport


@frozen
class MetricHistoryReply:
    """What the server did within the last hour."""

    object: Literal["hermes.metric_history"]
    interval_seconds: float  # between two samples
    kept_seconds: float
    data: list[MetricSample]  # oldest first
    routes: list[RouteSummary]  # the busiest ones, busiest first


@frozen
class LogEvent:
    """A line of the server's log, with secrets masked."""

    number: int  # from 1, for each process anew
    at: float
    level: str
    text: str


@frozen
class Version:
    """The server version."""

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
    """The features this server supports."""

    object: Literal["hermes.api_server.capabilities"]
    platform: str
    model: str
    auth: dict[str, Any]
    runtime: dict[str, Any]
    features: dict[str, Any]
    endpoints: dict[str, dict[str, str]]


@frozen
class ResponseReply:
    """A response. Every field is present; fields without a value are null."""

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
    """An event of a stream. The other fields depend on its type."""

    type: str
    sequence_number: int


@frozen
class Deleted:
    """The object that was deleted."""

    id: str
    object: str
    deleted: bool


@frozen
class Item:
    """An item of an input, an output or a conversation. The other fields depend on its type."""

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
    """A run that was started."""

    run_id: str
    status: Literal["started"]


@frozen
class RunReply:
    """A run in its current state. Output, usage and outcome are set when it has ended."""

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
    client: str | None  # what the program that started it calls itself
    preview: str | None  # the beginning of the user's message
    output: str | None = None
    usage: dict[str, Any] | None = None
    error: str | None = None
    reason: str | None = None
    incomplete: bool | None = None
    approval: dict[str, Any] | None = None  # the question that waits longest
    approvals_pending: int | None = None
    job_id: str | None = None  # of the job that started it


@frozen
class RunList:
    """A page of runs, without their output."""

    object: Literal["list"]
    data: list[RunReply]
    first_id: str | None
    last_id: str | None
    has_more: bool


@frozen
class RunTicket:
    """What opens the event stream of one run instead of a key."""

    object: Literal["hermes.run.ticket"]
    run_id: str
    ticket: str
    expires_at: int


@frozen
class PrincipalUsage:
    """What a principal stores: ended runs, and bytes of runs, sessions and conversations."""

    principal: str
    runs: int
    bytes: int


@frozen
class PrincipalList:
    """The principals that store anything."""

    data: list[PrincipalUsage]
    object: Literal["list"] = "list"


@frozen
class PageSession:
    """A browser that is signed in to the web page."""

    object: Literal["hermes.page_session"]
    principal: str
    expires_at: int


@frozen
class PageSessionDeleted:
    """A browser that is signed out."""

    object: Literal["hermes.page_session"]
    deleted: Literal[True]


@frozen
class RunStopped:
    """A run that is being stopped, or had ended already."""

    run_id: str
    status: Literal["stopping", "completed", "failed", "cancelled"]


@frozen
class RunEvent:
    """An event of a run. The other fields depend on its kind."""

    event: str
    run_id: str
    timestamp: float
    seq: int


@frozen
class ApprovalReply:
    """The approval requests that were answered."""

    object: Literal["hermes.run.approval_response"]
    run_id: str
    choice: Literal["once", "session", "always", "deny"]
    resolved: int


@frozen
class RememberedApproval:
    """An approval that applies until it is revoked."""

    object: Literal["hermes.approval"]
    pattern: str
    session_id: str | None  # null: in all sessions
    created_at: float
    end_user: str | None = None  # who it was granted to, if the request named an end user


@frozen
class RememberedApprovals:
    """The remembered approvals, oldest first."""

    object: Literal["list"]
    data: list[RememberedApproval]


@frozen
class RevokedApproval:
    """An approval that was revoked."""

    object: Literal["hermes.approval.deleted"]
    pattern: str
    session_id: str | None
    deleted: Literal[True]


@frozen
class SessionObject:
    """A session. Whether it has a system prompt is shown, the prompt itself is not."""

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
    forked_messages: int | None  # how many messages a fork before a message took
    pinned: bool
    last_active: float
    preview: str
    has_system_prompt: bool
    has_model_config: bool


@frozen
class SessionReply:
    """A session."""

    object: Literal["hermes.session"]
    session: SessionObject


@frozen
class SessionList:
    """A page of sessions, most recently active first."""

    object: Literal["list"]
    data: list[SessionObject]
    limit: int
    offset: int
    has_more: bool


@frozen
class MessageMatch:
    """A message that was found by a search."""

    object: Literal["hermes.message.match"]
    session_id: str
    title: str  # of the session, or the beginning of its first message
    message_id: int
    run_id: str
    role: str
    timestamp: float
    excerpt: str


@frozen
class MessageMatches:
    """Messages that were found by a search, in the sessions with the latest activity first."""

    object: Literal["list"]
    data: list[MessageMatch]
    has_more: bool
    next_offset: int | None


@frozen
class SessionGone:
    """A session that was deleted."""

    object: Literal["hermes.session.deleted"]
    id: str
    deleted: bool


@frozen
class SessionMessage:
    """A message of a transcript."""

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
    """A page of a transcript, oldest message first."""

    object: Literal["list"]
    session_id: str
    data: list[SessionMessage]
    has_more: bool


@frozen
class SessionChatReply:
    """The complete reply of a turn."""

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
    """An event of a turn. The other fields depend on its kind."""

    session_id: str
    run_id: str
    seq: int
    ts: float
