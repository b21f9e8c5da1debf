"""The Dockerfile agrees with the package.

No container engine is needed, and the image is not built here.
"""

from __future__ import annotations

import re
import tomllib
from fnmatch import fnmatch

from hermes_trio.settings.model import Settings
from tests.support.fakes import make_harness
from tests.support.server_process import ROOT

TEXT = (ROOT / "Dockerfile").read_text("utf-8")
IGNORED = (ROOT / ".dockerignore").read_text("utf-8").split()


def test_what_is_copied_exists_and_is_sent_to_the_engine() -> None:
    copied = re.findall(r"^COPY (?!--)(.*) \S+$", TEXT, re.MULTILINE)
    names = [name for line in copied for name in line.split()]
    assert "hermes_trio" in names
    for name in names:
        assert (ROOT / name).exists()
        assert any(fnmatch(name, rule[1:]) for rule in IGNORED if rule.startswith("!")), name


def test_extras_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    [extras] = re.findall(r"'\.\[(.*)\]'", TEXT)
    assert set(extras.split(",")) <= set(project["optional-dependencies"])


def test_the_health_check_asks_the_server() -> None:
    [(port, path)] = re.findall(r"http://127\.0\.0\.1:(\d+)(/[a-z/]*)", TEXT)
    assert int(port) == Settings().port
    assert f"EXPOSE {port}\n" in TEXT
    assert path in {rule.rule for rule in make_harness().app.url_map.iter_rules()}


def test_the_server_is_not_root() -> None:
    [user] = re.findall(r"^USER (\d+):\d+$", TEXT, re.MULTILINE)
    assert int(user) > 0
    assert f"useradd --uid {user} " in TEXT
