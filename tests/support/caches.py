"""What every application would make anew, although it is always the same, is made once in a process of tests.

A test has an application and a store of its own. Nine tenths of making them are the functions that
build addresses from rules, which are never called, the packing of the page's files and the tables
of an empty database. The first two have no state and are shared; the third is copied. Servers in
processes of their own, and databases in files, do it all as ever.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Hashable
from functools import cache, wraps
from typing import Any

from werkzeug.routing import Rule

from hermes_trio.stores import memory
from hermes_trio.stores.sqlite.schema import migrate
from hermes_trio.web import app, static

# of a rule: a function that has the rule as its argument and depends on its text alone
BUILDER = "_compile_builder"


def make_once() -> None:
    """From now on, in this process."""
    if hasattr(
        Rule, BUILDER
    ):  # not a part of Werkzeug's promises: without it tests are slower, not wrong
        setattr(Rule, BUILDER, _once_for_each_text(getattr(Rule, BUILDER)))
    setattr(app, static.load_page.__name__, cache(static.load_page))
    setattr(memory, migrate.__name__, _copy_of_the_tables)


def _once_for_each_text(compile_builder: Callable[..., Any]) -> Callable[..., Any]:
    made: dict[Hashable, Any] = {}

    @wraps(compile_builder)
    def compiled(rule: Any, append_unknown: bool = True) -> Any:
        if rule.defaults:
            return compile_builder(rule, append_unknown)
        key = (rule.rule, tuple(rule._trace), append_unknown)
        if key not in made:
            made[key] = compile_builder(rule, append_unknown)
        return made[key]

    return compiled


@cache
def _tables() -> bytes:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    try:
        migrate(connection)
        return connection.serialize()
    finally:
        connection.close()


def _copy_of_the_tables(connection: sqlite3.Connection) -> None:
    connection.deserialize(_tables())
