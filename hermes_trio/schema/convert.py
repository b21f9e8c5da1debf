"""From plain JSON to frozen request classes, with errors that name the parameter."""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

from hermes_trio.core.errors import bad_request

T = TypeVar("T")

_MISSING = re.compile(r"missing required field `(?P<name>[^`]+)`")
_PLACE = re.compile(r"(?P<what>.*?)(?: - at `\$\.?(?P<where>[^`]*)`)?$", re.DOTALL)


def convert(body: dict[str, Any], kind: type[T]) -> T:
    """The body as a value of the given class.

    Raises:
        ApiError: 400, naming the parameter that does not fit.
    """
    try:
        return msgspec.convert(body, kind)
    except msgspec.ValidationError as error:
        raise _refusal(str(error)) from None


def _refusal(message: str) -> Exception:
    place = _PLACE.match(message)
    assert place is not None  # the pattern takes every text
    where, what = place["where"] or "", place["what"]
    missing = _MISSING.search(what)
    if missing is not None:
        param = f"{where}.{missing['name']}".lstrip(".")
        return bad_request(f"Missing required parameter: '{param}'.", param)
    return bad_request(f"Invalid value for '{where}': {what[:1].lower()}{what[1:]}.", where or None)
