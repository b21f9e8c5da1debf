"""The fields of our values, by name. They are asked for with every record, and looked up once for each class."""

from __future__ import annotations

from functools import cache
from typing import Any

import attrs


@cache
def is_value(kind: type[Any]) -> bool:
    """Whether a class is one of attrs."""
    return attrs.has(kind)


@cache
def field_names(kind: type[Any]) -> tuple[str, ...]:
    """The names of its fields, in order."""
    return tuple(field.name for field in attrs.fields(kind))


def as_dict(value: Any) -> dict[str, Any]:
    """The fields of a value, which stay what they are."""
    return {name: getattr(value, name) for name in field_names(value.__class__)}
