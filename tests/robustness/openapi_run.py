"""Schemathesis against a real server.

What it makes of our own OpenAPI document must never give a 5xx.

``python -m tests.robustness.openapi_run COMMAND [ARGUMENT...]`` starts a server with the demo agent
and calls the command-line program of Schemathesis, which need not live in the same environment.
``nox -s schemathesis`` does it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.support.server_process import LaunchOptions, serving

EXAMPLES = 50  # for each operation


def main(command: Sequence[str]) -> int:
    """Run it; returns its exit code."""
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(LaunchOptions(Path(folder)), expected=".*") as server,
    ):
        arguments = [
            "run",
            f"{server.url}/openapi.json",
            "--header",
            f"Authorization: Bearer {server.key}",
            "--checks",
            "not_a_server_error",
            "--max-examples",
            str(EXAMPLES),
        ]
        return subprocess.run([command[0], *arguments, *command[1:]], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["schemathesis"]))
