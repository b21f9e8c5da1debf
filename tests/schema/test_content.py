from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_trio.core.errors import ApiError
from hermes_trio.schema.content import MAX_PARTS, has_visible_payload, system_text, user_content

PARAM = "messages[0].content"
URL = "https://host/cat.png"
KINDS: list[Any] = ["file", "input_file", "audio", "", None, 5, [], {}]
DETAILS: list[Any] = ["", " ", 5, []]
DATA = "data:image/png;base64,AAAA"


def text(value: Any, kind: str = "text") -> dict[str, Any]:
    return {"type": kind, "text": value}


def image(url: Any, **more: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url, **more}}


def refused(value: object) -> str | None:
    with pytest.raises(ApiError) as caught:
        user_content(value, PARAM)
    assert (caught.value.status, caught.value.param) == (400, PARAM)
    assert PARAM in caught.value.message
    return caught.value.code


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, ""),
        ("", ""),
        ("plain", "plain"),
        ('[{"type": "text"}]', '[{"type": "text"}]'),
        ("x" * 70_000, "x" * 70_000),
        (5, "5"),
        (True, "True"),
        ([], ""),
        (["a", "b"], "a\nb"),
        ([text("a"), text("b", "input_text"), text("c", "output_text"), "d"], "a\nb\nc\nd"),
        ([text(None), text(""), "", {"type": "text"}, text(7)], "7"),
        ([text("a", " TEXT ")], "a"),
        ([None, 1, ["nested"], True, "a"], "a"),
        (["a"] * 1_000, "\n".join(["a"] * 1_000)),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_text_becomes_one_string(value: object, expected: str) -> None:
    assert user_content(value, PARAM) == expected


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (image(URL), image(URL)),
        (image(f" {URL} ", detail=" high "), image(URL, detail="high")),
        (image(URL, detail=None), image(URL)),
        ({**image(URL), "detail": "low"}, image(URL, detail="low")),
        ({**image(URL, detail="high"), "detail": "low"}, image(URL, detail="high")),
        ({"type": "image_url", "image_url": URL}, image(URL)),
        ({"type": "input_image", "image_url": URL, "detail": "auto"}, image(URL, detail="auto")),
        ({"type": "input_image", "image_url": {"url": DATA}}, image(DATA)),
        (image("HTTP://HOST/x"), image("HTTP://HOST/x")),
        (image("Data:Image/PNG;base64,AA"), image("Data:Image/PNG;base64,AA")),
    ],
)
def test_images_become_one_kind_of_part(part: Any, expected: Any) -> None:
    assert user_content([part], PARAM) == (expected,)
    assert user_content(["look", part, text("there")], PARAM) == (
        text("look"),
        expected,
        text("there"),
    )


@pytest.mark.parametrize(
    ("value", "code"),
    [
        *(
            ([image(url)], "invalid_image_url")
            for url in (None, "", "  ", 5, "ftp://x", "/etc/x", "file:///x", "http:x")
        ),
        ([{"type": "image_url"}], "invalid_image_url"),
        ([{"type": "input_image", "file_id": "f", "url": URL}], "invalid_image_url"),
        ([{"type": "input_image", "image_url": []}], "invalid_image_url"),
        *(
            ([image(url)], "unsupported_content_type")
            for url in ("data:text/plain,x", "data:image/png;base64", "data:")
        ),
        *(([{"type": kind}], "unsupported_content_type") for kind in KINDS),
        ([{}], "unsupported_content_type"),
        *(([image(URL, detail=detail)], "invalid_content_part") for detail in DETAILS),
        ([{"type": "input_image", "image_url": URL, "detail": False}], "invalid_content_part"),
        (["a"] * 1_001, "invalid_content_part"),
        (text("not in an array"), "invalid_content_part"),
    ],
    ids=lambda value: repr(value)[:50],
)
def test_what_cannot_be_read_is_refused_by_name(value: object, code: str) -> None:
    assert refused(value) == code


def test_a_long_part_type_is_not_echoed_whole() -> None:
    with pytest.raises(ApiError) as caught:
        user_content([{"type": "x" * 100_000}], PARAM)
    assert len(caught.value.message) < 300


def nest(levels: int) -> list[Any]:
    value: list[Any] = ["deep"]
    for _ in range(levels - 1):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, ""),
        ("be kind", "be kind"),
        (5, "5"),
        (False, "False"),
        ([], ""),
        (["a", text("b"), text("c", "input_text")], "a\nb\nc"),
        (["a", image(URL), {"type": "file"}, {}, None, 3, "", text(""), text(None), "b"], "a\nb"),
        (["a", ["b", [text("c")]]], "a\nb\nc"),
        (text("a"), "a"),
        (image(URL), ""),
        (nest(10), "deep"),
        ("x" * 70_000, "x" * 70_000),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_system_text(value: object, expected: str) -> None:
    assert system_text(value) == expected


@pytest.mark.parametrize(
    "value", [["a"] * 1_001, [["a"] * 1_001], nest(11)], ids=["long", "long inside", "deep"]
)
def test_system_text_that_would_be_lost_is_refused(value: object) -> None:
    with pytest.raises(ApiError) as caught:
        system_text(value, "messages[1].content")
    assert (caught.value.param, caught.value.code) == (
        "messages[1].content",
        "invalid_content_part",
    )


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", False),
        (" \n\t", False),
        ("x", True),
        ((), False),
        ((text(" "),), False),
        ((text(" "), text("x")), True),
        ((image(URL),), True),
        ((text(" "), image(URL)), True),
    ],
)
def test_visible_payload(content: Any, expected: bool) -> None:
    assert has_visible_payload(content) is expected


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | st.floats() | st.text(max_size=5) | st.sampled_from([URL, DATA]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["type", "text", "image_url", "url", "detail"]), inner, max_size=4)
        | st.builds(lambda kind, body: {"type": kind, **body}, st.sampled_from(["text", "image_url", "input_image"]),
                    st.dictionaries(st.sampled_from(["text", "image_url", "detail"]), inner))
    ),
    max_leaves=12,
)  # fmt: skip


@settings(deadline=None)
@given(json_values)
def test_any_json_gives_content_or_a_refusal(value: Any) -> None:
    assert isinstance(system_text(value), str)
    try:
        content = user_content(value, PARAM)
    except ApiError as error:
        raised = error
    else:
        # What came out goes in again unchanged.
        assert user_content(content, PARAM) == content
        assert isinstance(has_visible_payload(content), bool)
        return
    assert (raised.param, bool(raised.code)) == (PARAM, True)


@settings(deadline=None)
@given(st.lists(st.text(min_size=1), max_size=MAX_PARTS))
def test_no_text_is_lost(texts: list[str]) -> None:
    assert (
        user_content([text(part) for part in texts], PARAM)
        == system_text(texts)
        == "\n".join(texts)
    )
