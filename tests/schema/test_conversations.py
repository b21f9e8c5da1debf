"""Items of the Responses and Conversations APIs, and the transcripts that are made of them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from openai.types.conversations import Conversation as SdkConversation
from openai.types.responses import ResponseItem
from pydantic import TypeAdapter

from hermes_trio.core.dialects.responses_items import (
    Presentation,
    ResultForm,
    ToolItems,
    output_items,
)
from hermes_trio.core.errors import ApiError
from hermes_trio.core.events import Event
from hermes_trio.core.messages import CallItem, ClientCallItem, Message, ToolCall, transcript
from hermes_trio.core.outcome import Reason
from hermes_trio.core.records import Conversation
from hermes_trio.schema.conversations import (
    conversation_object,
    item_list,
    items_to_messages,
    parse_conversation,
    parse_conversation_items,
    parse_conversation_update,
    read_input,
    with_ids,
)
from tests.support.strategies import cuts, scripts
from tests.support.turn_rules import played

URL = "https://example.org/a.png"
IMAGE = {"type": "input_image", "image_url": URL}
ITEMS = [
    "hello",
    {"role": "system", "content": "be brief"},
    {"role": "user", "content": [{"type": "text", "text": "see"}, IMAGE, "and tell"]},
    {"type": "reasoning", "id": "rs_0", "summary": [{"type": "summary_text", "text": "hm"}]},
    {
        "type": "message",
        "id": "msg_0",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "well"}],
    },
    {"type": "function_call", "call_id": "c", "name": "t"},
    {
        "type": "function_call_output",
        "call_id": "c",
        "output": [{"type": "input_text", "text": "r"}, IMAGE],
    },
]


def call(call_id: str) -> dict[str, Any]:
    return {
        "type": "function_call",
        "call_id": call_id,
        "name": f"tool {call_id}",
        "arguments": "{}",
    }


def result(call_id: str, output: Any = "r", **fields: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": output, **fields}


def asked(*call_ids: str, text: str = "") -> Message:
    return Message(
        "assistant", text, tuple(ToolCall(name, f"tool {name}", "{}") for name in call_ids)
    )


def returned(call_id: str, text: str = "r") -> Message:
    return Message("tool", text, tool_call_id=call_id, name=f"tool {call_id}")


def test_items_are_shown_in_one_form_with_ids() -> None:
    items = with_ids("resp_1", read_input(ITEMS))
    assert items == with_ids("resp_1", read_input(ITEMS))
    assert len({item["id"] for item in items}) == len(items)
    assert items[2]["content"] == [
        {"type": "input_text", "text": "see"},
        {"type": "input_image", "image_url": URL, "detail": "auto"},
        {"type": "input_text", "text": "and tell"},
    ]
    assert items[4]["content"] == [{"type": "output_text", "text": "well", "annotations": []}]
    assert items[4]["id"] != "msg_0"
    assert [item["id"].partition("_")[0] for item in items] == [
        "msg",
        "msg",
        "msg",
        "rs",
        "msg",
        "fc",
        "fco",
    ]


@pytest.mark.parametrize("n", range(len(ITEMS)))
def test_the_sdk_takes_every_item(n: int) -> None:
    item = with_ids("resp_1", read_input(ITEMS))[n]
    shown: Any = TypeAdapter(ResponseItem).validate_python(item, strict=True)
    assert shown.id == item["id"]
    assert shown.type == item["type"]


def test_content_that_is_no_text_and_no_list_is_shown_as_text() -> None:
    [item] = read_input([{"role": "user", "content": 5}])
    assert item["content"] == [{"type": "input_text", "text": "5"}]


def test_output_items_keep_their_ids() -> None:
    assert with_ids("x", [{"id": "fc_1", **call("a")}])[0]["id"] == "fc_1"


def test_items_become_messages() -> None:
    image = {"type": "image_url", "image_url": {"url": URL, "detail": "auto"}}
    assert items_to_messages(read_input(ITEMS)) == (
        Message("user", "hello"),
        Message("system", "be brief"),
        Message(
            "user", ({"type": "text", "text": "see"}, image, {"type": "text", "text": "and tell"})
        ),
        Message("assistant", "well", (ToolCall("c", "t", "{}"),), reasoning="hm"),
        Message("tool", ({"type": "text", "text": "r"}, image), tool_call_id="c", name="t"),
    )


def test_images_that_an_assistant_made_stay_parts() -> None:
    said = [{"role": "assistant", "content": "see"}, {"role": "assistant", "content": [IMAGE]}]
    [message] = items_to_messages(read_input(said))
    assert [part["type"] for part in message.content if not isinstance(part, str)] == [
        "text",
        "image_url",
    ]


@pytest.mark.parametrize(
    ("items", "messages"),
    [
        (
            [call("a"), call("b"), result("b"), result("a")],
            [asked("a", "b"), returned("a"), returned("b")],
        ),
        (
            [call("a"), result("a"), call("b"), result("b")],
            [asked("a", "b"), returned("a"), returned("b")],
        ),
        (
            [call("a"), {"role": "assistant", "content": "x"}, result("a")],
            [asked("a"), returned("a"), Message("assistant", "x")],
        ),
        ([call("a"), "x", result("a")], [asked("a"), returned("a"), Message("user", "x")]),
        (
            [call("a"), result("a", "1"), "x", call("a"), result("a", "2")],
            [asked("a"), returned("a", "1"), Message("user", "x"), asked("a"), returned("a", "2")],
        ),
        ([result("z"), "x"], [Message("tool", "r", tool_call_id="z"), Message("user", "x")]),
        (
            [{"role": "assistant", "content": "x"}, result("z")],
            [Message("assistant", "x"), Message("tool", "r", tool_call_id="z")],
        ),
        ([call("a")], [asked("a")]),
        (
            [call("a"), result("a", "half", status="incomplete")],
            [asked("a"), returned("a", "half\n[cancelled before it ended]")],
        ),
        (
            [call("a"), result("a", "one"), result("a", [{"type": "input_text", "text": "two"}])],
            [asked("a"), returned("a", "one\ntwo")],
        ),
    ],
)
def test_every_result_stands_after_its_call(items: list[Any], messages: list[Message]) -> None:
    assert items_to_messages(read_input(items)) == tuple(messages)


def mcp(**fields: Any) -> dict[str, Any]:
    return {"type": "mcp_call", "name": "t", "arguments": "{}", "server_label": "hermes", **fields}


@pytest.mark.parametrize(
    ("item", "text"),
    [
        (mcp(output="r"), "r"),
        (mcp(output=None), ""),
        (
            mcp(output="", error={"type": "http_error", "code": 500}),
            '{"type": "http_error", "code": 500}',
        ),
        (mcp(error="no such file", status="failed"), '"no such file"'),
        (mcp(output="half", status="incomplete"), "half\n[cancelled before it ended]"),
    ],
)
def test_a_call_that_a_server_ran_is_a_call_and_its_result(item: Any, text: str) -> None:
    calls, returned_text, question = items_to_messages(read_input([item, "go on"]))
    assert [(call.name, call.arguments) for call in calls.tool_calls] == [("t", "{}")]
    assert (returned_text.role, returned_text.content) == ("tool", text)
    assert returned_text.tool_call_id == calls.tool_calls[0].call_id
    assert question == Message("user", "go on")


def test_calls_of_servers_keep_their_ids_apart() -> None:
    first, *_ = items_to_messages(read_input([mcp(output="1"), mcp(output="2")]))
    assert len({call.call_id for call in first.tool_calls}) == 2


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"name": None}, "input[0].name"),
        ({"output": 7}, "input[0].output"),
        ({"status": "odd"}, "input[0].status"),
        ({"server_label": []}, "input[0].server_label"),
    ],
)
def test_a_wrong_call_of_a_server_is_refused(fields: Any, param: str) -> None:
    with pytest.raises(ApiError) as refused:
        read_input([mcp(**fields)])
    assert (refused.value.status, refused.value.param) == (400, param)


@pytest.mark.parametrize("tool_items", list(ToolItems))
@given(scripts, cuts)
def test_every_form_of_a_turn_can_be_sent_back(
    tool_items: ToolItems, script: list[Event], reason: Reason
) -> None:
    turn, _ = played(script, reason)
    items = output_items("resp_1", turn.items, turn.outcome, presentation=Presentation(tool_items))
    sent = items_to_messages(read_input(items)) if items else ()
    texts = [message.content for message in transcript(turn.items) if message.role == "assistant"]
    assert "".join(str(m.content) for m in sent if m.role == "assistant") == "".join(
        map(str, texts)
    )
    shown = ClientCallItem if tool_items is ToolItems.HIDDEN else CallItem | ClientCallItem
    called = [call.name for message in sent for call in message.tool_calls]
    assert sorted(called) == sorted(item.name for item in turn.items if isinstance(item, shown))


@pytest.mark.parametrize("form", list(ResultForm))
@given(scripts, cuts)
def test_the_items_of_a_turn_give_its_transcript(
    form: ResultForm, script: list[Event], reason: Reason
) -> None:
    turn, _ = played(script, reason)
    items = output_items("resp_1", turn.items, turn.outcome, form)
    assert items_to_messages(items) == transcript(turn.items)


def body(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def test_a_conversation_may_be_empty() -> None:
    for raw in (b"", b"{}", body(items=None, metadata=None)):
        made = parse_conversation(raw)
        assert (made.items, made.metadata) == ((), {})


def test_a_conversation_may_begin_with_items() -> None:
    made = parse_conversation(body(items=ITEMS, metadata={"a": "b"}))
    assert made.items == read_input(ITEMS)
    assert made.metadata == {"a": "b"}


def test_metadata_and_items_can_be_changed_later() -> None:
    assert parse_conversation_update(body(metadata={"a": "b"})) == {"a": "b"}
    assert parse_conversation_update(body(metadata=None)) == {}
    assert parse_conversation_items(body(items=["x"])) == read_input("x")


@pytest.mark.parametrize(
    ("parse", "raw", "param"),
    [
        (parse_conversation, body(items="x"), "items"),
        (parse_conversation, body(items=[5]), "items[0]"),
        (parse_conversation, body(items=["x"] * 21), "items"),
        (parse_conversation, body(metadata={str(n): "" for n in range(17)}), "metadata"),
        (parse_conversation, body(metadata={"a": "x" * 513}), "metadata.a"),
        (parse_conversation_update, body(), "metadata"),
        (parse_conversation_update, body(metadata={"a": None}), "metadata.a"),
        (parse_conversation_items, body(), "items"),
        (parse_conversation_items, body(items=[]), "items"),
        (parse_conversation_items, body(items=[{"type": "odd"}]), "items[0].type"),
    ],
)
def test_a_wrong_body_is_refused_by_the_name_of_its_parameter(
    parse: Any, raw: bytes, param: str
) -> None:
    with pytest.raises(ApiError) as caught:
        parse(raw)
    assert caught.value.param == param


def test_a_long_key_is_named_in_short() -> None:
    with pytest.raises(ApiError) as caught:
        parse_conversation(body(metadata={"k" * 1000: ""}))
    assert caught.value.param is not None
    assert len(caught.value.param) < 80


def test_how_conversations_and_lists_are_shown() -> None:
    shown = conversation_object(Conversation("default", "conv_1", 1.5, {"a": "b"}))
    assert shown == {
        "id": "conv_1",
        "object": "conversation",
        "created_at": 1,
        "metadata": {"a": "b"},
    }
    SdkConversation.model_validate(shown, strict=True)
    items = with_ids("s", read_input(["a", "b"]))
    page = item_list(items, has_more=True)
    assert (page["first_id"], page["last_id"]) == (items[0]["id"], items[1]["id"])
    empty: dict[str, Any] = {
        "object": "list",
        "data": [],
        "first_id": None,
        "last_id": None,
        "has_more": False,
    }
    assert item_list((), has_more=False) == empty


def test_a_conversation_takes_no_references() -> None:
    body = json.dumps({"items": [{"type": "item_reference", "id": "msg_1"}]}).encode()
    with pytest.raises(ApiError, match="a reference is only possible in the input of a turn"):
        parse_conversation_items(body)
