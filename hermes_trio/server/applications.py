"""The tasks of one connection: one for each request that the application answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Self

import trio
from hypercorn.config import Config
from hypercorn.trio.task_group import TaskGroup, _handle
from hypercorn.typing import AppWrapper, ASGIReceiveEvent, ASGISendEvent, Scope

from hermes_trio.mailbox import KEY, Mailbox

IN_ADVANCE = 3
"""What a request that is there as a whole consists of: its body, the end of that, and perhaps the news that the client has left."""


class Applications(TaskGroup):
    """Hypercorn's task group, whose requests come in through a mailbox.

    Until it is entered there is no nursery: an application is started by whoever waits for it to answer.
    """

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[Any, ...]] = []  # and waiting for their turn to answer

    async def spawn_app(
        self,
        app: AppWrapper,
        config: Config,
        scope: Scope,
        send: Callable[[ASGISendEvent | None], Awaitable[None]],
    ) -> Callable[[ASGIReceiveEvent], Awaitable[None]]:
        """Start the application for a request; returns where its messages go."""
        mailbox = Mailbox(max(config.max_app_queue_size, IN_ADVANCE))
        known: dict[str, Any] = scope  # type: ignore[assignment]  # ASGI lets servers add to it
        known[KEY] = mailbox
        tools = (trio.to_thread.run_sync, trio.from_thread.run)
        application = (app, config, scope, mailbox.receive, send, *tools)
        if self._nursery is None:
            self.asked.append(application)
        else:
            self._nursery.start_soon(_handle, *application)
        return mailbox.put

    @property
    def is_alone(self) -> bool:
        """Whether applications answer in the task of their connection."""
        return self._nursery is None

    def answer(self) -> Awaitable[None]:
        """Let the application answer a request; to be awaited by whoever waits for that."""
        return _handle(*self.asked.pop())

    async def __aenter__(self) -> Self:
        """Open."""
        await super().__aenter__()
        return self

    def abandon(self) -> None:
        """Cancel all that have a task of their own."""
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()
