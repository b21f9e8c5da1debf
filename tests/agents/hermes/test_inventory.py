"""What is listed of Hermes, as far as its functions are there."""

from __future__ import annotations

import pytest

from hermes_trio.agent.inventory import Inventory, Skill, Toolset
from hermes_trio.agents.hermes import compat
from tests.agents.hermes.fake_package import FakePackage


def test_toolsets_and_skills(monkeypatch: pytest.MonkeyPatch) -> None:
    FakePackage().install(monkeypatch)
    assert compat.inventory(()) == Inventory(
        (
            Toolset("file", ("read_file",), "Files", "Reads files"),
            Toolset("broken", (), "Broken", is_enabled=False),
            Toolset("web", ("web_search",), "Web", is_configured=False),
        ),
        (Skill("knots", "Tie knots"),),
    )


def test_chosen_toolsets(monkeypatch: pytest.MonkeyPatch) -> None:
    FakePackage().install(monkeypatch)
    enabled = [each.name for each in compat.inventory(("broken",)).toolsets if each.is_enabled]
    assert enabled == ["broken"]


def test_missing_functions_leave_the_lists_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    without = (
        "hermes_cli.tools_config._get_effective_configurable_toolsets",
        "tools.skills_tool._find_all_skills",
        "tools.skills_tool._sort_skills",
    )
    FakePackage().install(monkeypatch, without)
    assert compat.inventory(()) == Inventory()
