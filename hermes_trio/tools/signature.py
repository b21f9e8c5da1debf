"""From the typed signature of a function to a JSON schema, and from JSON to the arguments of a call."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, get_type_hints

import msgspec
from attrs import frozen

_SECTION = re.compile(r"^(Args|Returns|Raises|Yields|Note|Example)s?:\s*$", re.MULTILINE)
_ARGUMENT = re.compile(r"^ {4}(\w+)(?: \([^)]*\))?: ", re.MULTILINE)
_PLACE = re.compile(r"^(?P<what>.*) - at `\$\.(?P<name>.*)`$", re.DOTALL)
_FIELD = re.compile(r"^Object (?P<what>missing required|contains unknown) field `(?P<name>.*)`$", re.DOTALL)


class Misfit(Exception):
    """Arguments do not fit. The text names the one that does not."""


@frozen
class Signature:
    """What a function takes, apart from what the caller adds of its own."""

    schema: Mapping[str, Any]
    shape: type[msgspec.Struct]
    given: tuple[str, ...]  # parameters of the type that the caller adds

    def arguments(self, sent: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments for a call, defaults filled in. Numbers and truth values may come as text.

        Raises:
            Misfit: one is missing, unknown or of the wrong type.
        """
        try:
            value = msgspec.convert(dict(sent), self.shape, strict=False)
        except msgspec.ValidationError as error:
            raise Misfit(_explained(str(error))) from None
        return {name: getattr(value, name) for name in self.shape.__struct_fields__}


def read_signature(function: Callable[..., Any], added: type) -> Signature:
    """Read a function.

    Args:
        function: every parameter must have a name and a type that JSON can carry.
        added: parameters of this type are the caller's own, and are not in the schema.

    Raises:
        TypeError: the function takes what a schema cannot express.
    """
    hints = get_type_hints(function, include_extras=True)
    parameters = inspect.signature(function).parameters.values()
    told = argument_texts(inspect.getdoc(function) or "")
    fields = [_field(each, hints, told) for each in parameters if hints.get(each.name) is not added]
    shape = msgspec.defstruct(function.__name__, fields, kw_only=True, forbid_unknown_fields=True)
    given = tuple(each.name for each in parameters if hints.get(each.name) is added)
    return Signature(_schema(shape), shape, given)


def _field(
    parameter: inspect.Parameter, hints: Mapping[str, Any], told: Mapping[str, str]
) -> tuple[str, Any, Any]:
    name = parameter.name
    if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
        raise TypeError(f"a tool takes named parameters only, not {parameter}")
    if name not in hints:
        raise TypeError(f"parameter {name!r} needs a type")
    kind = Annotated[hints[name], msgspec.Meta(description=told[name])] if name in told else hints[name]
    default = msgspec.NODEFAULT if parameter.default is parameter.empty else parameter.default
    return name, kind, msgspec.field(default=default)


def _schema(shape: type[msgspec.Struct]) -> dict[str, Any]:
    (reference,), parts = msgspec.json.schema_components((shape,), ref_template="#/$defs/{name}")
    schema = parts.pop(reference["$ref"].removeprefix("#/$defs/"))
    del schema["title"]
    schema.pop("description", None)  # of the made-up struct
    return {**schema, "$defs": parts} if parts else schema


def summary(documentation: str) -> str:
    """What a docstring says before its first section."""
    return _SECTION.split(documentation, maxsplit=1)[0].strip()


def argument_texts(documentation: str) -> dict[str, str]:
    """What a docstring says of each argument."""
    parts = _SECTION.split(documentation)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    found = _ARGUMENT.split(sections.get("Args", "").strip("\n"))
    return {
        name: " ".join(text.split())
        for name, text in zip(found[1::2], found[2::2], strict=True)
        if text.strip()
    }


def _explained(error: str) -> str:
    if found := _PLACE.match(error):
        return f"argument {found['name']!r}: {found['what'][:1].lower()}{found['what'][1:]}"
    if found := _FIELD.match(error):
        return f"{'missing' if 'missing' in found['what'] else 'unknown'} argument {found['name']!r}"
    return error
