"""The reference of the tools lists what the code has."""

from __future__ import annotations

import inspect

from hermes_trio.tools import danger
from hermes_trio.tools.base import SAFE_NAMES
from hermes_trio.tools.danger import RULES, Danger
from hermes_trio.tools.registry import find_tools
from hermes_trio.tools.terminal import make_terminal
from hermes_trio.tools.web_fetch import make_web_fetch
from tests.support.doc_examples import ROOT

TEXT = (ROOT / "docs/reference/tools.md").read_text(encoding="utf-8")


def test_every_tool_and_parameter() -> None:
    for tool in find_tools(()):
        names = ", ".join(f"`{name}`" for name in tool.parameters["properties"])
        assert f"| `{tool.name}` | {names} |" in TEXT


def test_every_option() -> None:
    makers = (make_terminal, make_web_fetch)
    options = [each for make in makers for each in inspect.signature(make).parameters.values()]
    for option in options:
        if isinstance(option.default, bool):
            default = f"`{str(option.default).lower()}`"
        else:
            default = "none" if option.default == () else f"`{option.default:g}`"
        assert f"| `{option.name}` | {default} |".replace("5e+06", "5000000") in TEXT


def test_every_danger() -> None:
    keys = {rule.key for rule in RULES} | {
        each.key for each in vars(danger).values() if isinstance(each, Danger)
    }
    assert [key for key in sorted(keys) if f"| `{key}` |" not in TEXT] == []


def test_every_safe_variable() -> None:
    assert [name for name in sorted(SAFE_NAMES) if f"`{name}`" not in TEXT] == []
