"""Building a server from settings: its store, and when its agents are opened and closed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from hermes_trio.bootstrap import open_server
from hermes_trio.core.errors import ApiError, ConfigurationError
from hermes_trio.preparation import prepare
from hermes_trio.settings import Settings
from tests.support.asgi import Client
from tests.support.fakes import CHAT, KEY, OTHER_KEY, ask, bearer
from tests.support.providers import read_activity
from tests.support.run_harness import RunHarness

PROVIDER = "tests.support.providers:provider"


def settings_of(folder: Path, agent: str = PROVIDER, **more: object) -> Settings:
    """A server without files but for the workspaces."""
    return Settings(data_dir=folder, store="memory:", api_key=KEY, agent=agent, **more)  # type: ignore[arg-type]


async def test_a_provider_is_opened_once_and_closed_when_the_runs_are_gone(tmp_path: Path) -> None:
    async with open_server(prepare(settings_of(tmp_path))) as running:
        client = Client(running.app, bearer(KEY))
        assert read_activity(tmp_path / "workspace") == ["opened"]
        for _ in range(2):
            assert (await client.send(CHAT, ask())).status == 200
        detached = {"input": "wait", "background": True, "stream": True}
        async with client.post("/v1/responses", detached) as exchange:
            await exchange.frame_where(type="response.output_text.delta")
        assert read_activity(tmp_path / "workspace")[-1] == "began for default"
    assert read_activity(tmp_path / "workspace") == [
        "opened",
        *["began for default", "ended"] * 3,
        "closed",
    ]


async def test_principals_share_the_slots(tmp_path: Path) -> None:
    """As many as there are keys; or each has the number that is configured."""
    (tmp_path / "keys").touch(0o600)
    (tmp_path / "keys").write_text(f'[keys]\nann = "{KEY}"\nbob = "{OTHER_KEY}"\n')
    named: dict[str, Any] = {"api_key": "", "api_key_file": tmp_path / "keys"}
    for more, most in (
        ({}, 8),
        (named, 6),
        ({**named, "max_runs_per_principal": 7}, 7),
        ({**named, "max_runs_per_minute": 5}, 5),
    ):
        settings = evolve(settings_of(tmp_path, max_runs=8), **more)
        async with open_server(prepare(settings)) as running:
            for _ in range(most):
                running.admission.admit("ann")
            with pytest.raises(ApiError):
                running.admission.admit("ann")


async def test_principals_share_the_connections(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, max_requests_per_principal=3)
    async with open_server(prepare(settings)) as running:
        for _ in range(3):
            running.admission.admit_request("ann")
        with pytest.raises(ApiError):
            running.admission.admit_request("ann")


async def test_a_provider_that_refuses_ends_the_start(tmp_path: Path) -> None:
    parts = prepare(settings_of(tmp_path, "tests.support.providers:refusing"))
    with pytest.raises(ConfigurationError, match=r"^base_url: this agent needs one$"):
        async with open_server(parts):
            pytest.fail("it started")


async def test_a_workspace_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "workspace").write_text("a file")
    with pytest.raises(ConfigurationError, match=r"^data_dir: .* cannot be made"):
        async with open_server(prepare(settings_of(tmp_path))):
            pytest.fail("it started")


async def test_tokens_survive_a_restart(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, api_key=KEY, agent="demo")
    async with open_server(prepare(settings)) as running:
        client = Client(running.app, bearer(KEY))
        run_id = (await client.send("/v1/runs", {"input": "hello"})).json["run_id"]
        assert (await client.get(f"/v1/runs/{run_id}/events")).status == 200
        issued = await client.get(f"/v1/runs/{run_id}/ticket", method="POST")
    async with open_server(prepare(settings)) as running:
        path = f"/v1/runs/{run_id}/events?ticket={issued.json['ticket']}"
        assert (await Client(running.app).get(path)).status == 200


def places(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("file*")}


@pytest.mark.parametrize(
    ("names", "shared", "folders"),
    [
        (["default", "ann"], False, ["workspace", "workspaces/ann"]),
        (["ann", "Bob"], False, ["workspaces/ann", "workspaces/%42ob"]),
        (["ann", "default"], False, ["workspaces/ann", "workspace"]),
        (["ann", "bob"], True, ["workspace", "workspace"]),
        (["ann"], False, ["workspaces/ann"]),
    ],
)
async def test_workspaces_of_principals(
    tmp_path: Path, names: list[str], shared: bool, folders: list[str]
) -> None:
    """Each principal writes a file with its own key; only the default principal works in the agent's own."""
    keys = tmp_path / "keys"
    keys.write_text("[keys]\n" + "".join(f'"{name}" = "{KEY}-{name}"\n' for name in names))
    keys.chmod(0o600)
    settings = Settings(
        data_dir=tmp_path / "data",
        store="memory:",
        api_key_file=keys,
        agent="demo",
        shared_workspace=shared,
    )
    async with open_server(prepare(settings)) as running:
        for number, name in enumerate(names):
            client = Client(running.app, bearer(f"{KEY}-{name}"))
            assert (await client.send(CHAT, ask(f"/write file{number} x"))).status == 200
    assert places(settings.data_dir) == {
        f"{folder}/file{number}" for number, folder in enumerate(folders)
    }


async def test_folders_of_principals(tmp_path: Path) -> None:
    """A name of any length and any characters makes one folder, and two names never share one."""
    services = evolve(
        RunHarness(None).services, workspace=tmp_path / "workspace", workspace_owner="ann"
    )
    names = ["ann", "bob", "Bob", "..", "a/b", "a%2fb", "x" * 300, "x" * 301]
    folders = [services.workspace_of("", name) for name in names]
    assert folders[:2] == [tmp_path / "workspace", tmp_path / "workspaces/bob"]
    assert len({str(folder).lower() for folder in folders}) == len(names)
    assert {folder.resolve().parent for folder in folders[1:]} == {tmp_path / "workspaces"}
    assert max(len(folder.name) for folder in folders) <= 100
