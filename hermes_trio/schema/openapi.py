"""The OpenAPI document, made from the classes that validate requests and describe answers."""

from __future__ import annotations

from typing import Any

import msgspec
from attrs import frozen

from hermes_trio.schema import replies
from hermes_trio.schema.chat import ChatBody

_REF = "#/components/schemas/{name}"


@frozen
class Operation:
    """One method of one path."""

    method: str
    path: str
    summary: str
    reply: type  # str for plain text
    body: type | None = None
    stream: type | None = None
    is_open: bool = False  # answers without a key
    statuses: tuple[int, ...] = ()
    parameters: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()


_RUN_STATUSES = (400, 408, 413, 429, 500, 502, 503)
_SESSION_HEADERS = ("X-Hermes-Session-Id", "X-Hermes-Session-Key")

OPERATIONS = (
    Operation("get", "/health", "Whether the process answers", replies.Health, is_open=True),
    Operation("get", "/v1/health", "The same as /health", replies.Health, is_open=True),
    Operation("get", "/health/live", "The same as /health", replies.Health, is_open=True),
    Operation(
        "get",
        "/health/ready",
        "Whether new runs are welcome",
        replies.Readiness,
        is_open=True,
        statuses=(503,),
    ),
    Operation("get", "/health/detailed", "The state of the parts", replies.HealthDetails),
    Operation("get", "/version", "The version", replies.Version, is_open=True),
    Operation("get", "/openapi.json", "This document", replies.OpenApi, is_open=True),
    Operation("get", "/metrics", "Figures for Prometheus", str),
    Operation("get", "/v1/models", "The models that can be asked for", replies.ModelList),
    Operation(
        "get", "/v1/models/{model_id}", "One model", replies.Model, statuses=(404,), parameters=("model_id",)
    ),
    Operation("get", "/v1/capabilities", "What this server can do", replies.Capabilities),
    Operation(
        "post",
        "/v1/chat/completions",
        "Run one agent turn, streamed or in one piece",
        replies.ChatCompletion,
        body=ChatBody,
        stream=replies.ChatChunk,
        statuses=_RUN_STATUSES,
        headers=_SESSION_HEADERS,
    ),
)


def document(version: str) -> dict[str, Any]:
    """The whole document."""
    return {
        "openapi": "3.1.0",
        "info": {"title": "hermes_trio", "version": version, "license": {"name": "MIT", "identifier": "MIT"}},
        "paths": _paths(),
        "components": {
            "schemas": _schemas(),
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _classes() -> list[type]:
    named = [kind for op in OPERATIONS for kind in (op.reply, op.body, op.stream) if kind not in {None, str}]
    return list(dict.fromkeys([replies.ErrorEnvelope, *named]))


def _schemas() -> dict[str, Any]:
    _, components = msgspec.json.schema_components(_classes(), ref_template=_REF)
    return dict(sorted(components.items()))


def _paths() -> dict[str, Any]:
    paths: dict[str, Any] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _operation(operation)
    return paths


def _operation(op: Operation) -> dict[str, Any]:
    described: dict[str, Any] = {
        "summary": op.summary,
        "operationId": f"{op.method}{op.path}".replace("/", "_").replace("{", "").replace("}", ""),
        "parameters": [*map(_path_parameter, op.parameters), *map(_header_parameter, op.headers)],
        "responses": _responses(op),
        "security": [] if op.is_open else [{"key": []}],
    }
    if op.body is not None:
        described["requestBody"] = {"required": True, "content": {"application/json": _schema(op.body)}}
    return described


def _responses(op: Operation) -> dict[str, Any]:
    content = {"text/plain" if op.reply is str else "application/json": _schema(op.reply)}
    if op.stream is not None:
        content["text/event-stream"] = _schema(op.stream)
    refusals = [403, *op.statuses, *([] if op.is_open else [401])]  # 403: an origin that is not allowed
    failures = {str(status): _failure(op, status) for status in sorted(refusals)}
    return {"200": {"description": "The answer", "content": content}, **failures}


def _failure(op: Operation, status: int) -> dict[str, Any]:
    # Readiness tells its reason in its own words: probes read it, not SDKs.
    kind = op.reply if op.reply is replies.Readiness and status == 503 else replies.ErrorEnvelope
    return {"description": "A refusal or a failure", "content": {"application/json": _schema(kind)}}


def _schema(kind: type) -> dict[str, Any]:
    if kind is str:
        return {"schema": {"type": "string"}}
    return {"schema": {"$ref": _REF.format(name=kind.__name__)}}


def _path_parameter(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


def _header_parameter(name: str) -> dict[str, Any]:
    return {"name": name, "in": "header", "required": False, "schema": {"type": "string", "maxLength": 256}}
