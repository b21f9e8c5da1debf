"""Runs the tests in JavaScript: installs the client, starts a server, runs ``node --test``.

``python tests/js/run.py`` needs node and npm, and the network for the first installation.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
INSTALL_SECONDS = 300
TEST_SECONDS = 180
TICKET_SECONDS = 6  # an EventSource waits 3 seconds before it reconnects


def main() -> int:
    """The exit code: that of the tests, or 1 with a line that says what is missing."""
    sys.path.insert(0, str(ROOT))
    missing = [name for name in ("node", "npm") if shutil.which(name) is None]
    if missing:
        return fail(
            f"{' and '.join(missing)} not found: the tests in JavaScript need Node.js 20 or newer"
        )
    try:
        if call("npm", "ci", "--no-audit", "--no-fund", seconds=INSTALL_SECONDS) != 0:
            return fail("npm could not install the client")
        return test()
    except subprocess.TimeoutExpired as error:
        return fail(f"{error.cmd[0]} took longer than {error.timeout} s")


def test() -> int:
    """Run the tests against a server of their own."""
    from tests.support.server_process import LaunchOptions, serving  # noqa: PLC0415  # the path to it is known by now

    with tempfile.TemporaryDirectory() as folder:
        plan = LaunchOptions(Path(folder), settings={"ticket_seconds": TICKET_SECONDS})
        with serving(plan, expected="refused a key") as server:
            return call(
                "node",
                "--test",
                seconds=TEST_SECONDS,
                BASE_URL=server.url,
                API_KEY=server.key,
                TICKET_SECONDS=str(TICKET_SECONDS),
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
    sys.exit(main())
