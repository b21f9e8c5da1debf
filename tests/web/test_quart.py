"""The application is a plain Quart application.

Its test client, hooks and signals work, and it can be mounted.
"""

from __future__ import annotations

from typing import Any

import pytest
from quart import Response, got_request_exception, request, request_finished, request_started
from quart_trio import QuartTrio
from structlog.testing import capture_logs

from hermes_trio.core.events import Text
from hermes_trio.web.state import ServedProfile, WebOptions
from tests.support.asgi import Client
from tests.support.fakes import (
    CHAT,
    KEY,
    NOWHERE,
    AppHarness,
    ScriptedAgentFactory,
    ask,
    ask_stream,
    bearer,
    make_harness,
)

# -- the test client that comes with Quart --


async def test_health() -> None:
    app = make_harness().app
    assert type(app) is QuartTrio
    response = await app.test_client().get("/health")
    assert response.status_code == 200
    assert (await response.get_json())["status"] == "ok"
    assert response.headers["X-Request-Id"]


@pytest.mark.parametrize("is_async", [True, False], ids=["task", "thread"])
async def test_a_chat_completion(is_async: bool) -> None:
    harness = make_harness(ScriptedAgentFactory([Text("Hello"), Text(" world")], None, is_async))
    response = await harness.app.test_client().post(CHAT, json=ask(), headers=bearer(KEY))
    assert response.status_code == 200
    [choice] = (await response.get_json())["choices"]
    assert choice["message"]["content"] == "Hello world"
    assert harness.is_idle


@pytest.mark.parametrize("is_async", [True, False], ids=["task", "thread"])
async def test_a_streamed_chat_completion(is_async: bool) -> None:
    harness = make_harness(ScriptedAgentFactory([Text("Hello"), Text(" world")], None, is_async))
    response = await harness.app.test_client().post(CHAT, json=ask_stream(), headers=bearer(KEY))
    assert response.headers["Content-Type"] == "text/event-stream"
    body = await response.get_data(as_text=True)
    assert "Hello" in body
    assert body.endswith("data: [DONE]\n\n")
    assert harness.is_idle


async def test_a_request_without_a_key() -> None:
    response = await make_harness().app.test_client().post(CHAT, json=ask())
    assert response.status_code == 401
    assert (await response.get_json())["error"]["code"] == "invalid_api_key"


async def test_exceptions_reach_the_test_when_the_application_is_under_test() -> None:
    app = make_harness().app
    app.testing = True

    @app.get("/broken")
    async def broken() -> Response:
        raise ZeroDivisionError

    with pytest.RaisesGroup(ZeroDivisionError, flatten_subgroups=True):
        await app.test_client().get("/broken", headers=bearer(KEY))


# -- hooks and signals of an embedding program --


async def test_hooks_and_signals_are_called() -> None:
    harness = make_harness()
    app, seen = harness.app, []

    @app.before_request
    async def before() -> None:
        seen.append(f"before {request.method}")

    @app.after_request
    async def after(response: Response) -> Response:
        response.headers["X-After"] = "yes"
        return response

    @app.teardown_request
    def teardown(_: BaseException | None) -> None:
        seen.append("teardown")

    def started(_: Any, **__: Any) -> None:
        seen.append("started")

    def finished(_: Any, response: Response, **__: Any) -> None:
        seen.append(f"finished {response.status_code}")

    with request_started.connected_to(started, app), request_finished.connected_to(finished, app):
        answer = await harness.client.send(CHAT, ask_stream())
    assert answer.headers["x-after"] == "yes"
    assert seen == ["started", "before POST", "finished 200", "teardown"]


async def test_a_hook_may_answer_in_place_of_the_view() -> None:
    harness = make_harness()
    harness.app.before_request(lambda: ("closed for today", 503))
    answer = await harness.client.send(CHAT, ask())
    assert (answer.status, answer.body) == (503, b"closed for today")
    assert harness.agents.turns == []
    assert harness.is_idle


async def test_an_unhandled_exception_is_signalled_logged_and_answered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    harness = make_harness()
    app, errors = harness.app, []

    @app.get("/broken")
    async def broken() -> Response:
        raise ZeroDivisionError

    def note(_: Any, exception: Exception, **__: Any) -> None:
        errors.append(type(exception))

    with got_request_exception.connected_to(note, app):
        answer = await harness.client.get("/broken")
    assert (answer.status, answer.error["code"]) == (500, "internal_error")
    assert answer.headers["x-should-retry"] == "false"
    assert errors == [ZeroDivisionError]
    [record] = [record for record in caplog.records if record.exc_info]
    assert "/broken" in record.getMessage()


async def test_routes_can_be_added_and_are_protected() -> None:
    harness = make_harness()
    app = harness.app

    @app.get("/extra")
    async def extra() -> str:
        return "extra"

    assert (await harness.client.get("/extra")).body == b"extra"
    harness.client.headers = {}
    assert (await harness.client.get("/extra")).status == 401


# -- mounted by another ASGI application --


def mounted(harness: AppHarness, path: str) -> Client:
    """A client of an application that has ours below a path, as the ASGI specification says it is done."""

    async def outer(scope: Any, receive: Any, send: Any) -> None:
        assert scope["path"].startswith(path)
        await harness.client.app({**scope, "root_path": path}, receive, send)

    return Client(outer, bearer(KEY))


@pytest.mark.parametrize("path", ["/agents", "/a/b", "/p", "/v1"])
async def test_below_a_path(path: str) -> None:
    harness = make_harness()
    client = mounted(harness, path)
    assert (await client.get(f"{path}/health")).status == 200
    answer = await client.send(f"{path}{CHAT}", ask())
    assert answer.json["choices"][0]["message"]["content"] == "Hello world"
    answer = await client.send(f"{path}{CHAT}", ask_stream())
    assert answer.frames[-1].is_done
    assert (await client.get(f"{path}/nowhere")).error["code"] == "not_found"


async def test_a_profile_below_a_path() -> None:
    options = WebOptions(profiles=(ServedProfile("coder", "coder-model"),))
    agents = ScriptedAgentFactory([Text("I am the coder")])
    harness = make_harness(options=options, profile_agents={"coder": agents}, workspace=NOWHERE)
    client = mounted(harness, "/agents")
    answer = await client.send(f"/agents/p/coder{CHAT}", ask())
    assert answer.json["model"] == "coder-model"
    assert [turn.profile for turn in agents.turns] == ["coder"]
    assert (await client.get("/agents/p/nobody/v1/models")).error["code"] == "profile_not_found"


# -- what a client must see of a mistake in the middle of a response --


async def test_a_mistake_after_the_start_breaks_the_response_off() -> None:
    harness = make_harness()
    app = harness.app

    @app.get("/breaks")
    async def breaks() -> Response:
        async def parts() -> Any:
            yield b"part"
            raise ZeroDivisionError

        return Response(parts(), 200)

    with capture_logs() as lines:
        async with harness.client.open("GET", "/breaks") as exchange:
            answer = await exchange.end()
    assert (answer.status, answer.body) == (200, b"part")
    assert not exchange.was_finished
    [line] = [line for line in lines if line["log_level"] == "error"]
    assert line["exc_info"]
