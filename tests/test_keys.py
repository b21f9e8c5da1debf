"""Keys: who is who, which files and keys are refused, and the key that the first start makes."""

from __future__ import annotations

import os
import random
import stat
import string
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_trio.keys import (
    MIN_KEY_BITS,
    OPERATOR_ACCESS,
    SETTINGS_KEY,
    Anonymous,
    ConfiguredKeys,
    GeneratedKey,
    Keyring,
    KeysError,
    KeySources,
    NamedKey,
    OpenedKeys,
    Principal,
    StoredKey,
    estimate_bits,
    find_weak_keys,
    hash_key,
    is_loopback,
    open_keys,
    open_secret,
    read_key_file,
)

ALICE = "alice-kq7w-vzx2-mhp9-tdb4"
BOB = "bob-r5nj-ycg8-wfs3-xlu6"
OPERATOR = Principal("default", OPERATOR_ACCESS)


def key_file(folder: Path, text: str, mode: int = 0o600) -> Path:
    """A key file with this text and these rights."""
    path = folder / "keys"
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    return path


def refusal(sources: KeySources) -> str:
    """The one line that ``open_keys`` refuses with."""
    with pytest.raises(KeysError) as caught:
        open_keys(sources)
    text = str(caught.value)
    assert "\n" not in text
    return text


def rights(path: Path) -> int:
    """The permission bits of a file."""
    return stat.S_IMODE(path.stat().st_mode)


# The ring


def test_each_key_names_its_principal() -> None:
    ring = Keyring((NamedKey("alice", ALICE), NamedKey("bob", BOB)))
    assert ring.identify(ALICE) == Principal("alice")
    assert ring.identify(BOB) == Principal("bob")
    assert ring.identify(ALICE[:-1]) == Anonymous()
    assert ring.identify("") == Anonymous()
    assert Keyring(()).identify("") == Anonymous()


@given(
    keys=st.sets(st.text(min_size=1), min_size=1),
    token=st.text(st.characters(exclude_categories=())),
)
def test_any_text_can_be_a_token(keys: set[str], token: str) -> None:
    ring = Keyring(tuple(NamedKey(str(number), key) for number, key in enumerate(sorted(keys))))
    for number, key in enumerate(sorted(keys)):
        assert ring.identify(key) == Principal(str(number))
    assert isinstance(ring.identify(token), Principal) == (token in keys)


def test_all_keys_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[bytes] = []

    def compare(mine: bytes, offered: bytes) -> bool:
        compared.append(mine)
        return mine == offered

    monkeypatch.setattr("hermes_trio.keys.keyring.hmac.compare_digest", compare)
    Keyring((NamedKey("alice", ALICE), NamedKey("bob", BOB))).identify(ALICE)
    assert compared == [hash_key(ALICE), hash_key(BOB)]


def test_a_shared_key_is_refused() -> None:
    with pytest.raises(KeysError, match="alice and bob share a key"):
        Keyring((NamedKey("alice", ALICE), NamedKey("bob", ALICE)))


def test_a_principal_may_have_two_keys() -> None:
    ring = Keyring((NamedKey("alice", ALICE), NamedKey("alice", BOB), NamedKey("alice", BOB)))
    assert ring.identify(ALICE) == ring.identify(BOB) == Principal("alice")


def test_no_repr_shows_a_key(tmp_path: Path) -> None:
    opened = open_keys(KeySources("127.0.0.1", tmp_path))
    assert isinstance(opened.origin, GeneratedKey)
    assert opened.origin.key not in repr(opened)
    assert ALICE not in repr(KeySources("127.0.0.1", tmp_path, ALICE))


# Where keys come from


def test_the_key_of_the_settings(tmp_path: Path) -> None:
    opened = open_keys(KeySources("0.0.0.0", tmp_path, ALICE))
    assert opened == OpenedKeys(
        Keyring((NamedKey("default", ALICE, OPERATOR_ACCESS, SETTINGS_KEY),)), ConfiguredKeys()
    )
    assert not list(tmp_path.iterdir())


def test_a_file_with_one_key(tmp_path: Path) -> None:
    path = key_file(tmp_path, f"\n  {ALICE}==\n\n")
    opened = open_keys(KeySources("0.0.0.0", tmp_path, api_key_file=path))
    assert opened.keyring.identify(f"{ALICE}==") == OPERATOR


def test_a_file_with_named_keys_beside_the_key_of_the_settings(tmp_path: Path) -> None:
    path = key_file(
        tmp_path, f'# who\n[keys]\nalice = "{ALICE}"\nbob = "schlüssel-für-den-bären"\n'
    )
    ring = open_keys(KeySources("0.0.0.0", tmp_path, "j4kd-w8xm-2rqz-v6hb", path)).keyring
    assert ring.identify(ALICE) == Principal("alice")
    assert ring.identify("schlüssel-für-den-bären") == Principal("bob")
    assert ring.identify("j4kd-w8xm-2rqz-v6hb") == OPERATOR


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "needs one key on one line, or named keys under [keys]"),
        (f"{ALICE}\n{BOB}\n", "needs one key on one line, or named keys under [keys]"),
        (
            f'alice = "{ALICE}"\n',
            "the key of default has spaces or characters that cannot be printed",
        ),
        ("[keys]\n", "there is no key under [keys]"),
        ("[keys]\nalice = 1234567890123456\n", "the key of alice must be a text in quotes"),
        (
            f'[keys]\n"a b" = "{ALICE}"\n',
            "'a b' is not a name of up to 64 letters, digits, dots and dashes",
        ),
        (
            f'port = 1\n[keys]\nalice = "{ALICE}"\n',
            "'port' does not belong here; only [keys] and [oidc] do",
        ),
        (f"[keys]\nalice = {ALICE}\n", "is not valid TOML: "),
    ],
)
def test_a_file_that_makes_no_sense(tmp_path: Path, text: str, expected: str) -> None:
    path = key_file(tmp_path, text)
    line = refusal(KeySources("127.0.0.1", tmp_path, api_key_file=path))
    assert line.startswith(f"{path}: {expected}")
    assert ALICE not in line


def test_a_shared_key_in_a_file(tmp_path: Path) -> None:
    path = key_file(tmp_path, f'[keys]\nalice = "{ALICE}"\nbob = "{ALICE}"\n')
    line = refusal(KeySources("127.0.0.1", tmp_path, api_key_file=path))
    assert line == "keys: alice and bob share a key; each needs its own"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644, 0o666])
def test_a_file_that_others_can_open(tmp_path: Path, mode: int) -> None:
    path = key_file(tmp_path, ALICE, mode)
    line = refusal(KeySources("127.0.0.1", tmp_path, api_key_file=path))
    assert line == f"{path}: other users have access to this key file; run: chmod 600 {path}"
    path.chmod(0o400)
    assert read_key_file(path) == (NamedKey("default", ALICE, OPERATOR_ACCESS),)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    assert (
        refusal(KeySources("::1", tmp_path, api_key_file=missing))
        == f"{missing}: No such file or directory"
    )
    assert (
        refusal(KeySources("::1", tmp_path, api_key_file=tmp_path)) == f"{tmp_path}: Is a directory"
    )
    path = key_file(tmp_path, "")
    path.write_bytes(b"\xff" * 20)
    assert refusal(KeySources("::1", tmp_path, api_key_file=path)) == f"{path}: is not UTF-8 text"


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("short", "has 5 characters; at least 16 are needed"),
        ("0123456789abcde", "has 15 characters; at least 16 are needed"),
        ("0123456789\tabcdef", "has spaces or characters that cannot be printed"),
        ("0123456789 abcdef", "has spaces or characters that cannot be printed"),
        ("0123456789\nabcdef", "has spaces or characters that cannot be printed"),
        ("changeme-changeme", "is a placeholder; make a real one"),
        ("Change_Me_1234567890", "is a placeholder; make a real one"),
        ("your-api-key-goes-here", "is a placeholder; make a real one"),
        ("<YOUR_SECRET_TOKEN>", "is a placeholder; make a real one"),
        ("xxxxxxxxxxxxxxxxxxxx", "is a placeholder; make a real one"),
    ],
)
def test_a_weak_key_is_refused_and_not_repeated(tmp_path: Path, key: str, expected: str) -> None:
    line = refusal(KeySources("127.0.0.1", tmp_path, key))
    assert line == f"api_key: the key of default {expected}"


WEAK = [
    "aaaaaaaaaaaaaaaa", "abababababababab", "password12345678", "P@ssw0rd-P@ssw0rd", "1234567890abcdef",
    "qwertyuiopasdfgh", "1q2w3e4r5t6y7u8i", "our-secret-key-123", "hermes-trio-api-key", "open-sesame-open-sesame",
    "0123456789abcdef" * 2, "k" * 64, "AbCdEfGhIjKlMnOp", "fedcba9876543210", "admin:admin:admin:admin",
    "supersecretpassword", "2024-11-18-company", "aaaaaaaabbbbbbbbcccccccc",
]  # fmt: skip


@pytest.mark.parametrize("key", WEAK)
def test_outside_loopback_a_key_must_be_hard_to_guess(tmp_path: Path, key: str) -> None:
    line = refusal(KeySources("0.0.0.0", tmp_path, key))
    assert line.startswith("keys: the key of default is too easy to guess for a server that others")
    assert key not in line
    opened = open_keys(KeySources("127.0.0.1", tmp_path, key))
    assert find_weak_keys(opened.keyring.keys) == ["default"]


def test_a_weak_key_in_a_file_is_named_by_its_principal(tmp_path: Path) -> None:
    path = key_file(tmp_path, f'[keys]\nalice = "{ALICE}"\nbob = "{WEAK[0]}"\n')
    assert "the key of bob" in refusal(KeySources("::", tmp_path, api_key_file=path))


def random_text(draw: random.Random, alphabet: str, length: int) -> str:
    return "".join(draw.choices(alphabet, k=length))


@pytest.mark.parametrize(
    ("alphabet", "length"),
    [
        (string.hexdigits[:16], 32), (string.ascii_lowercase, 20), (string.ascii_letters + string.digits, 20),
        (string.digits, 32), (string.ascii_letters + string.digits + "-_", 43),
    ],
)  # fmt: skip
def test_random_keys_are_hard_to_guess(alphabet: str, length: int) -> None:
    draw = random.Random(1)
    for _ in range(300):
        assert estimate_bits(random_text(draw, alphabet, length)) >= MIN_KEY_BITS


@given(st.text())
def test_any_text_can_be_rated(text: str) -> None:
    assert 0 <= estimate_bits(text) <= 21 * min(len(text), 256)


def test_a_longer_key_is_rated_in_bounded_time() -> None:
    assert estimate_bits("ab" * 500_000) < MIN_KEY_BITS


# The key that is made


def test_the_first_start_makes_a_key_and_the_next_one_keeps_it(tmp_path: Path) -> None:
    sources = KeySources("localhost", tmp_path / "share" / "hermes-trio")
    path = sources.data_dir / "api-key"
    first = open_keys(sources)
    assert isinstance(first.origin, GeneratedKey)
    assert first.origin.path == path
    assert first.origin.key.startswith("ht-")
    assert len(first.origin.key) >= 43
    assert first.keyring.identify(first.origin.key) == OPERATOR
    assert (rights(path), rights(sources.data_dir)) == (0o600, 0o700)
    assert os.listdir(sources.data_dir) == ["api-key"]
    assert open_keys(sources) == OpenedKeys(first.keyring, StoredKey(path))


def test_two_machines_do_not_share_a_key(tmp_path: Path) -> None:
    rings = {open_keys(KeySources("::1", tmp_path / name)).keyring for name in "ab"}
    assert len(rings) == 2


def test_servers_that_start_together_agree(tmp_path: Path) -> None:
    start = threading.Barrier(8)
    opened: list[OpenedKeys] = []

    def run() -> None:
        start.wait()
        opened.append(open_keys(KeySources("127.0.0.1", tmp_path)))

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({each.keyring for each in opened}) == 1
    assert sum(isinstance(each.origin, GeneratedKey) for each in opened) == 1
    assert os.listdir(tmp_path) == ["api-key"]


def test_one_that_came_second_takes_the_key_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = open_keys(KeySources("127.0.0.1", tmp_path))
    monkeypatch.setattr("hermes_trio.keys.sources.os.path.lexists", lambda path: False)
    second = open_keys(KeySources("127.0.0.1", tmp_path))
    assert second == OpenedKeys(first.keyring, StoredKey(tmp_path / "api-key"))
    assert os.listdir(tmp_path) == ["api-key"]


def test_a_kept_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    open_keys(KeySources("127.0.0.1", tmp_path))
    (tmp_path / "api-key").chmod(0o644)
    assert refusal(KeySources("127.0.0.1", tmp_path)).endswith(f"run: chmod 600 {tmp_path}/api-key")


def test_a_data_dir_that_is_a_file(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert refusal(KeySources("127.0.0.1", blocked)) == f"{blocked}/api-key: Not a directory"
    deeper = refusal(KeySources("127.0.0.1", blocked / "deeper"))
    assert deeper == f"{blocked}/deeper/api-key: the key cannot be kept here: Not a directory"


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "192.168.1.2", "example.org", "localhost.example.org"]
)
def test_outside_loopback_a_key_is_compulsory(tmp_path: Path, host: str) -> None:
    line = refusal(KeySources(host, tmp_path))
    assert (
        line
        == f"api_key: a key is needed to listen on {host}: set API_SERVER_KEY or --api-key-file"
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.8.9.10", "::1", "localhost", "LOCALHOST", "localhost."]
)
def test_loopback(host: str) -> None:
    assert is_loopback(host)


# The secret that tokens are signed with


def test_the_first_start_makes_a_secret_and_the_next_one_keeps_it(tmp_path: Path) -> None:
    data_dir = tmp_path / "new" / "data"
    first = open_secret(data_dir)
    assert len(first) == 32
    assert rights(data_dir / "token-secret") == 0o600
    assert rights(data_dir) == 0o700
    assert os.listdir(data_dir) == ["token-secret"]
    assert open_secret(data_dir) == first
    assert open_secret(tmp_path / "other") != first


def test_processes_that_start_together_share_a_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = open_secret(tmp_path)
    monkeypatch.setattr("hermes_trio.keys.sources.os.path.lexists", lambda path: False)
    assert open_secret(tmp_path) == first
    assert os.listdir(tmp_path) == ["token-secret"]


@pytest.mark.parametrize("text", ["", "00", "x" * 64, "ab" * 33])
def test_a_damaged_secret_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "token-secret"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(KeysError, match="is damaged; delete it"):
        open_secret(tmp_path)


def test_a_secret_that_others_can_read_is_refused(tmp_path: Path) -> None:
    open_secret(tmp_path)
    (tmp_path / "token-secret").chmod(0o640)
    with pytest.raises(KeysError, match="other users have access"):
        open_secret(tmp_path)


def test_a_secret_that_cannot_be_kept(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(KeysError, match="token-secret: Not a directory"):
        open_secret(tmp_path / "file")
    with pytest.raises(KeysError, match="the secret cannot be kept here: Not a directory"):
        open_secret(tmp_path / "file" / "deeper")
