"""Mask secrets in text that leaves the process: error messages, labels, headers.

Every pattern is linear: a scanned run is either consumed by the match or bounded in length, so no
character is examined more than a fixed number of times. One mask can expose another match (a masked
value may have hidden the end of a URL's credentials), so the patterns are applied until nothing
changes, which also makes ``redact`` idempotent. This terminates because each change replaces
characters by ``***`` and adds no others.
"""

from __future__ import annotations

import re

MASK = "***"
MAX_MESSAGE_CHARS = 8_000
_NOTE_CHARS = 40  # for the note that says how much was left out

_PEM = re.compile(
    r"""
    -----BEGIN[ ][A-Z0-9 ]{0,40}PRIVATE[ ]KEY(?:[ ]BLOCK)?-----
    (?: .*? -----END[ ][A-Z0-9 ]{0,40}PRIVATE[ ]KEY(?:[ ]BLOCK)?-----
      | .*  # truncated: everything after it may belong to the key
    )""",
    re.VERBOSE | re.DOTALL,
)

_URL_PASSWORD = re.compile(r"""(://[^\s/?#"'<>:@]*:)[^\s/?#"'<>]*(?=@)""")

_SCHEME = r"(?:bearer|basic|token|digest|negotiate)[ \t]+"
# name=value, "name": "value", name: Bearer value, and the same inside a JSON string: \"name\":
# \"value\"
_PAIR = re.compile(
    rf"""
    (
        (?: (?:api|access|secret|private)[_-]?key | client[_-]?secret | token | secret | password | passwd | pwd
          | passphrase | credentials? | authorization | cookie
        )
        \\?["']? [ \t]* [:=]=?>? [ \t]* (?: [bru](?=["']) )?
    )
    (?! (?:null|none|true|false|undefined)\b | \*\*\*@ )  # nothing to hide, or masked already
    (?: (\\"(?:{_SCHEME})?) (?: [^"\\\n]++ | \\\\(?:\\.|[^\\\n]) )++
      | ("(?:{_SCHEME})?) (?: [^"\\\n]++ | \\. )++
      | ('(?:{_SCHEME})?) (?: [^'\\\n]++ | \\. )++
      | ((?:{_SCHEME})?) (?: [^\s"'&;\\]++ | \\(?!["']) )++
    )""",
    re.VERBOSE | re.IGNORECASE | re.ASCII,
)

# Without a header name, match only what looks like a token: prose mentions "bearer tokens" and
# "basic authentication".
_BEARER = re.compile(
    r"""
    \b((?:bearer|basic)[ \t]+)
    (?: (?=[a-z._~+/=-]*[0-9]) [a-z0-9._~+/=-]{6,} | [a-z0-9._~+/=-]{16,} )""",
    re.VERBOSE | re.IGNORECASE | re.ASCII,
)

# The prefix is kept: it only identifies the provider. The tail covers everything that may belong to
# the key, also JWT segments.
_KEY = re.compile(
    r"""
    (?<![A-Za-z0-9])
    (?: (sk-) [A-Za-z0-9_-]{8,}
      | (ht-|xox[abeoprs]-|glpat-|github_pat_|AKIA|ASIA|AIza|eyJ) [A-Za-z0-9_-]{12,}
      | (gh[opsur]_|hf_) [A-Za-z0-9]{16,} [A-Za-z0-9_-]*
    )
    (?: \.[A-Za-z0-9_-]+ )*""",
    re.VERBOSE,
)

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


def redact(text: str) -> str:
    """Mask everything in the text that looks like a secret."""
    masked = _once(text)
    while masked != text:
        text, masked = masked, _once(masked)
    return text


def redact_message(text: str, limit: int = MAX_MESSAGE_CHARS) -> str:
    """Mask the secrets in an error message, and bound its length to ``limit``.

    Error messages quote what they refuse, which may be megabytes. Twice as much as is kept is
    examined: a cut must not remove what makes a secret recognisable.
    """
    masked = redact(text[: 2 * limit])
    if len(text) <= limit:
        return masked
    kept = limit - _NOTE_CHARS
    return f"{masked[:kept]}… [{len(text) - kept} more characters]"


def header_safe(text: str, limit: int = 200) -> str:
    """Convert the text to one ASCII line that every HTTP library accepts as a header value."""
    line = _CONTROL.sub(" ", text).encode("ascii", "replace").decode("ascii").strip()
    return line[: max(limit, 0)].rstrip()


def _once(text: str) -> str:
    text = _PEM.sub(f"[private key {MASK}]", text)
    for pattern in (_URL_PASSWORD, _PAIR, _BEARER, _KEY):
        text = pattern.sub(_masked, text)
    return text


def _masked(match: re.Match[str]) -> str:
    """Keep what precedes the secret and mask the secret."""
    return "".join(part for part in match.groups() if part) + MASK
