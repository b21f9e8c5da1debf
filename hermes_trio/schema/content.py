"""Normalise message content, which clients spell in many ways.

Nothing a user sends is dropped silently: text is never cut (the size of the body bounds it), and an
array with too many parts or too many levels is rejected by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from hermes_trio.core.errors import ApiError, bad_request
from hermes_trio.core.messages import Content
from hermes_trio.core.shorten import shorten

MAX_PARTS = 1_000
MAX_DEPTH = 10

_TEXT_TYPES = frozenset({"text", "input_text", "output_text"})
_IMAGE_TYPES = frozenset({"image_url", "input_image"})

Part = Mapping[str, Any]


def user_content(value: object, param: str) -> Content:
    """Normalise the content of a user or assistant message: text, or parts if it contains an image.

    Raises:
        ApiError: 400, naming ``param``.
    """
    if type(value) is str:  # the common case, checked first
        return value
    if isinstance(value, Mapping):
        raise _bad_part("content must be a string or an array of parts", param)
    if not isinstance(value, list | tuple):
        return _scalar(value)
    parts = tuple(part for item in _bounded(value, param) for part in _parts(item, param))
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return parts


def system_text(value: object, param: str = "messages") -> str:
    """Return the text of a system message. Parts that are not text are skipped."""
    if isinstance(value, list | tuple | Mapping):
        return "\n".join(_system_texts(value, param, MAX_DEPTH))
    return _scalar(value)


def has_visible_payload(content: Content) -> bool:
    """Return whether there is anything to answer: text that is not blank, or an image."""
    if isinstance(content, str):
        return bool(content.strip())
    return any(part["type"] != "text" or part["text"].strip() for part in content)


def _scalar(value: object) -> str:
    return "" if value is None else str(value)


def _bounded(value: list[Any] | tuple[Any, ...], param: str) -> list[Any] | tuple[Any, ...]:
    if len(value) > MAX_PARTS:
        raise _bad_part(f"content has more than {MAX_PARTS} parts", param)
    return value


def _parts(item: object, param: str) -> Iterator[Part]:
    """Yield the canonical part for one item of a content array; nothing for an empty one."""
    if isinstance(item, str):
        yield from _text_part(item)
    elif isinstance(item, Mapping):
        kind = _type(item)
        if kind in _TEXT_TYPES:
            yield from _text_part(_scalar(item.get("text")))
        elif kind in _IMAGE_TYPES:
            yield _image_part(item, param)
        else:
            raise _unsupported(
                f"Content parts of type {kind!r} are not supported, only text and images", param
            )


def _type(item: Part) -> str:
    kind = item.get("type")
    return shorten(kind.strip().lower(), 60) if isinstance(kind, str) else ""


def _text_part(text: str) -> Iterator[Part]:
    if text:
        yield {"type": "text", "text": text}


def _image_part(item: Part, param: str) -> Part:
    image = item.get("image_url")
    source: Part = {**item, **image} if isinstance(image, Mapping) else {**item, "url": image}
    shown = {"url": _image_url(source.get("url"), param)}
    detail = source.get("detail")
    if detail is not None:
        if not isinstance(detail, str) or not detail.strip():
            raise _bad_part("an image's detail must be a non-empty string", param)
        shown["detail"] = detail.strip()
    return {"type": "image_url", "image_url": shown}


def _image_url(url: object, param: str) -> str:
    url = url.strip() if isinstance(url, str) else ""
    head = url[:16].lower()
    if head.startswith("data:") and (not head.startswith("data:image/") or "," not in url):
        raise _unsupported("Only data URLs of images are supported", param)
    if not head.startswith(("http://", "https://", "data:")):
        raise bad_request(
            f"{param}: image URLs must use http, https or data:image/.", param, "invalid_image_url"
        )
    return url


def _system_texts(item: object, param: str, depth: int) -> Iterator[str]:
    if isinstance(item, list | tuple):
        if not depth:
            raise _bad_part(f"content is nested more than {MAX_DEPTH} levels deep", param)
        for child in _bounded(item, param):
            yield from _system_texts(child, param, depth - 1)
    elif isinstance(item, Mapping):
        if _type(item) in _TEXT_TYPES and (text := _scalar(item.get("text"))):
            yield text
    elif isinstance(item, str) and item:
        yield item


def _refusal(code: str) -> Callable[[str, str], ApiError]:
    return lambda message, param: bad_request(f"{param}: {message}.", param, code)


_bad_part = _refusal("invalid_content_part")
_unsupported = _refusal("unsupported_content_type")
