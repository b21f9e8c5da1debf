"""Failures between the agent and the model server: retried, truncated, or reported."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import trio

from hermes_trio.agents.upstream.completion import MAX_EVENT_BYTES
from hermes_trio.core.events import Result, Text, Verdict
from hermes_trio.core.messages import Usage
from hermes_trio.tools.base import tool
from tests.support.scripted_upstream import (
    FINISH,
    USAGE,
    Call,
    Close,
    Event,
    Finish,
    Raw,
    Reply,
    Reset,
    Say,
    Script,
    Stall,
    Think,
    calls,
    chunk,
    refusal,
    says,
    sse,
    whole,
)
from tests.support.upstream_agent import KEY, open_upstream_harness


@tool
async def echo(text: str = "") -> str:
    """Say it again."""
    return f"echo: {text}"


def failed(result: Result) -> str:
    """What a failure tells."""
    assert result.verdict is Verdict.FAILED
    assert KEY not in result.error
    return result.error


# -- before the first word: tried again --

LOST: list[Script] = [
    [Reset()],
    [Close()],
    [Raw(b": keep-alive\n\n"), Reset()],
    [Call("echo", '{"text"'), Close()],
    [Finish("", usage=None, done=False)],  # a whole stream that says nothing
    [refusal(500, "oops", {"Retry-After": "0"})],
    [refusal(503, "loading", {"Retry-After": "0"})],
    [refusal(429, "slow down", {"Retry-After": "0"})],
    [Event({"error": {"message": "overloaded", "code": 503}})],
]


@pytest.mark.parametrize("lost", LOST, ids=str)
async def test_before_the_first_word_it_is_tried_again(lost: Script, autojump_clock: Any) -> None:
    async with open_upstream_harness(lost, lost, says("Hello"), tools=[echo]) as harness:
        result = await harness.turn()
    assert (result.verdict, result.usage, harness.emitter.said) == (
        Verdict.COMPLETED,
        Usage(5, 7),
        "Hello",
    )
    assert len({asked.connection for asked in harness.upstream.requests}) == 3
    assert harness.sent[0] == harness.sent[1] == harness.sent[2]


@pytest.mark.parametrize("lost", LOST, ids=str)
async def test_the_number_of_tries_is_bounded(lost: Script, autojump_clock: Any) -> None:
    async with open_upstream_harness(lost, lost, retries=1) as harness:
        assert failed(await harness.turn()).startswith("The ")
    assert harness.emitter.events == []


async def test_the_waits_grow_up_to_a_limit(autojump_clock: Any) -> None:
    async with open_upstream_harness(*[[refusal(500, "oops")]] * 7, retries=6) as harness:
        began = trio.current_time()
        assert "oops" in failed(await harness.turn())
        assert trio.current_time() - began == pytest.approx(0.5 + 1 + 2 + 4 + 8 + 8, abs=0.1)


async def test_a_lost_connection_is_replaced_at_once(autojump_clock: Any) -> None:
    async with open_upstream_harness([Reset()], says("Hello")) as harness:
        began = trio.current_time()
        await harness.turn()
        assert trio.current_time() - began < 0.1


async def test_connection_refused(autojump_clock: Any) -> None:
    with trio.socket.socket() as taken:
        await taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        async with open_upstream_harness() as harness:
            model = harness.agent.model
            model._url = model._url.copy_with(port=port)
            error = failed(await harness.turn())
    assert error == f"The model server cannot be reached at 127.0.0.1:{port}: Connection refused"


async def test_the_server_has_no_tls(autojump_clock: Any) -> None:
    async with open_upstream_harness([], retries=0) as harness:
        model = harness.agent.model
        model._url = model._url.copy_with(scheme="https")
        error = failed(await harness.turn())
        await harness.upstream.until_closed()
    assert error.startswith("The model server cannot be reached at 127.0.0.1:")


@pytest.mark.parametrize("after", [[], [Raw(b": keep-alive\n\n")], [Call("echo", "{")]], ids=str)
async def test_a_stall(after: list[Any], autojump_clock: Any) -> None:
    script = [*after, Stall()]
    async with open_upstream_harness(script, script, read=7.0, retries=1) as harness:
        began = trio.current_time()
        assert failed(await harness.turn()) == "The model server was silent for 7 s."
        assert trio.current_time() - began == pytest.approx(14, abs=0.5)
        await harness.upstream.until_closed()


# -- after the first word: what was said stays, and nothing is said twice --

BROKEN: list[tuple[Any, str]] = [
    (Reset(), "The connection to the model server was lost"),
    (Close(), "The connection to the model server was lost"),
    (Stall(), "The model server was silent for 60 s."),
    (Finish("", done=False), "The model server broke off its answer."),
    (Event({"error": {"message": "out of memory", "code": 500}}), "out of memory"),
    (Raw(b"data: {broken\n\n"), "not JSON"),
]


@pytest.mark.parametrize(("end", "error"), BROKEN, ids=str)
@pytest.mark.parametrize("word", [Say("So far"), Think("Hm.")], ids=["text", "reasoning"])
async def test_after_the_first_word_it_is_incomplete(
    word: Any, end: Any, error: str, autojump_clock: Any
) -> None:
    async with open_upstream_harness(
        [word, Event({"choices": [], "usage": USAGE}), end]
    ) as harness:
        result = await harness.turn()
    assert result.verdict is Verdict.INCOMPLETE
    assert error in result.error
    assert result.usage == Usage(5, 7)
    assert harness.emitter.said + harness.emitter.thought == word.text
    assert len(harness.sent) == 1


async def test_words_before_an_error_in_the_same_packet_are_kept() -> None:
    packet = sse(chunk({"content": "So far"})) + sse({"error": "no"})
    async with open_upstream_harness([Raw(packet)]) as harness:
        result = await harness.turn()
    assert (result.verdict, harness.emitter.said) == (Verdict.INCOMPLETE, "So far")


async def test_a_failure_in_a_later_round_keeps_all_that_was_done() -> None:
    first = [Say("Looking. "), *calls(Call("echo"))]
    async with open_upstream_harness(first, [refusal(401, "expired")], tools=[echo]) as harness:
        result = await harness.turn()
    assert "expired" in failed(result)
    assert result.usage == Usage(5, 7)
    assert (harness.emitter.said, len(harness.emitter.ends)) == ("Looking. ", 1)


async def test_a_later_round_is_tried_again_too() -> None:
    first = [Say("Looking. "), *calls(Call("echo"))]
    async with open_upstream_harness(first, [Reset()], says("Found."), tools=[echo]) as harness:
        result = await harness.turn()
    assert (result.verdict, harness.emitter.said) == (Verdict.COMPLETED, "Looking. Found.")


@pytest.mark.parametrize("end", [Reset(), Close()], ids=str)
async def test_a_connection_that_breaks_after_the_finish_breaks_nothing(end: Any) -> None:
    async with open_upstream_harness(
        [Say("All said."), Finish(usage=USAGE, done=False), end]
    ) as harness:
        result = await harness.turn()
    assert (result.verdict, result.usage) == (Verdict.COMPLETED, Usage(5, 7))


async def test_a_stream_without_the_mark_of_the_end() -> None:
    async with open_upstream_harness(
        [Say("All said."), Finish(usage=USAGE, done=False)]
    ) as harness:
        assert (await harness.turn()).verdict is Verdict.COMPLETED


async def test_a_stream_that_is_held_open_after_its_end(autojump_clock: Any) -> None:
    async with open_upstream_harness([Say("All said."), FINISH, Stall()]) as harness:
        assert (await harness.turn()).verdict is Verdict.COMPLETED
        await harness.upstream.until_closed()


async def test_connections_are_used_again() -> None:
    async with open_upstream_harness(says("One"), says("Two")) as harness:
        await harness.turn()
        await harness.turn()
    assert [asked.connection for asked in harness.upstream.requests] == [1, 1]


# -- refused --


@pytest.mark.parametrize(
    ("reply", "begins", "holds"),
    [
        (
            refusal(401, f"Incorrect API key: {KEY}"),
            "The model server rejected the key (401).",
            "***",
        ),
        (refusal(403, "not yours"), "The model server rejected the key (403).", "not yours"),
        (
            refusal(404, "no model m"),
            "The model server has no such URL or model (404).",
            "no model m",
        ),
        (Reply(404, b"<h1>404</h1>"), "The model server has no such", "<h1>404</h1>"),
        (Reply(307, b"", {"Location": "/x"}), "The model server has no such", "(307)"),
        (
            refusal(400, "bad", code="context_length_exceeded"),
            "The conversation is too long",
            "bad",
        ),
        (
            refusal(400, "This model's maximum context length is 9"),
            "The conversation is too long",
            "9",
        ),
        (
            refusal(400, "exceeds the available context size"),
            "The conversation is too long",
            "size",
        ),
        (refusal(400, "no such option"), "The model server refused the request (400).", "option"),
        (
            Reply(422, {"detail": [{"msg": "odd"}]}),
            "The model server refused the request (422).",
            "odd",
        ),
        (
            refusal(429, "pay", code="insufficient_quota"),
            "The quota at the model server is used up",
            "pay",
        ),
        (
            refusal(429, "wait", {"Retry-After": "3600"}),
            "The model server accepts no more requests",
            "wait",
        ),
        (Reply(400, b"x" * 100_000), "The model server refused the request (400).", "400"),
        (
            Reply(200, {"error": {"message": "no GPU", "code": 400}}),
            "The model server refused",
            "no GPU",
        ),
    ],
    ids=str,
)
async def test_a_refusal_is_not_retried(reply: Reply, begins: str, holds: str) -> None:
    async with open_upstream_harness([reply]) as harness:
        error = failed(await harness.turn())
    assert error.startswith(begins)
    assert holds in error
    assert len(error) < 700


@pytest.mark.parametrize(("headers", "wait"), [({"Retry-After": "20"}, 20), ({}, 0.5)], ids=str)
async def test_busy(headers: dict[str, str], wait: float, autojump_clock: Any) -> None:
    async with open_upstream_harness(
        [refusal(429, "slow down", headers)], says("Hello")
    ) as harness:
        began = trio.current_time()
        assert (await harness.turn()).verdict is Verdict.COMPLETED
        assert trio.current_time() - began == pytest.approx(wait, abs=0.1)


# -- nonsense --


@pytest.mark.parametrize(
    "garbage",
    [
        Raw(b"data: {broken\n\n"),
        Raw(b"data: [1, 2]\n\n"),
        Raw(b"data: \xff\xfe\n\n"),
        Raw(b'data: {"choices": [{"delta": "text"}]}\n\n'),
        Raw(b"data: " + b"[" * 100_000 + b"\n\n"),
        Reply(200, b"hello"),
        Reply(200, b"[]"),
        Reply(200, {"detail": "here is no model"}),
        Reply(200, b"<html>", {"Content-Type": "text/html; charset=utf-8"}),
    ],
    ids=lambda step: str(step)[:30],
)
async def test_garbage(garbage: Any) -> None:
    async with open_upstream_harness([garbage]) as harness:
        error = failed(await harness.turn())
    assert error.startswith("The model server did not send a valid chat completion: ")
    assert harness.emitter.events == []


async def test_an_event_without_end() -> None:
    async with open_upstream_harness([Raw(b"data: " + b"x" * MAX_EVENT_BYTES), Stall()]) as harness:
        assert f"more than {MAX_EVENT_BYTES} bytes" in failed(await harness.turn())
        await harness.upstream.until_closed()


async def test_half_characters_and_single_bytes() -> None:
    text = "Grüße, 世界 🌍"
    stream = sse(chunk({"content": text})) + sse(chunk({}, "stop")) + b"data: [DONE]\n\n"
    async with open_upstream_harness([Raw(bytes([byte])) for byte in stream]) as harness:
        assert (await harness.turn()).verdict is Verdict.COMPLETED
    assert harness.emitter.said == text


async def test_many_chunks_in_one_packet_are_said_at_once() -> None:
    packet = b"".join(sse(chunk({"content": f"{n} "})) for n in range(100))
    async with open_upstream_harness([Raw(packet), FINISH]) as harness:
        await harness.turn()
    assert harness.emitter.events == [Text("".join(f"{n} " for n in range(100)))]


# -- servers that cannot stream --


@pytest.mark.parametrize(
    "no",
    [
        refusal(400, "Streaming is not supported"),
        refusal(405, "no stream here"),
        refusal(501, "stream: not implemented"),
    ],
    ids=str,
)
async def test_a_server_that_refuses_to_stream(no: Reply) -> None:
    called = whole(
        "Looking. ", [Call("echo", {"text": "x"}, "c1")], "tool_calls", reasoning_content="Hm."
    )
    scripts: list[Script] = [[no], [called], [whole("Found.")], [whole("Again.")]]
    async with open_upstream_harness(*scripts, tools=[echo]) as harness:
        result = await harness.turn(options={"max_tokens": 9})
        assert (result.verdict, result.usage) == (Verdict.COMPLETED, Usage(10, 14))
        assert (harness.emitter.thought, harness.emitter.said) == ("Hm.", "Looking. Found.")
        assert harness.emitter.ends == [("c1", "echo: x", False)]
        await harness.turn()
    assert [sent["stream"] for sent in harness.sent] == [True, False, False, False]
    assert "stream_options" not in harness.sent[1]


async def test_a_server_that_answers_in_one_piece() -> None:
    async with open_upstream_harness([whole("Hello")], [whole("Again")]) as harness:
        await harness.turn()
        await harness.turn()
    assert harness.emitter.said == "HelloAgain"
    assert [sent["stream"] for sent in harness.sent] == [True, False]


async def test_a_whole_answer_may_take_longer(autojump_clock: Any) -> None:
    async with open_upstream_harness(
        [Stall()], options={"stream": False}, read=5.0, retries=0
    ) as harness:
        began = trio.current_time()
        assert "was silent for 50 s" in failed(await harness.turn())
        assert trio.current_time() - began == pytest.approx(50, abs=0.5)


async def test_a_server_that_cannot_count_or_has_another_name_for_the_limit() -> None:
    scripts: list[Script] = [
        [refusal(400, "Unknown parameter: stream_options")],
        [refusal(400, "Use 'max_completion_tokens' instead of max_tokens")],
        says("Hello"),
        says("Again"),
    ]
    async with open_upstream_harness(*scripts) as harness:
        assert (await harness.turn(options={"max_tokens": 9})).verdict is Verdict.COMPLETED
        await harness.turn(options={"max_tokens": 9})
    for sent in harness.sent[2:]:
        assert sent["stream"] is True
        assert sent["max_completion_tokens"] == 9
        assert sent.keys().isdisjoint({"stream_options", "max_tokens"})


async def test_a_refusal_that_only_mentions_streams_teaches_nothing() -> None:
    no = refusal(400, "your prompt about a stream is odd")
    async with open_upstream_harness([no], [no], says("Hello")) as harness:
        assert "is odd" in failed(await harness.turn())
        await harness.turn()
    assert [sent["stream"] for sent in harness.sent] == [True, False, True]


# -- secrets --


async def test_the_key_is_in_no_event_error_or_log(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str], autojump_clock: Any
) -> None:
    @tool
    async def leak() -> str:
        raise RuntimeError(f"Authorization: Bearer {KEY}")

    secret = "header-secret-5d41402abc4b"
    scripts: list[Script] = [
        [refusal(500, f"bad key {KEY}")],
        calls(Call("leak")),
        [Say("So far"), Event({"error": f"{secret} is not {KEY}"})],
        [refusal(401, f"{KEY}: {secret}")],
    ]
    caplog.set_level(logging.DEBUG)
    async with open_upstream_harness(
        *scripts, tools=[leak], options={"headers": {"X-Team": secret}}
    ) as harness:
        results = [await harness.turn(), await harness.turn()]
    assert harness.upstream.requests[0].headers["x-team"] == secret
    assert [result.verdict for result in results] == [Verdict.INCOMPLETE, Verdict.FAILED]
    printed = capsys.readouterr()
    assert "tool failed" in printed.out
    for place in (
        results,
        harness.emitter.events,
        harness.messages,
        caplog.text,
        printed.out,
        printed.err,
    ):
        assert KEY not in str(place)
        assert secret not in str(place)
    assert KEY not in repr(harness.agent)
