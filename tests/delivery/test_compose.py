"""The compose files, without a container engine: their schema, and that they agree with the package."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from hermes_trio.server.shutdown import ShutdownTimeouts
from hermes_trio.settings import Settings, load
from tests.support.server_process import ROOT

FILES = sorted((ROOT / "deploy").glob("compose*.yaml"))
VARIABLE = re.compile(r"\$\{(\w+)(?::([-?])([^}]*))?\}")
GIVEN = {"API_SERVER_KEY": "f7Qm2xVwL9sKd3Rb", "POSTGRES_PASSWORD": "1f3a9c"}


def services(path: Path) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = yaml.safe_load(path.read_text("utf-8"))["services"]
    return found


def substituted(text: str) -> str:
    """A value with its variables, as compose substitutes them."""
    return VARIABLE.sub(
        lambda found: GIVEN.get(found[1], found[3] if found[2] == "-" else ""), text
    )


compose_files = pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)


@compose_files
def test_the_schema(path: Path) -> None:
    if shutil.which("check-jsonschema") is None:
        pytest.skip("check-jsonschema is not installed; nox -s delivery has it")
    subprocess.run(
        ["check-jsonschema", "--builtin-schema", "vendor.compose-spec", path], check=True
    )


@compose_files
def test_compose_accepts_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = shutil.which("docker")
    if (
        engine is None
        or subprocess.run(
            [engine, "compose", "version"], capture_output=True, check=False
        ).returncode
    ):
        pytest.skip("docker compose is not installed")
    for name, value in GIVEN.items():
        monkeypatch.setenv(name, value)
    subprocess.run([engine, "compose", "-f", path, "config", "--quiet"], check=True)


@compose_files
def test_the_server_understands_its_environment(path: Path, tmp_path: Path) -> None:
    """Also with the variables that have a default in the file."""
    built = {name: service for name, service in services(path).items() if "build" in service}
    assert built
    for service in built.values():
        environ = {name: substituted(value) for name, value in service["environment"].items()}
        settings = load({}, {**environ, "HOME": str(tmp_path)}, None).settings
        assert settings.api_key == GIVEN["API_SERVER_KEY"]
        grace = int(service["stop_grace_period"].removesuffix("s"))
        assert grace > ShutdownTimeouts.from_settings(settings).total
        assert service["read_only"] is True
        assert "/tmp" in service["tmpfs"]
        assert [volume.partition(":")[2] for volume in service["volumes"]] == ["/data"]


@compose_files
def test_others_wait_until_it_is_healthy_and_find_it(path: Path) -> None:
    everything = services(path)
    built = {name for name, service in everything.items() if "build" in service}
    others = [
        service for name, service in everything.items() if built & {*service.get("depends_on", ())}
    ]
    assert others
    for service in others:
        for name in built:
            assert service["depends_on"][name] == {"condition": "service_healthy"}
    text = path.read_text("utf-8") + (ROOT / "deploy/nginx.conf").read_text("utf-8")
    for name in built:
        assert f"{name}:{Settings().port}" in text


@compose_files
def test_images_have_a_version(path: Path) -> None:
    images = [service["image"] for service in services(path).values() if "image" in service]
    assert images
    assert all(re.search(r":v?\d", image) for image in images)
