"""The OpenAPI document, made from the classes that validate requests and describe answers."""

from __future__ import annotations

from typing import Any

import msgspec

from hermes_trio.schema import replies
from hermes_trio.schema.operations import OPERATIONS, Operation

_REF = "#/components/schemas/{name}"


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
    kinds = [kind for op in OPERATIONS for kind in (op.reply, op.body, op.stream)]
    named = [kind for kind in kinds if kind is not None and kind is not str]
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
        "parameters": [
            *map(_path_parameter, op.parameters),
            *map(_header_parameter, op.headers),
            *map(_query_parameter, op.query),
        ],
        "responses": _responses(op),
        "security": [] if op.is_open else [{"key": []}],
    }
    if op.body is not None:
        described["requestBody"] = {"required": True, "content": {"application/json": _schema(op.body)}}
    return described


def _responses(op: Operation) -> dict[str, Any]:
    answers: dict[str, Any] = {str(op.success): {"description": "The answer", "content": _content(op)}}
    if op.may_be_empty:
        answers["204"] = {"description": "Nothing more will come"}
    refusals = [403, *op.statuses, *([] if op.is_open else [401])]  # 403: an origin that is not allowed
    return answers | {str(status): _failure(op, status) for status in sorted(refusals)}


def _content(op: Operation) -> dict[str, Any]:
    content = {}
    if op.reply is not None:
        content["text/plain" if op.reply is str else "application/json"] = _schema(op.reply)
    if op.stream is not None:
        content["text/event-stream"] = _schema(op.stream)
    return content


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


def _query_parameter(name: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "schema": {"type": "string"}}
