"""Responses of many kinds of servers, read into one form."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_trio.agents.upstream.completion import (
    MAX_ARGUMENT_CHARS,
    MAX_CALLS,
    Completion,
    CompletionBuilder,
)
from hermes_trio.agents.upstream.errors import (
    CallFailed,
    CallProblem,
    ProblemKind,
    SecretMasker,
    error_detail,
    parse_retry_after,
    problem_from_payload,
)
from hermes_trio.core.events import Reasoning, Text
from hermes_trio.core.messages import ToolCall, Usage
from tests.support.scripted_upstream import Json, chunk


def assembled(*payloads: Any) -> Completion:
    assembly = CompletionBuilder()
    for payload in payloads:
        assembly.read(json.dumps(payload))
    return assembly.completion


def piece(
    index: int | None = None, call_id: Any = None, name: Any = None, arguments: Any = None
) -> Json:
    """A piece of a tool call; what is None is left out."""
    function = {"name": name, "arguments": arguments}
    whole = {
        "index": index,
        "id": call_id,
        "function": {k: v for k, v in function.items() if v is not None},
    }
    return {k: v for k, v in whole.items() if v is not None}


A, B = ("a", '{"x": 1}'), ("b", '{"y": 2}')


@pytest.mark.parametrize(
    ("pieces", "ids"),
    [
        # as OpenAI has it
        ([piece(0, "1", "a", ""), piece(0, None, None, '{"x"'), piece(0, None, None, ": 1}"),
          piece(1, "2", "b", ""), piece(1, None, None, '{"y": 2}')], "12"),
        # mixed up
        ([piece(0, "1", "a", '{"x"'), piece(1, "2", "b", '{"y"'), piece(0, None, None, ": 1}"),
          piece(1, None, None, ": 2}")], "12"),
        # id and name in every piece
        ([piece(0, "1", "a", '{"x"'), piece(0, "1", "a", ": 1}"), piece(1, "2", "b", '{"y": 2}')], "12"),
        # whole calls that all have the index 0
        ([piece(0, "1", *A), piece(0, "2", *B)], "12"),
        # the same without ids, or with the same id
        ([piece(0, None, *A), piece(0, None, *B)], ["", ""]),
        ([piece(0, "1", *A), piece(0, "1", *B)], "11"),
        # whole calls without an index, with and without ids
        ([piece(None, "1", *A), piece(None, "2", *B)], "12"),
        ([piece(None, None, *A), piece(None, None, *B)], ["", ""]),
        ([piece(None, "", *A), piece(None, "", *B)], ["", ""]),
        # pieces without an index: they belong to the id, or to the last call
        ([piece(None, "1", "a", '{"x"'), piece(None, "1", None, ": 1}"), piece(None, "2", "b", '{"y"'),
          piece(None, None, None, ": 2}")], "12"),
        # the id comes late
        ([piece(0, None, "a", '{"x"'), piece(0, "1", None, ": 1}"), piece(1, "2", *B)], "12"),
        # arguments as an object; an empty piece at the end
        ([piece(0, "1", "a", {"x": 1}), piece(0, "1", "a", ""), piece(1, "2", "b", {"y": 2})], "12"),
        # the same index again, with another id in pieces
        ([piece(0, "1", "a", '{"x": 1'), piece(0, "2", "b", '{"y": 2'), piece(0, "1", None, "}"),
          piece(0, "2", None, "}")], "12"),
        # a piece that names nothing is nobody's
        ([piece(0, "1", *A), piece(1, "2", *B), piece(2, "3", None, "{}")], "12"),
    ],
)  # fmt: skip
def test_pieces_of_calls(pieces: list[Json], ids: Any) -> None:
    expected = tuple(ToolCall(call_id, *call) for call_id, call in zip(ids, (A, B), strict=True))
    assert assembled(*(chunk({"tool_calls": [each]}) for each in pieces)).calls == expected
    assert assembled(chunk({"tool_calls": pieces})).calls == expected


@pytest.mark.parametrize("parts", [['{"x": ', '{"y": 1}}'], ['{"x": "}', '{"}']], ids=str)
def test_a_brace_at_a_cut_begins_no_call(parts: list[str]) -> None:
    pieces = [piece(0, "1", "a", part) for part in parts]
    assert assembled(chunk({"tool_calls": pieces})).calls == (ToolCall("1", "a", "".join(parts)),)


@settings(max_examples=30)
@given(
    st.lists(st.dictionaries(st.text(max_size=3), st.text(max_size=5)), min_size=1, max_size=4),
    st.data(),
)
def test_cuts_in_arguments_do_not_matter(
    arguments: list[dict[str, str]], data: st.DataObject
) -> None:
    texts = [json.dumps(each) for each in arguments]
    queues = [
        [piece(n, str(n), "f", "")] + [piece(n, None, None, part) for part in _cut(text, data)]
        for n, text in enumerate(texts)
    ]
    mixed = []
    while waiting := [queue for queue in queues if queue]:
        mixed.append(data.draw(st.sampled_from(waiting)).pop(0))
    order = list(dict.fromkeys(each["index"] for each in mixed))
    found = assembled(*(chunk({"tool_calls": [each]}) for each in mixed)).calls
    assert found == tuple(ToolCall(str(n), "f", texts[n]) for n in order)


def _cut(text: str, data: st.DataObject) -> list[str]:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=3)))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


@pytest.mark.parametrize(
    "pieces",
    [
        [piece(n, str(n), "f", "{}") for n in range(MAX_CALLS + 1)],
        [piece(0, "1", "f", "x" * (MAX_ARGUMENT_CHARS // 2 + 1))] * 2,
    ],
    ids=["number", "length"],
)
def test_calls_are_bounded(pieces: list[Json]) -> None:
    with pytest.raises(CallFailed, match="too many or too long"):
        assembled(*(chunk({"tool_calls": [each]}) for each in pieces))


@pytest.mark.parametrize(
    ("delta", "said"),
    [
        ({"content": "a"}, [Text("a")]),
        ({"content": None, "reasoning_content": "b"}, [Reasoning("b")]),
        ({"reasoning": "b", "reasoning_content": "b"}, [Reasoning("b")]),
        ({"reasoning": "b", "content": "a"}, [Reasoning("b"), Text("a")]),
        ({"reasoning": {"effort": "high"}, "content": ""}, []),
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "c"}]}, [Text("ac")]),
        (
            {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "b"}]}]},
            [Reasoning("b")],
        ),
        ({"refusal": "no"}, [Text("no")]),
        ({"content": "\ud83d"}, [Text("?")]),
        ({"role": "assistant"}, []),
        ({"tool_calls": None, "content": 5}, []),
        ({"tool_calls": ["x", {"function": None}]}, []),
    ],
)
def test_deltas(delta: Json, said: list[Any]) -> None:
    assembly = CompletionBuilder()
    assert assembly.read(json.dumps(chunk(delta))) == said
    assert assembly.has_output == bool(said)
    whole = CompletionBuilder()
    choice = {"message": delta, "finish_reason": "stop"}
    assert whole.read(json.dumps({"choices": [choice]})) == said
    assert (whole.is_finished, whole.completion.calls) == (True, ())


@pytest.mark.parametrize(
    "payload",
    [{}, {"choices": []}, {"choices": None}, {"choices": ["x"]}, {"type": "ping"}, {"error": None}],
)
def test_chunks_that_say_nothing(payload: Json) -> None:
    assert assembled(payload) == Completion()


NAMES = [
    "choices", "index", "delta", "message", "content", "reasoning", "tool_calls", "function", "name", "arguments", "id",
    "usage", "prompt_tokens", "prompt_tokens_details", "cached_tokens", "error", "code", "type", "text", "thinking",
]  # fmt: skip
ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=3)
    | st.sampled_from(NAMES),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4)
    ),
)


@settings(max_examples=100)
@given(ANYTHING)
def test_any_json_is_read_or_refused(payload: Any) -> None:
    assembly = CompletionBuilder()
    for data in (
        payload,
        {"choices": [{"delta": payload}]},
        {"choices": [payload], "usage": payload},
    ):
        try:
            assembly.read(json.dumps(data))
        except CallFailed as failure:
            assert failure.problem.message
    assert isinstance(assembly.completion, Completion)


@pytest.mark.parametrize(
    "nested",
    [
        '{"error": ' * 900 + "1" + "}" * 900,
        '{"choices": [{"delta": {"content": %s}}]}'
        % ('[{"type": "text", "text": ' * 400 + "1" + "}]" * 400),
        "[" * 5_000 + "]" * 5_000,
    ],
    ids=["error", "content", "array"],
)
def test_deep_json_is_refused(nested: str) -> None:
    with pytest.raises(CallFailed):
        CompletionBuilder().read(nested)
    assert error_detail(nested)


def test_only_the_first_choice_counts() -> None:
    other = {"index": 1, "delta": {"content": "other"}, "finish_reason": "stop"}
    assert assembled({"choices": [other]}) == Completion()


@pytest.mark.parametrize(
    ("counts", "usage"),
    [
        ({"prompt_tokens": 5, "completion_tokens": 7}, Usage(5, 7)),
        (
            {
                "prompt_tokens": 5,
                "completion_tokens": 7,
                "prompt_tokens_details": {"cached_tokens": 3},
                "completion_tokens_details": {"reasoning_tokens": 2},
            },
            Usage(5, 7, 3, 0, 2),
        ),
        (
            {"prompt_tokens": 5, "prompt_cache_hit_tokens": 4, "completion_tokens_details": None},
            Usage(5, 0, 4),
        ),
        ({"prompt_tokens": "many", "completion_tokens": -1}, Usage()),
    ],
)
def test_usage(counts: Json, usage: Usage) -> None:
    assert assembled({"choices": [], "usage": counts}).usage == usage
    growing = {**chunk({"content": "a"}), "usage": {"prompt_tokens": 1, "completion_tokens": 1}}
    assert (
        assembled(growing, {**chunk({}, "stop"), "usage": counts}, {"usage": None}).usage == usage
    )


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"message": "x", "code": 500}, ProblemKind.SERVER),
        ({"message": "x", "code": "429"}, ProblemKind.BUSY),
        ({"message": "x", "status": 401}, ProblemKind.KEY),
        ({"message": "x", "code": "bad_request"}, ProblemKind.SERVER),
        ({"message": "x", "code": 7}, ProblemKind.SERVER),
        ({"message": "x", "code": "context_length_exceeded"}, ProblemKind.TOO_LONG),
        ("x", ProblemKind.SERVER),
    ],
)
def test_errors_inside_a_stream(error: Any, kind: ProblemKind) -> None:
    problem = problem_from_payload(error)
    assert problem.kind is kind
    assert problem.message.endswith("It says: x")
    for payload in ({"error": error}, {"choices": [], "error": error}):
        with pytest.raises(CallFailed) as caught:
            assembled(payload)
        assert caught.value.problem == problem


def test_an_error_that_is_the_whole_object() -> None:
    with pytest.raises(CallFailed, match="too big"):
        assembled({"object": "error", "message": "too big", "code": 400})


@pytest.mark.parametrize(
    ("value", "wait"),
    [
        ("7", 7), ("0.5", 0.5), ("-3", 0), ("", -1), ("soon", -1),
        ("Sun, 09 Sep 2001 01:47:00 GMT", 20), ("Sun, 09 Sep 2001 01:46:00 GMT", 0),
        ("inf", float("inf")),
    ],
)  # fmt: skip
def test_how_long_to_wait(value: str, wait: float) -> None:
    assert parse_retry_after(value, 1_000_000_000) == wait


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ('{"error": {"message": "a\\n b", "type": "t"}}', "a b"),
        ('{"error": "a"}', "a"),
        ('{"message": "a"}', "a"),
        ('{"detail": [{"loc": ["x"], "msg": "a"}]}', '[{"loc": ["x"], "msg": "a"}]'),
        ('{"odd": 1}', '{"odd": 1}'),
        ("plain  text", "plain text"),
        ("", ""),
    ],
)
def test_the_detail_of_an_error(body: str, detail: str) -> None:
    assert error_detail(body) == detail


def test_a_long_detail_is_shortened() -> None:
    assert len(error_detail("x" * 10_000)) <= 500


def test_scrubbing() -> None:
    mask = SecretMasker.for_secrets(["abcd-secret", "abcd", "", "abc"])
    assert mask("abcd-secret abcd abc sk-0123456789") == "*** *** abc sk-***"


def test_transience() -> None:
    passing = {kind for kind in ProblemKind if CallProblem(kind, "").is_transient}
    assert passing == {ProblemKind.BUSY, ProblemKind.SERVER, ProblemKind.NETWORK}
