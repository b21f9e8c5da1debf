"""Derive a JSON schema from a function's signature, and call arguments from JSON."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, get_type_hints

import msgspec
from attrs import frozen

_SECTION = re.compile(r"^(Args|Returns|Raises|Yields|Note|Example)s?:\s*$", re.MULTILINE)
_ARGUMENT = re.compile(r"^ {4}(\w+)(?: \([^)]*\))?: ", re.MULTILINE)
_LOCATION = re.compile(r"^(?P<what>.*) - at `\$\.(?P<name>.*)`$", re.DOTALL)
_FIELD = re.compile(
    r"^Object (?P<what>missing required|contains unknown) field `(?P<name>.*)`$", re.DOTALL
)


class InvalidArguments(Exception):
    """Arguments do not match the signature. The message names the offending argument."""


@frozen
class Signature:
    """The parameters of a function, except those that its caller injects."""

    schema: Mapping[str, Any]
    shape: type[msgspec.Struct]
    injected: tuple[str, ...]  # names of the parameters that the caller supplies

    def arguments(self, sent: Mapping[str, Any]) -> dict[str, Any]:
        """Validate JSON values and fill in defaults. Numbers and booleans may be given as strings.

        Raises:
            InvalidArguments: an argument is missing, unknown or of the wrong type.
        """
        try:
            value = msgspec.convert(dict(sent), self.shape, strict=False)
        except msgspec.ValidationError as error:
            raise InvalidArguments(_explain(str(error))) from None
        return {name: getattr(value, name) for name in self.shape.__struct_fields__}


def read_signature(function: Callable[..., Any], injected_type: type) -> Signature:
    """Inspect a function.

    Args:
        function: every parameter must be named and annotated with a type that JSON can represent.
        injected_type: parameters of this type are supplied by the caller and left out of the
            schema.

    Raises:
        TypeError: the function has a parameter that a schema cannot express.
    """
    hints = get_type_hints(function, include_extras=True)
    parameters = inspect.signature(function).parameters.values()
    descriptions = argument_descriptions(inspect.getdoc(function) or "")
    fields: list[tuple[str, Any, Any]] = []
    injected: list[str] = []
    for parameter in parameters:
        name = parameter.name
        if hints.get(name) is injected_type:
            injected.append(name)
            continue
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(f"a tool takes named parameters only, not {parameter}")
        if name not in hints:
            raise TypeError(f"parameter {name!r} needs a type annotation")
        annotation = hints[name]
        if name in descriptions:
            annotation = Annotated[annotation, msgspec.Meta(description=descriptions[name])]
        default = msgspec.NODEFAULT if parameter.default is parameter.empty else parameter.default
        fields.append((name, annotation, msgspec.field(default=default)))
    shape = msgspec.defstruct(function.__name__, fields, kw_only=True, forbid_unknown_fields=True)
    return Signature(_schema(shape), shape, tuple(injected))


def _schema(shape: type[msgspec.Struct]) -> dict[str, Any]:
    (reference,), parts = msgspec.json.schema_components((shape,), ref_template="#/$defs/{name}")
    schema = parts.pop(reference["$ref"].removeprefix("#/$defs/"))
    del schema["title"]
    schema.pop("description", None)  # of the generated struct
    return {**schema, "$defs": parts} if parts else schema


def summary(docstring: str) -> str:
    """Return the part of a docstring before its first section."""
    return _SECTION.split(docstring, maxsplit=1)[0].strip()


def argument_descriptions(docstring: str) -> dict[str, str]:
    """Return the descriptions in a docstring's ``Args:`` section, by argument."""
    parts = _SECTION.split(docstring)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    found = _ARGUMENT.split(sections.get("Args", "").strip("\n"))
    return {
        name: " ".join(text.split())
        for name, text in zip(found[1::2], found[2::2], strict=True)
        if text.strip()
    }


def _explain(error: str) -> str:
    """Rephrase a validation message in terms of arguments."""
    if found := _LOCATION.match(error):
        return f"argument {found['name']!r}: {found['what'][:1].lower()}{found['what'][1:]}"
    if found := _FIELD.match(error):
        return (
            f"{'missing' if 'missing' in found['what'] else 'unknown'} argument {found['name']!r}"
        )
    return error
