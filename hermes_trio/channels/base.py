"""What a channel is: the way to a messenger, and for whom it acts."""

from __future__ import annotations

from typing import Protocol

from attrs import frozen

MAX_AGE_SECONDS = 86_400.0  # of a message that is still answered


class DeliveryError(Exception):
    """A message could not be sent. The text holds no secret and no content of the message."""


@frozen
class ChannelMessage:
    """A message that somebody sent to a channel."""

    message_id: str
    chat: str  # the chat that it was sent in, and that it is answered in
    text: str  # "" if it is something else, such as an image


@frozen
class ChannelPolicy:
    """For whom a channel acts, and what it does while an agent works."""

    principal: str
    profile: str = ""  # "" for the server's own agent
    model: str = ""  # the id that the records of its runs name
    progress_seconds: float = 10.0  # until a message says which tool runs; 0 means never
    max_waiting: int = 10  # messages of one chat that wait while another is answered


class Channel(Protocol):
    """The way to a messenger. Its name is the kind of its runs and the prefix of its sessions."""

    @property
    def name(self) -> str:
        """The name of the channel: lower-case letters."""
        ...

    @property
    def policy(self) -> ChannelPolicy:
        """For whom the channel acts."""
        ...

    def is_allowed(self, chat: str) -> bool:
        """Return whether the channel may still write to a chat that it wrote to before."""
        ...

    async def send_text(self, chat: str, text: str) -> None:
        """Send a text of any length, in as many messages as it takes, and retry what may pass.

        Raises:
            DeliveryError: not everything could be sent.
        """
        ...

    async def show_typing(self, message: ChannelMessage) -> None:
        """Show that an answer to a message is being prepared, until there is one or some seconds have passed.

        Does nothing where that is not possible. Raises nothing.
        """
        ...

    @property
    def typing_seconds(self) -> float:
        """How long ``show_typing`` lasts."""
        ...
