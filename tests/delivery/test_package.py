"""The package as it is published: what the wheel has, and that it serves from a clean environment."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.server_process import ROOT, LaunchOptions, serving

SECONDS = 300

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(2 * SECONDS),
    pytest.mark.xdist_group("delivery-package"),
]

Uv = Callable[..., None]


@pytest.fixture(scope="module")
def uv() -> Uv:
    program = shutil.which("uv")
    if program is None:
        pytest.skip("uv is not installed; nox -s delivery has it")

    def run(*arguments: str | Path) -> None:
        done = subprocess.run(
            [program, *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr

    return run


@pytest.fixture(scope="module")
def built(uv: Uv, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the source distribution, and the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("dist")
    uv("build", "--quiet", "--out-dir", folder, ROOT)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    [found] = built.glob("*.whl")
    return found


def test_there_is_a_source_distribution(built: Path) -> None:
    assert len(list(built.glob("hermes_trio-*.tar.gz"))) == 1


def test_the_wheel_has_all_files_of_the_package_and_nothing_else(wheel: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "hermes_trio"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("this is not a clone of the repository, so its files are not known")
    names = [name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name]
    assert sorted(names) == sorted(listed.stdout.split())
    assert {"hermes_trio/py.typed", "hermes_trio/page/index.html"} <= {*names}


@pytest.mark.parametrize("resolution", ["highest", "lowest-direct"])
def test_it_serves_from_a_clean_environment(
    uv: Uv, wheel: Path, tmp_path: Path, resolution: str
) -> None:
    """With the newest and with the oldest packages that it allows, not the locked ones."""
    environment = tmp_path / "environment"
    uv("venv", "--quiet", environment)
    python = environment / "bin" / "python"
    uv(
        "pip",
        "install",
        "--quiet",
        "--resolution",
        resolution,
        "--python",
        python,
        f"{wheel}[chat]",
    )
    # Without the sources on the search path, and in a folder that has none.
    command = ("env", "-u", "PYTHONPATH", str(environment / "bin" / "hermes-trio"), "serve")
    plan = LaunchOptions(tmp_path, ("--port", "0"), {}, command, tmp_path)
    with serving(plan) as server:
        page = server.get("/")
        assert page.headers["Content-Type"].startswith("text/html")
        [script] = [part for part in page.text.split('"') if part.endswith("js/main.js")]
        assert server.get(f"/{script}").status_code == 200
        assert server.get("/v1/models").json()["data"][0]["id"] == "hermes-agent"
        assert server.health()["status"] == "ok"
    shown = subprocess.run(
        [python, "-P", "-c", "import hermes_trio; print(hermes_trio.__file__)"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout.startswith(str(environment))


def test_hints_name_extras_that_exist() -> None:
    """Hints work in a clone: the package need not be on an index."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    sources = [path.read_text("utf-8") for path in sorted((ROOT / "hermes_trio").rglob("*.py"))]
    hints = re.findall(r"pip install '([^']+)'", "\n".join(sources))
    extras = {hint[2:-1] for hint in hints if hint.startswith(".[")}
    assert "mcp" in extras
    assert extras <= {*project["optional-dependencies"]}
    assert not [hint for hint in hints if hint.startswith("hermes-trio")]
