"""From ``module:attribute``, as it stands in the settings, to the object."""

from __future__ import annotations

import importlib
import os
import sys
from contextlib import suppress
from types import ModuleType


class NameProblem(Exception):
    """Nothing has this name. The text is one line that says what is missing."""


def find_named(name: str) -> object:
    """The object that ``module:attribute`` names.

    The attribute may have dots. The module is looked for in the working directory too.

    Raises:
        NameProblem: no such module or attribute, or the module fails when it is imported.
    """
    module_name, _, attribute = name.partition(":")
    found: object = _module(module_name)
    for part in attribute.split("."):
        found = _attribute(found, part, name)
    return found


def is_qualified(name: str) -> bool:
    """Whether a name has the form ``module:attribute``."""
    module_name, _, attribute = name.partition(":")
    return bool(module_name and attribute)


def kind_of(thing: object) -> str:
    """What to call a thing in a message."""
    if isinstance(thing, ModuleType | type):
        return f"{'module' if isinstance(thing, ModuleType) else 'class'} {thing.__name__!r}"
    return f"an object of type {type(thing).__name__!r}"


def _module(name: str) -> ModuleType:
    _look_in_working_directory()
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and f"{name}.".startswith(f"{error.name}."):
            raise NameProblem(f"there is no module {error.name!r}") from error
        raise NameProblem(_failed(name, error)) from error
    except (Exception, SystemExit) as error:
        raise NameProblem(_failed(name, error)) from error


def _look_in_working_directory() -> None:
    with suppress(FileNotFoundError):  # it may have been deleted under us
        if (folder := os.getcwd()) not in sys.path:
            sys.path.insert(0, folder)


def _attribute(owner: object, part: str, name: str) -> object:
    try:
        return getattr(owner, part)
    except AttributeError as error:
        raise NameProblem(f"{name}: {kind_of(owner)} has no attribute {part!r}") from error


def _failed(name: str, error: BaseException) -> str:
    said = " ".join(str(error).split())
    return f"module {name!r} cannot be imported: {type(error).__name__}{': ' if said else ''}{said}"
