"""The program that drives a client, seen from the tests."""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import define, frozen

from tests.clients.catalogue import PYTHON_MODULES, ClientSpec
from tests.support.server_process import ROOT, ServerProcess

NODE = Path(__file__).parent / "node"
ACTION_SECONDS = 60.0
_FOREIGN = ("OPENAI_", "HERMES_TRIO_", "API_SERVER_", "LANGSMITH_", "LANGCHAIN_", "CODEX_")


class ClientFailed(Exception):
    """The client raised, or said that the turn failed."""


@frozen
class ClientReply:
    """What an action led to."""

    texts: tuple[str, ...]
    calls: tuple[tuple[int, ...], ...]
    is_whole: bool = False  # the client does not show the pieces in which it came

    @property
    def text(self) -> str:
        """All of it."""
        return "".join(self.texts)


@define
class DriverProcess:
    """A driver in a process of its own, which performs one action after another."""

    command: list[str]
    cwd: Path
    environment: dict[str, str]
    log: Path
    process: subprocess.Popen[bytes] | None = None

    def perform(self, action: str, *texts: str) -> ClientReply:
        """Let the client do something. Raises ClientFailed."""
        if self.process is None:
            self._start()
        assert self.process is not None
        assert self.process.stdin is not None
        request = json.dumps({"action": action, "texts": texts})
        self.process.stdin.write(request.encode() + b"\n")
        self.process.stdin.flush()
        reply = self._read(self.process)
        if "error" in reply:
            raise ClientFailed(reply["error"])
        return ClientReply(tuple(map(str, reply["texts"])), tuple(map(tuple, reply["calls"])))

    def _start(self) -> None:
        with self.log.open("ab") as errors:
            self.process = subprocess.Popen(
                self.command,
                cwd=self.cwd,
                env=self.environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )

    def _read(self, process: subprocess.Popen[bytes]) -> dict[str, Any]:
        output, line, deadline = process.stdout, b"", time.monotonic() + ACTION_SECONDS
        assert output is not None
        while not line.endswith(b"\n"):
            ready = select.select([output], [], [], max(0.0, deadline - time.monotonic()))[0]
            piece = os.read(output.fileno(), 65536) if ready else b""
            if not piece:
                self.close()  # it may be in the middle of the action
                raise AssertionError(
                    f"the client replies within {ACTION_SECONDS:.0f} s; its log ends with:\n"
                    f"{self.log.read_text()[-2000:]}"
                )
            line += piece
        reply: dict[str, Any] = json.loads(line)
        return reply

    def close(self) -> None:
        """End it. The next action starts it again."""
        if self.process is None:
            return
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        self.process = None


def client_environment(server: ServerProcess, folder: Path) -> dict[str, str]:
    """The environment of a client that is pointed at a server."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
    return {
        **kept,
        "HOME": str(folder),
        "OPENAI_API_KEY": server.key,
        "OPENAI_BASE_URL": f"{server.url}/v1",
        "OPENAI_API_BASE": f"{server.url}/v1",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # no download at start
        "PYTHONPATH": str(ROOT),
        "NO_PROXY": "127.0.0.1,localhost",
    }


def make_driver(
    spec: ClientSpec, pythons: Mapping[str, str], server: ServerProcess, folder: Path
) -> DriverProcess:
    """The driver of a client. It starts with its first action."""
    if spec.environment == "node":
        command = ["node", "driver.mjs", spec.driver, spec.argument]
    else:
        module = f"{PYTHON_MODULES}.{spec.driver}"
        command = [pythons[spec.environment], "-W", "ignore", "-m", module, *spec.argument.split()]
    cwd = NODE if spec.environment == "node" else ROOT
    log = folder / "log"
    return DriverProcess(command, cwd, client_environment(server, folder), log)


def client_version(spec: ClientSpec, pythons: Mapping[str, str]) -> str:
    """The version that is installed."""
    if spec.environment in {"node", "codex"}:
        manifest = NODE / "node_modules" / spec.package / "package.json"
        return str(json.loads(manifest.read_text("utf-8"))["version"])
    code = f"import importlib.metadata as m; print(m.version({spec.package!r}))"
    command = [pythons[spec.environment], "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
