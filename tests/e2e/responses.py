"""Helpers for tests of responses over a real socket."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, get_args

import httpx2
from openai import OpenAI
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from tests.support.server_process import TIMEOUT, ServerProcess
from tests.support.socket_client import RawConnection

PATH = "/v1/responses"


@contextmanager
def client_of(server: ServerProcess) -> Iterator[OpenAI]:
    """Return the OpenAI client, without retries."""
    with OpenAI(
        base_url=f"{server.url}/v1", api_key=server.key, timeout=TIMEOUT, max_retries=0
    ) as client:
        yield client


@cache
def _models() -> dict[str, TypeAdapter[Any]]:
    classes = get_args(get_args(ResponseStreamEvent)[0])
    return {
        get_args(kind.model_fields["type"].annotation)[0]: TypeAdapter(kind) for kind in classes
    }


def strictly(events: Iterable[Any]) -> Iterator[Any]:
    """Events of a stream, each held against the model that the client has for it, and numbered without a gap."""
    number = None
    for event in events:
        _models()[event.type].validate_python(event.to_dict(), strict=True)
        assert number is None or event.sequence_number == number + 1
        number = event.sequence_number
        yield event


def valid(response: Response) -> Response:
    """A response, held against its model."""
    Response.model_validate(response.to_dict(), strict=True)
    return response


def reason(response: Any) -> str:
    """Why a response did not complete; a field of ours."""
    return str(response.to_dict()["hermes"]["reason"])


def kinds(response: Any) -> list[str]:
    """The types of its items."""
    return [item.type for item in response.output]


def body_bytes(server: ServerProcess, text: str, **more: Any) -> bytes:
    """A streaming request as it stands on the wire."""
    body = json.dumps({"model": "m", "input": text, "stream": True, **more}).encode()
    head = f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {server.key}\r\n"
    return (
        f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        + body
    )


def id_in(talk: RawConnection) -> str:
    """The id of the response that a connection streams."""
    talk.until(b'"id": "resp_')
    return "resp_" + talk.seen.partition(b'"id": "resp_')[2].partition(b'"')[0].decode()


def shown(server: ServerProcess, response_id: str) -> dict[str, Any]:
    """A response as it stands."""
    answer = server.get(f"{PATH}/{response_id}")
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def post(server: ServerProcess, text: str, **more: Any) -> httpx2.Response:
    """One request, on a connection of its own."""
    headers = {"Authorization": f"Bearer {server.key}"}
    with httpx2.Client(trust_env=False, timeout=TIMEOUT) as http:
        return http.post(
            server.url + PATH, json={"model": "m", "input": text, **more}, headers=headers
        )
