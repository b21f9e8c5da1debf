"""Runs the tests of the page.

Its modules with ``node --test``, then all of it in a real browser, by clicking.

``python -m tests.page.run`` needs node, npm and chromium, and the network for the first
installation. ``--pictures`` also writes the pictures of the documentation anew. Where something is
missing it says what, and fails. With ``PAGE_SLOWNESS=6`` in the environment the page is six times
slower, as on a poor machine: the tests must pass all the same.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.server_process import LaunchOptions, serving

HERE = Path(__file__).parent
PICTURES = HERE.parents[1] / "docs" / "pictures"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
INSTALL_SECONDS = 300
TEST_SECONDS = 1800  # only tests that hang ever take that long

PROFILES = """
[profiles.second]
agent = "demo"
model_name = "second-agent"
"""


def main(arguments: list[str]) -> int:
    """The exit code: that of the tests, or 1 with a line that says what is missing."""
    missing = [name for name in ("node", "npm") if shutil.which(name) is None]
    if missing:
        return fail(
            f"{' and '.join(missing)} not found: the tests of the page need Node.js 20 or newer"
        )
    try:
        if (code := node(sorted(HERE.glob("unit/*.test.js")))) != 0:
            return code
        return browse("--pictures" in arguments)
    except subprocess.TimeoutExpired as error:
        return fail(f"{error.cmd[0]} took longer than {error.timeout} s")


def browse(draws: bool) -> int:
    """Run the tests in the browser against a server of their own."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        return fail(
            f"no browser: install one of {', '.join(BROWSERS)} (Debian: apt-get install chromium)"
        )
    if call("npm", "ci", "--no-audit", "--no-fund", seconds=INSTALL_SECONDS) != 0:
        return fail(
            "npm could not install playwright-core and axe-core: is the registry reachable?"
        )
    code = serve_and_test(sorted(HERE.glob("browser/*.test.js")), browser)
    if code != 0 or not draws:
        return code
    PICTURES.mkdir(exist_ok=True)
    return serve_and_test([HERE / "browser" / "pictures.js"], browser, PICTURES=str(PICTURES))


def serve_and_test(files: list[Path], browser: str, **more: str) -> int:
    """Run some tests against a server that nobody else has used."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "config.toml")
        config.write_text(PROFILES, "utf-8")
        plan = LaunchOptions(Path(folder), flags=("--config", str(config), "--sandbox", "off"))
        with serving(
            plan, expected="refused a key|a run failed|the agent raised an exception"
        ) as server:
            ours = {"BASE_URL": server.url, "API_KEY": server.key, "GREETING": server.greeting}
            return node(files, BROWSER=browser, **ours, **more)


def node(files: list[Path], **variables: str) -> int:
    """Run tests one file after another: they share a machine and a server."""
    return call(
        "node",
        "--test",
        "--test-concurrency=1",
        *map(str, files),
        seconds=TEST_SECONDS,
        **variables,
    )


def call(*command: str, seconds: float, **variables: str) -> int:
    """Run a command here and return its exit code."""
    environment = {**os.environ, **variables}
    return subprocess.run(
        command, cwd=HERE, env=environment, timeout=seconds, check=False
    ).returncode


def fail(text: str) -> int:
    """Say what is wrong."""
    sys.stderr.write(f"{text}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
