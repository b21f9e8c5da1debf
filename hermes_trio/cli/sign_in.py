"""``hermes-trio key`` and ``hermes-trio open``: the key of the local server, and its page, signed in."""

from __future__ import annotations

import html
import os
import tempfile
import webbrowser
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import quote

from hermes_trio.cli.target import find_target, server_url
from hermes_trio.settings import Settings

REDIRECT_FILE = "sign-in.html"
# Without one of these, the only browsers that webbrowser finds are those for text terminals.
_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")


def sign_in_link(url: str, key: str) -> str:
    """Return the address of the page with a key in its fragment, which browsers do not send."""
    return f"{url}/#key={quote(key, safe='')}"


def read_key(settings: Settings) -> str:
    """Return the key that clients on this machine use.

    Raises:
        ConfigurationError: there is none, or it cannot be read.
    """
    return find_target(settings).key


def page_link(settings: Settings) -> str:
    """Return the address of the local server's page, with the key in it.

    Raises:
        ConfigurationError: there is no key, or the port is chosen by the system.
    """
    return sign_in_link(server_url(settings), read_key(settings))


def open_in_browser(
    settings: Settings,
    environ: Mapping[str, str] = os.environ,
    launch: Callable[[str], bool] = webbrowser.open,
) -> bool:
    """Open the page in a browser, signed in. Return False if there is none.

    The browser is given a file that redirects to the page: other users can see the arguments of its
    process, and must not find the key there.

    Raises:
        ConfigurationError: as in :func:`page_link`.
        OSError: the file cannot be written.
    """
    link = page_link(settings)
    if not any(environ.get(variable) for variable in _DISPLAYS):
        return False
    return launch(_write_redirect(settings.data_dir / REDIRECT_FILE, link).as_uri())


def _write_redirect(path: Path, link: str) -> Path:
    """Write a page that redirects to a link, readable by this user only."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    target = html.escape(link)
    document = (
        '<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer">'
        f'<meta http-equiv="refresh" content="0;url={target}"><a href="{target}">Open the page</a>\n'
    )
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)  # mode 600
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(document)
    os.replace(name, path)
    return path
