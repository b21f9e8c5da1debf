"""The operations of the API, and the OpenAPI document generated from them and their request and reply classes."""

from __future__ import annotations

from typing import Any

import msgspec
from attrs import frozen

from hermes_trio.schema import jobs, replies
from hermes_trio.schema.chat import ChatBody
from hermes_trio.schema.conversations import (
    ConversationBody,
    ConversationItemsBody,
    ConversationUpdateBody,
)
from hermes_trio.schema.inventory import ModelOptions, SkillList, ToolsetList
from hermes_trio.schema.responses import ResponsesBody
from hermes_trio.schema.runs import ApprovalBody, RunBody
from hermes_trio.schema.sessions import ForkBody, SessionBody, SessionChatBody, SessionUpdateBody


@frozen
class Operation:
    """One method of one path."""

    method: str
    path: str
    summary: str
    reply: type | None  # str for plain text, None if the route only streams
    body: type | None = None
    stream: type | None = None
    is_open: bool = False  # needs no key
    takes_ticket: bool = False  # a stream ticket is enough
    statuses: tuple[int, ...] = ()
    parameters: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    query: tuple[str, ...] = ()
    success: int = 200
    may_be_empty: bool = False  # replies 204 if there is nothing left to send


_RUN_STATUSES = (400, 404, 408, 409, 413, 422, 424, 429, 500, 502, 503)
_SESSION_HEADERS = (
    "X-Hermes-Session-Id",
    "X-Hermes-Session-Key",
    "Idempotency-Key",
    "X-Hermes-On-Disconnect",
    "X-Hermes-Approvals",
)
_PAGE = ("after", "limit", "order")

_ABOUT_AND_CHAT = (
    Operation("get", "/health", "Check that the process responds", replies.Health, is_open=True),
    Operation(
        "get",
        "/v1/health",
        "Check that the process responds (alias of /health)",
        replies.Health,
        is_open=True,
    ),
    Operation(
        "get",
        "/health/live",
        "Check that the process responds (alias of /health)",
        replies.Health,
        is_open=True,
    ),
    Operation(
        "get",
        "/health/ready",
        "Check whether the server accepts new runs",
        replies.Readiness,
        is_open=True,
        statuses=(503,),
    ),
    Operation("get", "/health/detailed", "Get the state of each component", replies.HealthDetails),
    Operation(
        "get",
        "/api/status",
        "Get the status of the server, or of the gateway that it was told to ask",
        replies.GatewayReport,
    ),
    Operation("get", "/version", "Get the server version", replies.Version, is_open=True),
    Operation("get", "/openapi.json", "Get this document", replies.OpenApi, is_open=True),
    Operation("get", "/metrics", "Get metrics in the Prometheus format", str),
    Operation(
        "get",
        "/api/metrics/history",
        "Get the metrics of the last hour",
        replies.MetricHistoryReply,
        statuses=(400,),
        query=("after",),
    ),
    Operation(
        "get",
        "/api/logs",
        "Stream the log of the server, for an administrator",
        None,
        stream=replies.LogEvent,
        statuses=(400,),
        query=("lines",),
        headers=("Last-Event-ID",),
    ),
    Operation("get", "/v1/models", "List the available models", replies.ModelList),
    Operation(
        "get",
        "/v1/models/{model_id}",
        "Get a model",
        replies.Model,
        statuses=(404,),
        parameters=("model_id",),
    ),
    Operation(
        "get", "/v1/capabilities", "Get the features this server supports", replies.Capabilities
    ),
    Operation(
        "get", "/v1/toolsets", "List the toolsets of the agent", ToolsetList, statuses=(500,)
    ),
    Operation("get", "/v1/skills", "List the skills of the agent", SkillList, statuses=(500,)),
    Operation("get", "/api/model/options", "List the models to choose from", ModelOptions),
    Operation(
        "get",
        "/v1/settings",
        "List the settings in force, with secrets masked",
        replies.SettingList,
    ),
    Operation(
        "post",
        "/v1/chat/completions",
        "Run an agent turn, streamed or as one reply",
        replies.ChatCompletion,
        body=ChatBody,
        stream=replies.ChatChunk,
        statuses=_RUN_STATUSES,
        headers=_SESSION_HEADERS,
    ),
)

_RESPONSE = "/v1/responses/{response_id}"
_RESPONSES = (
    Operation(
        "post",
        "/v1/responses",
        "Run an agent turn: streamed, as one reply, or in the background",
        replies.ResponseReply,
        body=ResponsesBody,
        stream=replies.ResponseEvent,
        statuses=_RUN_STATUSES,
        headers=(
            "X-Hermes-Session-Key",
            "Idempotency-Key",
            "X-Hermes-On-Disconnect",
            "X-Hermes-Tool-Items",
            "X-Hermes-Approvals",
        ),
    ),
    Operation(
        "get",
        _RESPONSE,
        "Get a response in its current state, or stream its events from any point",
        replies.ResponseReply,
        stream=replies.ResponseEvent,
        statuses=(400, 404, 409, 503),
        parameters=("response_id",),
        query=("stream", "starting_after"),
        takes_ticket=True,
    ),
    Operation(
        "delete",
        _RESPONSE,
        "Delete a response; one in progress is stopped first",
        replies.Deleted,
        statuses=(404, 503),
        parameters=("response_id",),
    ),
    Operation(
        "post",
        f"{_RESPONSE}/cancel",
        "Cancel a response in progress",
        replies.ResponseReply,
        statuses=(400, 404, 503),
        parameters=("response_id",),
    ),
    Operation(
        "get",
        f"{_RESPONSE}/input_items",
        "List the input items of a response",
        replies.ItemList,
        statuses=(400, 404, 503),
        parameters=("response_id",),
        query=_PAGE,
    ),
)

_CONVERSATION = "/v1/conversations/{conversation_id}"
_ONE = ("conversation_id",)
_CONVERSATIONS = (
    Operation(
        "post", "/v1/conversations", "Create a conversation", replies.ConversationReply,
        body=ConversationBody, statuses=(400, 413, 503),
    ),
    Operation(
        "get", _CONVERSATION, "Get a conversation", replies.ConversationReply,
        statuses=(404, 503), parameters=_ONE,
    ),
    Operation(
        "post", _CONVERSATION, "Update the metadata of a conversation", replies.ConversationReply,
        body=ConversationUpdateBody, statuses=(400, 404, 413, 503), parameters=_ONE,
    ),
    Operation(
        "delete", _CONVERSATION, "Delete a conversation and its items", replies.Deleted,
        statuses=(404, 503), parameters=_ONE,
    ),
    Operation(
        "get", f"{_CONVERSATION}/items", "List the items of a conversation", replies.ItemList,
        statuses=(400, 404, 503), parameters=_ONE, query=_PAGE,
    ),
    Operation(
        "post", f"{_CONVERSATION}/items", "Append items to a conversation", replies.ItemList,
        body=ConversationItemsBody, statuses=(400, 404, 413, 503), parameters=_ONE,
    ),
    Operation(
        "get", f"{_CONVERSATION}/items/{{item_id}}", "Get an item of a conversation", replies.Item,
        statuses=(404, 503), parameters=("conversation_id", "item_id"),
    ),
    Operation(
        "delete", f"{_CONVERSATION}/items/{{item_id}}", "Delete an item from a conversation", replies.ConversationReply,
        statuses=(404, 503), parameters=("conversation_id", "item_id"),
    ),
)  # fmt: skip

_RUN = "/v1/runs/{run_id}"
_RUNS = (
    Operation(
        "post", "/v1/runs", "Start a run in the background", replies.RunStarted,
        body=RunBody, statuses=(400, 404, 408, 409, 413, 429, 503),
        headers=("X-Hermes-Session-Key", "Idempotency-Key"), success=202,
    ),
    Operation(
        "get", "/v1/runs", "List runs", replies.RunList,
        statuses=(400, 404, 503), query=(*_PAGE, "status", "kind", "session_id"),
    ),
    Operation(
        "get", _RUN, "Get a run in its current state", replies.RunReply,
        statuses=(404, 503), parameters=("run_id",),
    ),
    Operation(
        "get", f"{_RUN}/events", "Stream the events of a run from any point", None,
        stream=replies.RunEvent, statuses=(400, 404, 409, 503), parameters=("run_id",),
        headers=("Last-Event-ID",), query=("last_seq",), may_be_empty=True, takes_ticket=True,
    ),
    Operation(
        "post", f"{_RUN}/ticket", "Issue a ticket for the event stream of a run", replies.RunTicket,
        statuses=(404, 503), parameters=("run_id",),
    ),
    Operation(
        "post", f"{_RUN}/stop", "Stop a run", replies.RunStopped,
        statuses=(404, 409, 503), parameters=("run_id",),
    ),
)  # fmt: skip

_ANSWER_STATUSES = (400, 404, 408, 409, 413, 503)
_APPROVALS = (
    Operation(
        "post", f"{_RUN}/approval", "Answer an approval request of a run", replies.ApprovalReply,
        body=ApprovalBody, statuses=_ANSWER_STATUSES, parameters=("run_id",),
    ),
    Operation(
        "post", "/v1/responses/{response_id}/approval", "Answer an approval request of a response", replies.ApprovalReply,
        body=ApprovalBody, statuses=_ANSWER_STATUSES, parameters=("response_id",),
    ),
    Operation(
        "get", "/v1/approvals", "List remembered approvals", replies.RememberedApprovals, statuses=(503,),
    ),
    Operation(
        "delete", "/v1/approvals", "Revoke a remembered approval", replies.RevokedApproval,
        statuses=(400, 404, 503), query=("pattern", "session_id", "end_user"),
    ),
)  # fmt: skip

_SESSION = "/api/sessions/{session_id}"
_TURN_HEADERS = ("X-Hermes-Session-Key", "Idempotency-Key", "X-Hermes-On-Disconnect")
_SESSIONS = (
    Operation(
        "get", "/api/sessions", "List sessions, most recently active first", replies.SessionList,
        statuses=(503,), query=("limit", "offset", "source", "include_children", "parent"),
    ),
    Operation(
        "get", "/api/messages/search", "Search the messages of all sessions", replies.MessageMatches,
        statuses=(400, 503), query=("q", "limit", "offset"),
    ),
    Operation(
        "post", "/api/sessions", "Create a session", replies.SessionReply,
        body=SessionBody, statuses=(400, 408, 409, 413, 503), success=201,
    ),
    Operation(
        "get", _SESSION, "Get a session", replies.SessionReply, statuses=(404, 503), parameters=("session_id",),
    ),
    Operation(
        "patch", _SESSION, "Rename or end a session", replies.SessionReply,
        body=SessionUpdateBody, statuses=(400, 404, 408, 413, 503), parameters=("session_id",),
    ),
    Operation(
        "delete", _SESSION, "Delete a session, its transcript and its runs", replies.SessionGone,
        statuses=(404, 409, 503), parameters=("session_id",),
    ),
    Operation(
        "get", f"{_SESSION}/messages", "List the messages of a session", replies.SessionMessages,
        statuses=(400, 404, 503), parameters=("session_id",), query=("after", "limit"),
    ),
    Operation(
        "post", f"{_SESSION}/fork", "Fork a session", replies.SessionReply,
        body=ForkBody, statuses=(400, 404, 408, 409, 413, 503), parameters=("session_id",), success=201,
    ),
    Operation(
        "post", f"{_SESSION}/chat", "Run a turn in a session, as one reply", replies.SessionChatReply,
        body=SessionChatBody, statuses=_RUN_STATUSES, parameters=("session_id",), headers=_TURN_HEADERS,
    ),
    Operation(
        "post", f"{_SESSION}/chat/stream", "Run a turn in a session, streamed", None,
        body=SessionChatBody, stream=replies.SessionEvent, statuses=(400, 404, 408, 409, 413, 429, 503),
        parameters=("session_id",), headers=_TURN_HEADERS,
    ),
    Operation(
        "get", f"{_SESSION}/chat/stream", "Stream the events of a turn from any point", None,
        stream=replies.SessionEvent, statuses=(400, 404, 409, 503), parameters=("session_id",),
        headers=("Last-Event-ID",), query=("run_id", "last_seq"), may_be_empty=True,
    ),
)  # fmt: skip

_JOB = "/api/jobs/{job_id}"
_ONE_JOB = ("job_id",)
_JOB_CHANGE = (400, 404, 503)
_JOBS = (
    Operation(
        "get", "/api/jobs", "List jobs", jobs.JobList, statuses=(503,), query=("include_disabled",),
    ),
    Operation(
        "post", "/api/jobs", "Create a job", jobs.JobReply, body=jobs.JobBody,
        statuses=(400, 408, 409, 413, 503),
    ),
    Operation(
        "get", _JOB, "Get a job", jobs.JobReply, statuses=_JOB_CHANGE, parameters=_ONE_JOB,
    ),
    Operation(
        "patch", _JOB, "Change a job", jobs.JobReply, body=jobs.JobUpdateBody,
        statuses=(400, 404, 408, 413, 503), parameters=_ONE_JOB,
    ),
    Operation(
        "delete", _JOB, "Delete a job, but not its runs", jobs.JobDeleted, statuses=_JOB_CHANGE, parameters=_ONE_JOB,
    ),
    Operation(
        "post", f"{_JOB}/pause", "Pause a job", jobs.JobReply, statuses=_JOB_CHANGE, parameters=_ONE_JOB,
    ),
    Operation(
        "post", f"{_JOB}/resume", "Resume a job", jobs.JobReply, statuses=_JOB_CHANGE, parameters=_ONE_JOB,
    ),
    Operation(
        "post", f"{_JOB}/run", "Run a job now", jobs.JobReply, statuses=(400, 404, 409, 503), parameters=_ONE_JOB,
    ),
    Operation(
        "post", "/api/cron/fire", "Run a job now, for schedulers elsewhere", jobs.JobFired, body=jobs.FireBody,
        statuses=(400, 404, 408, 413, 503), success=202,
    ),
)  # fmt: skip

_PAGE_SESSION = (
    Operation(
        "get",
        "/api/principals",
        "List the principals, for an administrator",
        replies.PrincipalList,
        statuses=(503,),
    ),
    Operation(
        "post",
        "/api/sign-in",
        "Exchange a key for the page's cookie",
        replies.PageSession,
        query=("remember",),
    ),
    Operation("post", "/api/sign-out", "Delete the page's cookie", replies.PageSessionDeleted),
)

OPERATIONS = (
    *_ABOUT_AND_CHAT,
    *_RESPONSES,
    *_CONVERSATIONS,
    *_RUNS,
    *_APPROVALS,
    *_SESSIONS,
    *_JOBS,
    *_PAGE_SESSION,
)


_REF = "#/components/schemas/{name}"

_ERRORS = {
    400: "The request is invalid; `param` names the field",
    401: "The API key is missing or unknown, or has expired",
    403: "The origin is not allowed, or the API key does not allow this",
    404: "There is no such object",
    408: "The body did not arrive in time",
    409: "The request conflicts with the state of the object, or with an earlier request",
    413: "The body is too large",
    421: "The Host header names a host that is not allowed",
    422: "The agent failed, if `agent_failure_status` is 422",
    424: "The agent failed after it had begun; a retry would run it again",
    429: "The server, or this API key, has too many runs or requests in progress, or a limit of the key is reached",
    500: "The server failed, or, if `agent_failure_status` is 500, the agent",
    502: "The agent ended without an answer, if `agent_failure_status` is 500",
    503: "The server cannot take the request now",
}


def document(version: str, root_path: str = "") -> dict[str, Any]:
    """Return the OpenAPI document of a server, whose paths are below `root_path`."""
    paths: dict[str, Any] = {}
    classes: list[type] = [replies.ErrorEnvelope]
    for op in OPERATIONS:
        paths.setdefault(op.path, {})[op.method] = _operation(op)
        classes += [kind for kind in (op.reply, op.body, op.stream) if kind not in (None, str)]
    _, schemas = msgspec.json.schema_components(dict.fromkeys(classes), ref_template=_REF)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "hermes_trio",
            "version": version,
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        **({"servers": [{"url": root_path}]} if root_path else {}),
        "paths": paths,
        "components": {
            "schemas": dict(sorted(schemas.items())),
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer"},
                "ticket": {"type": "apiKey", "in": "query", "name": "ticket"},
            },
        },
    }


def _operation(op: Operation) -> dict[str, Any]:
    described: dict[str, Any] = {
        "summary": op.summary,
        "operationId": f"{op.method}{op.path}".replace("/", "_").replace("{", "").replace("}", ""),
        "parameters": [
            *(_parameter(name, "path", required=True) for name in op.parameters),
            *(_parameter(name, "header", maxLength=256) for name in op.headers),
            *(_parameter(name, "query") for name in op.query),
        ],
        "responses": _responses(op),
        "security": _security(op),
    }
    if op.body is not None:
        described["requestBody"] = {
            "required": True,
            "content": {"application/json": _schema(op.body)},
        }
    return described


def _security(op: Operation) -> list[dict[str, list[str]]]:
    """Return the credentials of which an operation needs one.

    The cookie is left out: it is for the server's own page, and its name differs between servers.
    """
    schemes = [] if op.is_open else ["key"]
    return [{name: []} for name in [*schemes, *(["ticket"] if op.takes_ticket else [])]]


def _responses(op: Operation) -> dict[str, Any]:
    answers: dict[str, Any] = {str(op.success): {"description": "Success", "content": _content(op)}}
    if op.may_be_empty:
        answers["204"] = {"description": "The stream has ended; no events are left"}
    statuses = {403, 421, *op.statuses, *(() if op.is_open else (401, 429))}
    return answers | {str(status): _failure(op, status) for status in sorted(statuses)}


def _content(op: Operation) -> dict[str, Any]:
    content = {}
    if op.reply is not None:
        content["text/plain" if op.reply is str else "application/json"] = _schema(op.reply)
    if op.stream is not None:
        content["text/event-stream"] = _schema(op.stream)
    return content


def _failure(op: Operation, status: int) -> dict[str, Any]:
    # Readiness has its own body: probes read it, not SDKs.
    kind = op.reply if op.reply is replies.Readiness and status == 503 else replies.ErrorEnvelope
    return {"description": _ERRORS[status], "content": {"application/json": _schema(kind)}}


def _schema(kind: type) -> dict[str, Any]:
    if kind is str:
        return {"schema": {"type": "string"}}
    return {"schema": {"$ref": _REF.format(name=kind.__name__)}}


def _parameter(name: str, place: str, required: bool = False, **limits: int) -> dict[str, Any]:
    return {"name": name, "in": place, "required": required, "schema": {"type": "string", **limits}}
