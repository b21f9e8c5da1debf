"""What child processes get to see of our environment: a few plain names, and nothing else.

The server's environment holds keys. A list of names that look secret would miss some; therefore this is a list of those
that are not. It keeps secrets out of outputs; it is no wall. A command runs as the server's own user.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

PLAIN = frozenset(
    {
        "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TERM", "TMPDIR",
        "SSL_CERT_FILE", "SSL_CERT_DIR",
    }
)  # fmt: skip


def plain_environment(environ: Mapping[str, str], also: Collection[str] = ()) -> dict[str, str]:
    """The variables that may be passed on.

    Args:
        environ: ours.
        also: more names that may.
    """
    return {name: value for name, value in environ.items() if _is_plain(name) or name in also}


def _is_plain(name: str) -> bool:
    return name in PLAIN or name.startswith("LC_")
