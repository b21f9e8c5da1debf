"""The channels of a server: their routes, and what is open while it runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from hermes_trio.channels import whatsapp
from hermes_trio.settings.channels import ChannelSettings
from hermes_trio.web.request import STATE_KEY
from hermes_trio.web.state import AppState


def register_channels(app: Any, settings: ChannelSettings) -> None:
    """Add the webhooks of the channels that are configured to a Quart application."""
    if settings.whatsapp is not None:
        app.register_blueprint(whatsapp.blueprint)


@asynccontextmanager
async def open_channels(app: Any, settings: ChannelSettings) -> AsyncIterator[None]:
    """Open the channels of an application that has its state, for the length of the block."""
    state: AppState = app.extensions[STATE_KEY]
    if settings.whatsapp is None:
        yield
        return
    async with whatsapp.open_whatsapp(app, settings.whatsapp, state):
        yield
