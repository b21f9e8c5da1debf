"""Codex CLI: one process per turn, with the server as its model provider."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

from attrs import define, field

from tests.clients.driver_process import (
    ACTION_SECONDS,
    NODE,
    ClientFailed,
    ClientReply,
    client_environment,
)
from tests.support.server_process import ServerProcess, eventually

PROGRAM = NODE / "node_modules" / ".bin" / "codex"
CONFIG = """
model = "hermes-agent"
model_provider = "hermes"

[model_providers.hermes]
name = "hermes"
base_url = "{url}/v1"
env_key = "OPENAI_API_KEY"
wire_api = "responses"
stream_max_retries = 0
"""
# Its own tool, which stands in for the one that other clients offer.
COMMAND = "exec_command"
MULTIPLICATION = "echo $((6*7))"


@define
class CodexClient:
    """`codex exec` in a folder of its own."""

    server: ServerProcess
    folder: Path
    events: list[dict[str, Any]] = field(factory=list)  # of the last turn

    def __attrs_post_init__(self) -> None:
        (self.folder / "codex").mkdir(parents=True)
        config = CONFIG.format(url=self.server.url)
        (self.folder / "codex" / "config.toml").write_text(config, "utf-8")

    def perform(self, action: str, *texts: str) -> ClientReply:
        """Let it do something, in the terms of the drivers. Raises ClientFailed."""
        if action == "leave":
            return self._leave(texts[0])
        if action == "use_tool":
            return self._use_tool()
        answers = [self._turn(texts[0])]
        answers += [self._turn("resume", "--last", text) for text in texts[1:]]
        return ClientReply(tuple(answers), (), is_whole=True)

    def close(self) -> None:
        """Nothing outlives a turn."""

    def _turn(self, *arguments: str) -> str:
        done = subprocess.run(
            self._command(*arguments),
            capture_output=True,
            text=True,
            timeout=ACTION_SECONDS,
            check=False,
            **self._surroundings(),
        )
        self.events = [json.loads(line) for line in done.stdout.splitlines() if line[:1] == "{"]
        errors = [event for event in self.events if event["type"] in {"error", "turn.failed"}]
        if done.returncode != 0 or errors:
            raise ClientFailed(f"exit code {done.returncode}: {errors or done.stderr[-2000:]}")
        return "\n".join(item["text"] for item in self._items("agent_message"))

    def _use_tool(self) -> ClientReply:
        arguments = json.dumps({"cmd": MULTIPLICATION})
        answer = self._turn(f"/call {COMMAND} {arguments}")
        ran = [item for item in self._items("command_execution") if item["exit_code"] == 0]
        outputs = [item["aggregated_output"].strip() for item in ran]
        return ClientReply((answer,), tuple((6, 7) for output in outputs if output == "42"))

    def _leave(self, text: str) -> ClientReply:
        process = subprocess.Popen(
            self._command(text), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            **self._surroundings(),
        )  # fmt: skip
        try:
            eventually(lambda: not self.server.is_idle)
            process.send_signal(signal.SIGINT)
            process.wait(ACTION_SECONDS)
        finally:
            process.kill()
        return ClientReply(("left",), ())

    def _items(self, kind: str) -> list[dict[str, Any]]:
        items = [event["item"] for event in self.events if event["type"] == "item.completed"]
        return [item for item in items if item["type"] == kind]

    def _command(self, *arguments: str) -> list[str]:
        options = ("--json", "--skip-git-repo-check", "--sandbox", "danger-full-access")
        return [str(PROGRAM), "exec", *options, *arguments]

    def _surroundings(self) -> dict[str, Any]:
        environment = client_environment(self.server, self.folder)
        return {
            "env": {**environment, "CODEX_HOME": str(self.folder / "codex")},
            "cwd": self.folder,
            "stdin": subprocess.DEVNULL,
        }
