"""``python -m benchmarks.servers.peer PORT HOME THREADS``.

The API server of ``hermes-agent`` with a synthetic agent.

The installed adapter is used unchanged, except that agent construction is replaced and the limit of
concurrent runs is lifted (its default of 10 would refuse most loads). THREADS is the size of the event
loop's executor; 0 keeps the gateway's own.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.servers.schedule import parse_load, speak

KEY = "synthetic-key-0123456789abcdef"
CONFIG = "gateway:\n  api_server:\n    max_concurrent_runs: 0\n"


class SyntheticAgent:
    """The part of an agent that the adapter uses."""

    session_prompt_tokens = 3
    session_completion_tokens = 100
    session_total_tokens = 103

    def __init__(self, session_id: str | None, say: Callable[[str], object] | None) -> None:
        self.session_id = session_id
        self._say = say or (lambda text: None)
        self._interrupted = threading.Event()

    def interrupt(self, reason: str = "") -> None:
        """Stop before the next piece."""
        self._interrupted.set()

    def run_conversation(
        self, user_message: str, conversation_history: list[Any], **_: object
    ) -> dict[str, Any]:
        """Run the turn."""
        said: list[str] = []

        def say(token: str) -> None:
            said.append(token)
            self._say(token)

        speak(parse_load(user_message), say, self._interrupted)
        text = "".join(said)
        messages = [
            *conversation_history,
            {"role": "user", "content": user_message},
            {"role": "assistant", "content": text},
        ]
        return {"final_response": text, "messages": messages, "completed": True}


async def serve(port: int, threads: int) -> None:
    """Serve until the process is ended."""
    from gateway.config import PlatformConfig  # noqa: PLC0415 - reads the environment when it is imported
    from gateway.platforms.api_server import APIServerAdapter  # noqa: PLC0415

    class Adapter(APIServerAdapter):  # type: ignore[misc]  # not installed where types are checked
        def _create_agent(self, **wanted: Any) -> SyntheticAgent:
            return SyntheticAgent(wanted.get("session_id"), wanted.get("stream_delta_callback"))

    if threads:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(threads))
    config = PlatformConfig(enabled=True, extra={"host": "127.0.0.1", "port": port, "key": KEY})
    adapter = Adapter(config)
    if not await adapter.connect():
        raise SystemExit("the adapter did not start")
    await asyncio.Event().wait()


def main() -> None:
    """Prepare an empty home and serve."""
    port, home, threads = int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    home.mkdir(parents=True, exist_ok=True)
    (home / "config.yaml").write_text(CONFIG)
    os.environ["HERMES_HOME"] = str(home)
    asyncio.run(serve(port, threads))


if __name__ == "__main__":
    main()
