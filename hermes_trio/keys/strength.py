"""How hard a key is to guess, and which texts are no keys at all."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from itertools import pairwise, takewhile

MIN_KEY_CHARS = 16
MIN_KEY_BITS = 44  # ten thousand guesses a second take more than fifty years
KEY_ADVICE = "make a random one: openssl rand -base64 32"
# How sample files begin where a real key belongs, without punctuation.
_PLACEHOLDERS = (
    "changeme", "changethis", "insertyour", "mysecretkey", "placeholder", "replaceme", "replacewith", "xxxx",
    "yourapi", "yourkey", "yoursecret", "yourtoken",
)  # fmt: skip
# Parts of common passwords and sample keys, and walks over the keyboard.
_WORDS = (
    "access", "account", "admin", "agent", "apikey", "asdf", "assistant", "bearer", "chat", "client", "company",
    "default", "demo", "dragon", "example", "football", "hello", "hermes", "iloveyou", "key", "letmein", "local",
    "login", "master", "model", "monkey", "openai", "pass", "passwd", "password", "princess", "private", "prod",
    "qwer", "qwertyuiop", "root", "sample", "secret", "server", "sesame", "shadow", "sunshine", "super", "test",
    "thisis", "token", "trio", "user", "welcome", "1q2w3e4r", "5t6y7u8i", "qazwsx", "zaq12wsx", "zxcv",
    "19[0-9]{2}", "20[0-9]{2}",
)  # fmt: skip
_WORD = re.compile("|".join(sorted(_WORDS, key=len, reverse=True)))
_LOOK_ALIKES = str.maketrans("@4301!$57", "aaeolisst")
_MAX_RATED_CHARS = 256
_CHOICE_BITS = 8  # of a word, a run or a repetition: which of them, where from, how long


def find_faults(key: str) -> Iterator[str]:
    """Yield what is wrong with a key, without repeating it."""
    if not key.isprintable() or " " in key:
        yield "has spaces or characters that cannot be printed"
    if len(key) < MIN_KEY_CHARS:
        yield f"has {len(key)} characters; at least {MIN_KEY_CHARS} are needed"
    if re.sub(r"[\W_]", "", key).lower().startswith(_PLACEHOLDERS):
        yield "is a placeholder; make a real one"


def estimate_bits(key: str) -> float:
    """Estimate the work of guessing a key, as the binary logarithm of the number of guesses.

    A common word, a run such as ``1234`` or ``aaaa``, and a repetition of what came before count as
    one choice each. Each remaining character is a choice between those that remain. Keys that are
    made of words not in our list are overestimated.
    """
    text = key[:_MAX_RATED_CHARS].lower()
    choices, position, remaining = 0, 0, ""
    while position < len(text):
        length = max(
            _word_length(text, position),
            _run_length(text, position),
            _repeat_length(text, position),
        )
        if length >= 3:
            choices += 1
        else:
            length, remaining = 1, remaining + key[position]
        position += length
    return _CHOICE_BITS * choices + len(remaining) * math.log2(len({*remaining}) or 1)


def _word_length(text: str, start: int) -> int:
    found = _WORD.match(text, start) or _WORD.match(text.translate(_LOOK_ALIKES), start)
    return len(found[0]) if found else 0


def _run_length(text: str, start: int) -> int:
    """Return the length of a run of characters whose codes ascend, descend or are equal."""
    steps = [ord(second) - ord(first) for first, second in pairwise(text[start:])]
    if not steps or abs(steps[0]) > 1:
        return 1
    return 1 + sum(1 for _ in takewhile(steps[0].__eq__, steps))


def _repeat_length(text: str, start: int) -> int:
    """Return the number of characters that repeat an earlier part of the key."""
    length = 0
    while start + length < len(text) and text[start : start + length + 1] in text[: start + length]:
        length += 1
    return length
