"""Runs Open WebUI against our server and drives it in a real browser.

``python -m tests.open_webui.run PROGRAM`` needs node, npm, chromium and the program ``open-webui``,
which ``nox -s openwebui`` installs in an environment of its own. Where something is missing it says
what, and fails.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2

from tests.page.run import BROWSERS, INSTALL_SECONDS, TEST_SECONDS, fail
from tests.support.server_process import (
    LaunchOptions,
    ServerProcess,
    eventually,
    has_ended,
    serving,
)

HERE = Path(__file__).parent
START_SECONDS = 300.0  # it imports much, and migrates its database
EXPECTED = "a run failed|the agent raised an exception"

OURS = {"approval_replies": "on"}  # approval requests are asked, and answered, in the chat

# Nothing is fetched from the network, and nothing of the user who runs the tests is used.
SETTINGS = {
    "ANONYMIZED_TELEMETRY": "false",
    "BYPASS_MODEL_ACCESS_CONTROL": "true",  # every user sees the model
    "DEFAULT_USER_ROLE": "user",
    "DO_NOT_TRACK": "true",
    "ENABLE_FORWARD_USER_INFO_HEADERS": "true",
    "ENABLE_OLLAMA_API": "false",
    "ENABLE_VERSION_UPDATE_CHECK": "false",
    "HF_HUB_OFFLINE": "1",
    "OFFLINE_MODE": "true",
    "RAG_EMBEDDING_ENGINE": "openai",  # no local model is loaded
    "SCARF_NO_ANALYTICS": "true",
    "WEBUI_AUTH": "true",
    "WEBUI_SECRET_KEY": "only-for-these-tests",
}


def main(arguments: list[str]) -> int:
    """The exit code: that of the tests, or 1 with a line that says what is missing."""
    missing = [name for name in ("node", "npm") if shutil.which(name) is None]
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if missing:
        return fail(f"{' and '.join(missing)} not found: these tests need Node.js 20 or newer")
    if browser is None:
        return fail(f"no browser: install one of {', '.join(BROWSERS)}")
    if len(arguments) != 1 or not Path(arguments[0]).exists():
        return fail("open-webui not found: `nox -s openwebui` installs it")
    if call("npm", "ci", "--no-audit", "--no-fund", seconds=INSTALL_SECONDS) != 0:
        return fail("npm could not install playwright-core: is the registry reachable?")
    try:
        return test(arguments[0], browser)
    except subprocess.TimeoutExpired as error:
        return fail(f"{error.cmd[0]} took longer than {error.timeout} s")


def test(program: str, browser: str) -> int:
    """Start both servers and run the tests."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with (
            serving(LaunchOptions(folder / "ours", settings=OURS), expected=EXPECTED) as server,
            open_webui(program, server, folder / "open_webui") as url,
        ):
            return call(
                "node", "--test", "--test-concurrency=1", "open_webui.test.js",
                seconds=TEST_SECONDS, BROWSER=browser, OPEN_WEBUI=url, BASE_URL=server.url,
                API_KEY=server.key, WORKSPACE=str(server.plan.data_dir / "workspace"),
            )  # fmt: skip


@contextmanager
def open_webui(program: str, server: ServerProcess, folder: Path) -> Iterator[str]:
    """Open WebUI with our server as its only connection, for the length of a block; its address."""
    folder.mkdir()
    port = free_port()
    environment = {
        **os.environ,
        **SETTINGS,
        "DATA_DIR": str(folder),
        "HOME": str(folder),
        "OPENAI_API_BASE_URLS": f"{server.url}/v1",
        "OPENAI_API_KEYS": server.key,
    }
    command = [program, "serve", "--host", "127.0.0.1", "--port", str(port)]
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output,
            stderr=output,
        )  # fmt: skip
    try:
        url = f"http://127.0.0.1:{port}"
        eventually(lambda: is_up(url, process, log), START_SECONDS)
        yield url
    finally:
        process.terminate()
        if not has_ended(process, 20):
            process.kill()
        process.wait()


def is_up(url: str, process: subprocess.Popen[bytes], log: Path) -> bool:
    """Whether Open WebUI answers. Fails when it has ended instead."""
    assert process.poll() is None, log.read_text(errors="replace")[-5000:]
    try:
        return httpx2.get(f"{url}/health", trust_env=False).status_code == 200
    except httpx2.TransportError:
        return False


def free_port() -> int:
    """A port on which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


def call(*command: str, seconds: float, **variables: str) -> int:
    """Run a command here and return its exit code."""
    environment = {**os.environ, **variables}
    return subprocess.run(
        command, cwd=HERE, env=environment, timeout=seconds, check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
