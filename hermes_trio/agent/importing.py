"""Import the object that a setting names as ``module:attribute``."""

from __future__ import annotations

import importlib
import os
import sys
from contextlib import suppress
from types import FunctionType, ModuleType


class ImportTargetError(Exception):
    """An import target does not exist or cannot be imported.

    The text is one line that says what is missing.
    """


def import_object(target: str) -> object:
    """Import the object that ``module:attribute`` names. The attribute may have dots.

    The working directory is searched too.

    Raises:
        ImportTargetError: no such module or attribute, or importing the module fails.
    """
    module_name, _, attributes = target.partition(":")
    found: object = _import_module(module_name)
    for attribute in attributes.split("."):
        try:
            found = getattr(found, attribute)
        except AttributeError as error:
            message = f"{target}: {describe_type(found)} has no attribute {attribute!r}"
            raise ImportTargetError(message) from error
    return found


def is_import_target(name: str) -> bool:
    """Return whether a name has the form ``module:attribute``."""
    module_name, _, attribute = name.partition(":")
    return bool(module_name and attribute)


def describe_type(value: object) -> str:
    """Return what to call a value in an error message."""
    for kind, word in ((ModuleType, "module"), (type, "class"), (FunctionType, "function")):
        if isinstance(value, kind):
            return f"{word} {value.__name__!r}"
    return f"an object of type {type(value).__name__!r}"


def _import_module(name: str) -> ModuleType:
    with suppress(FileNotFoundError):  # the working directory may have been deleted
        if (folder := os.getcwd()) not in sys.path:
            sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and f"{name}.".startswith(f"{error.name}."):
            raise ImportTargetError(f"there is no module {error.name!r}") from error
        raise ImportTargetError(_import_failure(name, error)) from error
    except (Exception, SystemExit) as error:
        raise ImportTargetError(_import_failure(name, error)) from error


def _import_failure(name: str, error: BaseException) -> str:
    message = " ".join(str(error).split())
    return f"module {name!r} cannot be imported: {type(error).__name__}{': ' if message else ''}{message}"
