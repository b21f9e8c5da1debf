"""The interface of a channel, which connects the chats of a messenger with an agent."""

from __future__ import annotations

from typing import Protocol

from attrs import frozen

MAX_AGE_SECONDS = 86_400.0  # of a message that is still answered


class DeliveryError(Exception):
    """A message could not be sent. The text holds no secret and no content of the message."""


@frozen
class ChannelMessage:
    """A message from a chat, which the channel has to answer."""

    message_id: str
    chat: str  # where it was sent, and is answered
    text: str  # "" if the message is something else, such as an image


@frozen
class ChannelPolicy:
    """The principal and the agent of a channel, and its limits."""

    principal: str
    profile: str = ""  # "" for the server's own agent
    model: str = ""  # the id that the records of its runs name
    progress_seconds: float = 10.0  # until a message says which tool runs; 0 means never
    max_waiting: int = 10  # messages of one chat that wait while another is answered


class Channel(Protocol):
    """A connection to a messenger."""

    @property
    def name(self) -> str:
        """The kind of its runs and the prefix of its session ids, in lower-case letters."""
        ...

    @property
    def policy(self) -> ChannelPolicy:
        """The principal, the agent and the limits of the channel."""
        ...

    def is_allowed(self, chat: str) -> bool:
        """Return whether the channel may still write to a chat that it wrote to before."""
        ...

    async def send_text(self, chat: str, text: str) -> None:
        """Send a text of any length, in as many messages as it takes. Retries transient failures.

        Raises:
            DeliveryError: not everything could be sent.
        """
        ...

    async def show_typing(self, message: ChannelMessage) -> None:
        """Show for ``typing_seconds`` or until the next message that an answer is being prepared.

        Does nothing if the messenger has no such indicator. Raises nothing.
        """
        ...

    @property
    def typing_seconds(self) -> float:
        """How long the indicator is shown."""
        ...
