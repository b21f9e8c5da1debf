"""Which model to ask, where the settings do not say: servers refuse names that they do not know, and ours is one."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import structlog
import trio

log = structlog.get_logger(__name__)

FRESH_SECONDS = 60.0  # what a server has may change: people load other models
MAX_SECONDS = 10.0


class ModelNames:
    """The models of one server, asked for when somebody needs them and remembered for a while."""

    def __init__(self, url: httpx2.URL, line: httpx2.AsyncClient) -> None:
        self._url, self._line = url, line
        self._names: tuple[str, ...] = ()
        self._stale_at = 0.0
        self._one_at_a_time = trio.Lock()

    async def choose(self, wanted: str) -> str:
        """The name that the client wants if the server has it, else the server's first; the wanted one if it will not say."""
        async with self._one_at_a_time:
            if trio.current_time() >= self._stale_at:
                self._names = await self._ask()
                self._stale_at = trio.current_time() + (FRESH_SECONDS if self._names else 0.0)
        return wanted if wanted in self._names or not self._names else self._names[0]

    async def _ask(self) -> tuple[str, ...]:
        try:
            answer = await self._line.get(self._url, timeout=MAX_SECONDS)
            return _ids(json.loads(answer.content)) if answer.status_code == 200 else ()
        except (httpx2.HTTPError, ValueError, RecursionError) as error:
            log.info("the model's server does not tell its models", error=type(error).__name__)
            return ()


def _ids(answer: Any) -> tuple[str, ...]:
    """The ids of a list in the usual form; nothing, if it has another."""
    data = answer.get("data") if isinstance(answer, dict) else None
    models = data if isinstance(data, list) else []
    ids = (model.get("id") for model in models if isinstance(model, dict))
    return tuple(name for name in ids if isinstance(name, str) and name)
