"""The tasks of one connection: one for each request that the application answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Self

import trio
from hypercorn.config import Config
from hypercorn.trio.task_group import TaskGroup, _handle
from hypercorn.typing import AppWrapper, ASGIReceiveEvent, ASGISendEvent, Scope

from hermes_trio.mailbox import KEY, Mailbox


class Applications(TaskGroup):
    """Hypercorn's task group, whose requests come in through a mailbox."""

    async def spawn_app(
        self,
        app: AppWrapper,
        config: Config,
        scope: Scope,
        send: Callable[[ASGISendEvent | None], Awaitable[None]],
    ) -> Callable[[ASGIReceiveEvent], Awaitable[None]]:
        """Start the application for a request; returns where its messages go."""
        mailbox = Mailbox(config.max_app_queue_size)
        known: dict[str, Any] = scope  # type: ignore[assignment]  # ASGI lets servers add to it
        known[KEY] = mailbox
        tools = (trio.to_thread.run_sync, trio.from_thread.run)
        self.nursery.start_soon(_handle, app, config, scope, mailbox.receive, send, *tools)
        return mailbox.put

    async def __aenter__(self) -> Self:
        """Open."""
        await super().__aenter__()
        return self

    @property
    def nursery(self) -> trio.Nursery:
        """Where the tasks are."""
        assert self._nursery is not None
        return self._nursery

    def abandon(self) -> None:
        """Cancel all of them."""
        self.nursery.cancel_scope.cancel()
