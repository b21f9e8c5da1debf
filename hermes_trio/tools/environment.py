"""Which environment variables child processes receive.

The server's environment holds keys. A deny list of names that look secret would miss some, so this
is an allow list. It keeps secrets out of tool output; it is not a sandbox, because commands run as
the server's own user.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

SAFE_NAMES = frozenset(
    {
        "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TERM", "TMPDIR",
        "SSL_CERT_FILE", "SSL_CERT_DIR",
    }
)  # fmt: skip


def safe_environment(environ: Mapping[str, str], also: Collection[str] = ()) -> dict[str, str]:
    """Return the variables that may be passed to a child process.

    Args:
        environ: the environment to filter.
        also: additional names to allow.
    """
    return {
        name: value
        for name, value in environ.items()
        if name in SAFE_NAMES or name.startswith("LC_") or name in also
    }
