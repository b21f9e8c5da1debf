"""Reverse proxies as processes: nginx, HAProxy, Caddy."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.server_process import TIMEOUT

_ADMIN_FOLDERS = "/usr/local/sbin:/usr/sbin"  # not in the search path of every user

_NGINX_FRAME = """
daemon off;
{user}pid {folder}/nginx.pid;
error_log {folder}/error.log;
{config}
"""


def program(name: str) -> str:
    """Return the path of a program; skips where it is not installed."""
    found = shutil.which(name) or shutil.which(name, path=_ADMIN_FOLDERS)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def free_port() -> int:
    """Return a port that nobody has now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def nginx(folder: Path, config: str) -> list[str]:
    """Return the command that runs nginx with a configuration, in a folder that this user can write to."""
    paths = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temporary = "".join(f"{name}_temp_path {folder}/{name};\n" for name in paths)
    config = config.replace("http {", f"http {{\naccess_log off;\n{temporary}")
    user = "user root;\n" if os.geteuid() == 0 else ""  # others may not enter the folder
    path = folder / "nginx.conf"
    path.write_text(_NGINX_FRAME.format(user=user, folder=folder, config=config))
    return [program("nginx"), "-c", str(path), "-e", f"{folder}/error.log"]


def caddy(folder: Path, config: str) -> list[str]:
    """Return the command that runs Caddy with a Caddyfile, without its administration port."""
    path = folder / "Caddyfile"
    path.write_text("{\n    admin off\n}\n" + config)
    return [program("caddy"), "run", "--config", str(path), "--adapter", "caddyfile"]


@contextmanager
def running(
    command: list[str], port: int, environ: Mapping[str, str] | None = None
) -> Iterator[None]:
    """Run a proxy until the end of the block."""
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, **(environ or {})},
    ) as process:
        try:
            end = time.monotonic() + TIMEOUT
            while True:
                assert process.poll() is None, process.communicate()[0]
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    assert time.monotonic() < end
            yield
        finally:
            process.terminate()
