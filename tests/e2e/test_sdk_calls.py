"""The real OpenAI client for Python on everything that is not a stream.

Answers, errors, retries, models.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2
import openai
import pytest
from openai import OpenAI

from tests.e2e.interruptible_agent import runs_file
from tests.e2e.sdk import MODEL, asked
from tests.support.server_process import ServerProcess
from tests.support.stored_records import turns

pytestmark = pytest.mark.xdist_group("e2e-shared")


@pytest.fixture
def client(server: ServerProcess) -> Iterator[OpenAI]:
    """A client with the default retries."""
    with OpenAI(base_url=f"{server.url}/v1", api_key=server.key, timeout=20) as client:
        yield client


def session(name: str) -> dict[str, str]:
    return {"X-Hermes-Session-Id": name}


def test_a_response_that_is_not_streamed(client: OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL, messages=asked("/think hm\n/terminal echo done")
    )
    (choice,) = answer.choices
    assert choice.finish_reason == "stop"
    assert choice.message.role == "assistant"
    assert "done" in (choice.message.content or "")
    assert getattr(choice.message, "reasoning_content", "") == "hm"
    assert answer.usage is not None
    assert answer.usage.completion_tokens > 0
    assert answer._request_id


def test_truncation(client: OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL, messages=asked("/long 9"), max_completion_tokens=4
    )
    assert answer.choices[0].finish_reason == "length"
    assert answer.choices[0].message.content == "word1 word2 word3 word4 "


def test_an_agent_that_raises_runs_once(client: OpenAI, server: ServerProcess) -> None:
    with pytest.raises(openai.APIStatusError, match="out of coffee") as caught:
        client.chat.completions.create(
            model=MODEL, messages=asked("/fail out of coffee"), extra_headers=session("raises")
        )
    assert (caught.value.status_code, caught.value.code) == (424, "agent_error")
    assert [turn.status for turn in turns(server, "raises")] == ["failed"]


def _hide_advice(response: httpx2.Response) -> None:
    del response.headers["x-should-retry"]


@pytest.mark.parametrize("text", ["/fail out of coffee", "!nothing"])
def test_a_client_that_goes_by_the_status_runs_a_failed_agent_once(
    server: ServerProcess, text: str
) -> None:
    """As the AI SDK and LlamaIndex do, which do not know the header that forbids a retry."""
    name = f"by-status-{text.strip('/!').split()[0]}"
    hooks = {"response": [_hide_advice]}
    with (
        httpx2.Client(trust_env=False, event_hooks=hooks) as http,
        OpenAI(
            base_url=f"{server.url}/v1", api_key=server.key, http_client=http, max_retries=2
        ) as client,
        pytest.raises(openai.APIStatusError),
    ):
        client.chat.completions.create(
            model=MODEL, messages=asked(text), extra_headers=session(name)
        )
    assert len(turns(server, name)) == 1


def test_an_agent_without_an_answer_runs_once(client: OpenAI, server: ServerProcess) -> None:
    with pytest.raises(openai.APIStatusError, match="no words left") as caught:
        client.chat.completions.create(
            model=MODEL, messages=asked("!nothing"), extra_headers=session("nothing")
        )
    assert (caught.value.status_code, caught.value.code) == (424, "agent_incomplete")
    runs = runs_file(server.plan.data_dir / "workspace", "nothing")
    assert runs.read_text().splitlines() == ["run"]


def test_a_session_goes_on(client: OpenAI, server: ServerProcess) -> None:
    for text in ("/long 2", "/long 3"):
        raw = client.chat.completions.with_raw_response.create(
            model=MODEL,
            messages=[{"role": "user", "content": text}],
            extra_headers=session("two-turns"),
        )
        assert raw.headers["X-Hermes-Session-Id"] == "two-turns"
    first, second = turns(server, "two-turns")
    assert "demo agent" in first.said_by("assistant")
    assert second.said_by("assistant") == "word1 word2 word3 "


def test_models(client: OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]
    model = client.models.retrieve(MODEL)
    assert (model.id, model.object) == (MODEL, "model")
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("no/such-model")
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")


def test_a_wrong_key(server: ServerProcess) -> None:
    with OpenAI(base_url=f"{server.url}/v1", api_key="ht-not-the-key") as client:
        for call in (client.models.list, lambda: _ask(client)):
            with pytest.raises(openai.AuthenticationError) as caught:
                call()
            assert caught.value.code == "invalid_api_key"


def _ask(client: OpenAI, **options: Any) -> None:
    client.chat.completions.create(model=MODEL, **{"messages": asked("/long 1"), **options})


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "wizard", "content": "abracadabra"}]}, "messages[0].role"),
        ({"n": 2}, "n"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"temperature": "hot"}, "temperature"),
        (
            {"stream": True, "stream_options": {"include_usage": "yes"}},
            "stream_options.include_usage",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_bad_request_names_the_parameter(
    client: OpenAI, options: dict[str, Any], param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        _ask(client, **options)
    assert caught.value.param == param
    assert caught.value.type == "invalid_request_error"
