"""What the web layer is told when it is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from attrs import frozen

from hermes_trio.keys import Keyring
from hermes_trio.runs.admission import Admission, Turnstile
from hermes_trio.runs.hosting import Hosting
from hermes_trio.runs.presence import INTERRUPT, DisconnectPolicy
from hermes_trio.runs.spec import Services


@frozen
class ServedProfile:
    """A profile as clients meet it."""

    name: str
    model_name: str
    principals: tuple[str, ...] = ()  # who may use it; () for everybody

    def admits(self, principal: str) -> bool:
        """Whether somebody may use it, or even know of it."""
        return not self.principals or principal in self.principals


@frozen
class ShownSetting:
    """An option of the server as clients may see it."""

    name: str
    value: str  # "" if it is not set
    help: str


@frozen
class WebOptions:
    """Settings of the HTTP side, already checked."""

    model_name: str = "hermes-agent"
    cors_origins: tuple[str, ...] = ()
    keepalive_seconds: float = 10.0
    body_seconds: float = 20.0
    max_body_bytes: int = 10_000_000
    open_webui_status: str = "auto"  # auto, on or off
    on_disconnect: DisconnectPolicy = INTERRUPT  # unless a request says otherwise
    profiles: tuple[ServedProfile, ...] = ()
    settings: tuple[ShownSetting, ...] = ()
    write_through: bool = True  # where the server offers it


@frozen
class Health:
    """What the server knows about itself; asked, never pushed."""

    is_ready: Callable[[], str]  # "" when ready, else the reason
    details: Callable[[], Mapping[str, Any]]


@frozen
class Site:
    """Everything a request may need."""

    options: WebOptions
    keyring: Keyring
    admission: Admission
    turnstile: Turnstile
    services: Services
    hosting: Hosting
    health: Health
