"""The toolsets and skills of the real package, as a client lists them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from hermes_trio import Settings, create_app
from tests.hermes.scripted_model import Upstream

KEY = "key-kq7w-vzx2-mhp9"
BEARER = {"Authorization": f"Bearer {KEY}"}
SKILL = """\
---
name: knots
description: Tie knots that hold
---
# Knots
"""


@asynccontextmanager
async def client_of(folder: Path, model: Upstream, **more: Any) -> AsyncIterator[Any]:
    """A client of a server with the agent hermes."""
    settings = Settings(
        api_key=KEY,
        data_dir=folder,
        store="memory:",
        agent="hermes",
        base_url=model.url,
        upstream_model="scripted",
        **more,
    )
    async with create_app(settings).test_app() as running:
        yield running.test_client()


async def listed(client: Any, path: str) -> dict[str, dict[str, Any]]:
    answer = await client.get(path, headers=BEARER)
    assert answer.status_code == 200
    return {each["name"]: each for each in (await answer.get_json())["data"]}


async def test_toolsets_are_those_that_hermes_lists(tmp_path: Path, model: Upstream) -> None:
    from hermes_cli.tools_config import (  # type: ignore[import-not-found] # noqa: PLC0415
        _get_effective_configurable_toolsets,
    )

    async with client_of(tmp_path, model) as client:
        found = await listed(client, "/v1/toolsets")
    assert [*found] == [name for name, _label, _text in _get_effective_configurable_toolsets()]
    # As the configuration of the test's home has it.
    assert {name for name, each in found.items() if each["enabled"]} == {"terminal", "file"}
    assert "read_file" in found["file"]["tools"]
    assert "terminal" in found["terminal"]["tools"]
    assert all(each["label"] and each["tools"] == sorted(each["tools"]) for each in found.values())


async def test_chosen_toolsets_are_the_enabled_ones(tmp_path: Path, model: Upstream) -> None:
    async with client_of(tmp_path, model, tools=("web",)) as client:
        found = await listed(client, "/v1/toolsets")
    assert {name for name, each in found.items() if each["enabled"]} == {"web"}


async def test_skills(tmp_path: Path, model: Upstream, home: Path) -> None:
    folder = home / "skills" / "crafts" / "knots"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(SKILL)
    async with client_of(tmp_path, model) as client:
        found = await listed(client, "/v1/skills")
    assert found["knots"] == {
        "name": "knots",
        "description": "Tie knots that hold",
        "category": "crafts",
    }
