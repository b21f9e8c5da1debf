"""API keys: where they come from, which rules they must meet, and which principal each belongs to.

Keys come from the settings, from a key file, or, on a loopback address only, from a file that the
first start writes. Beside it lies the secret that tokens are signed with.
"""

from __future__ import annotations

import hmac
import ipaddress
import math
import os
import re
import secrets
import shlex
import stat
import tempfile
import tomllib
from collections.abc import Iterable, Iterator
from itertools import pairwise, takewhile
from pathlib import Path

from attrs import field, frozen

from hermes_trio.core.errors import ConfigurationError

DEFAULT_PRINCIPAL = "default"
LOCAL_FILE = "api-key"
SECRET_FILE = "token-secret"  # noqa: S105  # the name of a file
MIN_KEY_CHARS = 16
MIN_KEY_BITS = 44  # ten thousand guesses a second take more than fifty years
KEY_ADVICE = "make a random one: openssl rand -base64 32"
_PREFIX = "ht-"
_SECRET_BYTES = 32
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_TABLE = re.compile(r"^\s*\[\s*keys\s*\]", re.MULTILINE)
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


class KeysError(ConfigurationError):
    """There is no usable key. The text is one line, without any key in it."""


@frozen
class Principal:
    """The owner of a key. Records of one principal are invisible to the others."""

    name: str


@frozen
class Anonymous:
    """The caller whose token is not a key of this server."""


ANONYMOUS = Anonymous()


@frozen
class NamedKey:
    """A key and the principal it belongs to."""

    principal: str
    key: str = field(repr=False)


@frozen
class Keyring:
    """All keys that the server accepts."""

    keys: tuple[NamedKey, ...]
    _compared: tuple[tuple[bytes, Principal], ...] = field(init=False, repr=False, eq=False)

    @_compared.default
    def _make_compared(self) -> tuple[tuple[bytes, Principal], ...]:
        return tuple((_bytes(named.key), Principal(named.principal)) for named in self.keys)

    def __attrs_post_init__(self) -> None:
        """Refuse a key that two principals share: each would see the other's records."""
        owners: dict[str, str] = {}
        for named in self.keys:
            owner = owners.setdefault(named.key, named.principal)
            if owner != named.principal:
                raise KeysError(
                    f"keys: {owner} and {named.principal} share a key; each needs its own"
                )

    def identify(self, token: str) -> Principal | Anonymous:
        """Return the owner of a key.

        Compares every key, in constant time, so that timing reveals nothing.
        """
        offered = _bytes(token)
        found: Principal | Anonymous = ANONYMOUS
        for key, principal in self._compared:
            if hmac.compare_digest(key, offered):
                found = principal
        return found


@frozen
class KeySources:
    """The settings that decide about the keys."""

    host: str
    data_dir: Path
    api_key: str = field(default="", repr=False)
    api_key_file: Path | None = None


@frozen
class ConfiguredKeys:
    """The keys come from the operator."""


@frozen
class StoredKey:
    """The key was generated at an earlier start and read from its file."""

    path: Path


@frozen
class GeneratedKey:
    """The key was generated now, and should be shown once."""

    path: Path
    key: str = field(repr=False)


@frozen
class OpenedKeys:
    """The keys to serve with, and where they came from."""

    keyring: Keyring
    origin: ConfiguredKeys | StoredKey | GeneratedKey


@frozen
class Credentials:
    """The keys of a server, and the secret that its tokens are signed with."""

    keys: OpenedKeys
    token_secret: bytes = field(repr=False)


def open_credentials(sources: KeySources) -> Credentials:
    """Open the keys and the secret. The first call generates what is missing.

    Raises:
        KeysError: as in :func:`open_keys` and :func:`open_secret`.
    """
    return Credentials(open_keys(sources), open_secret(sources.data_dir))


def open_keys(sources: KeySources) -> OpenedKeys:
    """Read the keys, or generate one if the server can only be reached from this machine.

    Raises:
        KeysError: a key breaks a rule, a file cannot be used, or there is no key and the host is
            not loopback.
    """
    configured = check_keys(sources)
    return (
        OpenedKeys(Keyring(configured), ConfiguredKeys())
        if configured
        else _local(sources.data_dir)
    )


def check_keys(sources: KeySources) -> tuple[NamedKey, ...]:
    """Return the configured keys; none if one may be generated. Writes nothing.

    Raises:
        KeysError: as in :func:`open_keys`.
    """
    configured: tuple[NamedKey, ...] = ()
    if sources.api_key:
        configured = (_checked(DEFAULT_PRINCIPAL, sources.api_key, "api_key"),)
    if sources.api_key_file is not None:
        configured += read_key_file(sources.api_key_file)
    if not configured and not is_loopback(sources.host):
        raise KeysError(
            f"api_key: a key is needed to listen on {sources.host}: set API_SERVER_KEY or --api-key-file"
        )
    if not is_loopback(sources.host):
        refuse_weak_keys(configured)
    Keyring(configured)  # two principals may not share a key
    return configured


def refuse_weak_keys(keys: Iterable[NamedKey]) -> None:
    """Refuse keys that are easy to guess, for a server that others can reach.

    Raises:
        KeysError: there is one.
    """
    for principal in find_weak_keys(keys):
        raise KeysError(
            f"keys: the key of {principal} is too easy to guess for a server that others can reach; {KEY_ADVICE}"
        )


def find_weak_keys(keys: Iterable[NamedKey]) -> list[str]:
    """Return the principals whose keys are easy to guess."""
    return [named.principal for named in keys if estimate_bits(named.key) < MIN_KEY_BITS]


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


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def read_key_file(path: Path) -> tuple[NamedKey, ...]:
    """Read the keys of a file.

    ``name = "key"`` lines under ``[keys]``, or one key alone on one line.

    Raises:
        KeysError: others can read the file, it cannot be understood, or a key in it breaks a rule.
    """
    text = _private_text(path)
    if _TABLE.search(text):
        named = tuple(_read_table(text, path))
        if not named:
            raise KeysError(f"{path}: there is no key under [keys]")
        return named
    lines = text.strip().splitlines()
    if len(lines) != 1:
        raise KeysError(f"{path}: needs one key on one line, or named keys under [keys]")
    return (_checked(DEFAULT_PRINCIPAL, lines[0].strip(), str(path)),)


def _private_text(path: Path) -> str:
    try:
        with path.open(encoding="utf-8-sig") as file:
            # The open file is checked, not the path, which could be replaced in between.
            if os.fstat(file.fileno()).st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise KeysError(
                    f"{path}: other users have access to this key file; run: chmod 600 {shlex.quote(str(path))}"
                )
            return file.read()
    except OSError as error:
        raise KeysError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise KeysError(f"{path}: is not UTF-8 text") from None


def _read_table(text: str, path: Path) -> Iterator[NamedKey]:
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise KeysError(f"{path}: is not valid TOML: {error}") from None
    for unknown in sorted(document.keys() - {"keys"}):
        raise KeysError(f"{path}: {unknown!r} does not belong here; only [keys] does")
    for name, key in document["keys"].items():
        if not _NAME.fullmatch(name):
            raise KeysError(
                f"{path}: {name!r} is not a name of up to 64 letters, digits, dots and dashes"
            )
        if not isinstance(key, str):
            raise KeysError(f"{path}: the key of {name} must be a text in quotes")
        yield _checked(name, key, str(path))


def _checked(principal: str, key: str, origin: str) -> NamedKey:
    for fault in _faults(key):
        raise KeysError(f"{origin}: the key of {principal} {fault}")
    return NamedKey(principal, key)


def _faults(key: str) -> Iterable[str]:
    """Yield what is wrong with a key, without repeating it."""
    if not key.isprintable() or " " in key:
        yield "has spaces or characters that cannot be printed"
    if len(key) < MIN_KEY_CHARS:
        yield f"has {len(key)} characters; at least {MIN_KEY_CHARS} are needed"
    if re.sub(r"[\W_]", "", key).lower().startswith(_PLACEHOLDERS):
        yield "is a placeholder; make a real one"


def _local(data_dir: Path) -> OpenedKeys:
    path = data_dir / LOCAL_FILE
    if os.path.lexists(
        path
    ):  # never raises; a folder we may not enter fails below, with its reason
        return OpenedKeys(Keyring(read_key_file(path)), StoredKey(path))
    key = _PREFIX + secrets.token_urlsafe(32)
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write_once(path, key)
    except FileExistsError:
        # Another server was faster: use its key.
        return OpenedKeys(Keyring(read_key_file(path)), StoredKey(path))
    except OSError as error:
        raise KeysError(f"{path}: the key cannot be kept here: {error.strerror}") from None
    return OpenedKeys(Keyring((NamedKey(DEFAULT_PRINCIPAL, key),)), GeneratedKey(path, key))


def open_secret(data_dir: Path) -> bytes:
    """Read the secret that tokens are signed with; the first call generates it.

    Raises:
        KeysError: other users can read the file, or it cannot be used.
    """
    path = data_dir / SECRET_FILE
    if not os.path.lexists(path):
        try:
            data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            _write_once(path, secrets.token_hex(_SECRET_BYTES))
        except FileExistsError:
            pass  # another process was faster: use its secret
        except OSError as error:
            raise KeysError(f"{path}: the secret cannot be kept here: {error.strerror}") from None
    return _read_secret(path)


def check_secret(data_dir: Path) -> None:
    """Check the secret that tokens are signed with, if it has been generated. Writes nothing.

    Raises:
        KeysError: as in :func:`open_secret`.
    """
    path = data_dir / SECRET_FILE
    if os.path.lexists(path):
        _read_secret(path)


def _read_secret(path: Path) -> bytes:
    text = _private_text(path).strip()
    if not re.fullmatch(rf"[0-9a-f]{{{2 * _SECRET_BYTES}}}", text):
        raise KeysError(f"{path}: is damaged; delete it, and a new one is generated")
    return bytes.fromhex(text)


def _write_once(path: Path, key: str) -> None:
    """Write a key or secret atomically, or raise ``FileExistsError``."""
    descriptor, name = tempfile.mkstemp(
        prefix=f".{path.name}-", dir=path.parent
    )  # made with mode 600
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(f"{key}\n")
            file.flush()
            os.fsync(descriptor)
        os.link(name, path)  # unlike a rename, a link never replaces what is there
    finally:
        os.unlink(name)


def _bytes(text: str) -> bytes:
    # Any text a header can hold must be comparable, lone surrogates too.
    return text.encode("utf-8", "surrogatepass")
