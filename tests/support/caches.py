"""Share between tests what is the same for every application and takes long to create.

Each test has its own application and store. Nine tenths of their set-up time go into three things: the
functions that build URLs from rules, which are never called; compressing the files of the page; and
creating the tables of an empty database. The first two have no state and are shared; the tables are
copied. Servers in separate processes and databases in files share nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Hashable
from functools import cache, wraps
from typing import Any

from werkzeug.routing import Rule

from hermes_trio.stores.sqlite import store as sqlite_store
from hermes_trio.stores.sqlite.schema import migrate
from hermes_trio.web import app, static

# of a rule: a function that has the rule as its argument and depends on its text alone
BUILDER = "_compile_builder"


def make_once() -> None:
    """Share them in this process from now on. Call it once."""
    # Not public in Werkzeug: without it, tests are slower and nothing else.
    if hasattr(Rule, BUILDER):
        setattr(Rule, BUILDER, _once_for_each_text(getattr(Rule, BUILDER)))
    setattr(app, static.load_page.__name__, cache(static.load_page))
    setattr(sqlite_store, migrate.__name__, _copy_of_the_tables)


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
