"""The key file: what an entry may say, and how entries are added and removed."""

from __future__ import annotations

import os
import stat
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest

from hermes_trio.core.access import FULL_ACCESS, Access, Principal, Quota
from hermes_trio.keys import (
    Keyring,
    KeysError,
    KeySources,
    NamedKey,
    add_key,
    check_keys,
    find_weak_keys,
    hash_key,
    read_key_file,
    remove_key,
)

ALICE = "alice-kq7w-vzx2-mhp9-tdb4"
HASH = f"sha256:{hash_key(ALICE).hex()}"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.toml"


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)
    return path


def entry(path: Path, options: str) -> NamedKey:
    """The only entry of a file, with these options."""
    [named] = read_key_file(write(path, f'[keys.laptop]\nhash = "{HASH}"\n{options}\n'))
    return named


# -- reading --


def test_a_hash_accepts_its_key(path: Path) -> None:
    named = entry(path, 'principal = "alice"')
    assert (named.key, named.access) == ("", FULL_ACCESS)
    found = Keyring((named,)).identify(ALICE)
    assert isinstance(found, Principal)
    assert (found.name, found.key_name) == ("alice", "laptop")
    assert not isinstance(Keyring((named,)).identify(HASH), Principal)
    assert ALICE not in path.read_text()


def test_an_entry_can_hold_the_key_itself(path: Path) -> None:
    [named] = read_key_file(write(path, f'[keys.alice]\nkey = "{ALICE}"\nmax_runs = 1\n'))
    assert (named.principal, named.key, named.access.quota) == ("alice", ALICE, Quota(runs=1))


def test_everything_that_an_entry_can_say(path: Path) -> None:
    named = entry(
        path,
        'routes = ["chat", "sessions:read"]\nprofiles = ["default"]\ntools = []\nadmin = true\n'
        "expires = 2027-01-31\nmax_runs = 2\nmax_runs_per_minute = 3\nmax_requests = 4\n"
        "max_stored_bytes = 5",
    )
    assert named.access == Access(
        frozenset({"chat", "sessions:read"}),
        frozenset({"default"}),
        frozenset(),
        is_admin=True,
        expires_at=datetime(2027, 1, 31, tzinfo=UTC).timestamp(),
        quota=Quota(2, 3, 4, 5),
    )


@pytest.mark.parametrize(
    ("written", "hour"),
    [("2027-01-31T12:00:00Z", 12), ("2027-01-31T12:00:00", 12), ("2027-01-31T12:00:00+02:00", 10)],
)
def test_times_without_a_zone_are_utc(path: Path, written: str, hour: int) -> None:
    expected = datetime(2027, 1, 31, hour, tzinfo=UTC).timestamp()
    assert entry(path, f"expires = {written}").access.expires_at == expected


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ('routes = ["chats"]', "keys.laptop.routes has 'chats'; known: approvals, chat,"),
        ('routes = "chat"', "keys.laptop.routes must be a list of texts"),
        ("tools = [1]", "keys.laptop.tools must be a list of texts"),
        ('profiles = [""]', "keys.laptop.profiles must be a list of texts"),
        ('expires = "tomorrow"', "keys.laptop.expires must be a date such as 2027-01-31"),
        ("expires = 12:00:00", "keys.laptop.expires must be a date"),
        ("max_runs = 0", "keys.laptop.max_runs must be a whole number of at least 1"),
        ("max_runs = true", "keys.laptop.max_runs must be a whole number"),
        ("max_runs = 1.5", "keys.laptop.max_runs must be a whole number"),
        ("admin = 1", "keys.laptop.admin must be true or false"),
        ('principal = "a b"', "keys.laptop.principal is not a name"),
        ("principal = 1", "keys.laptop.principal must be a text"),
        ('rotues = ["chat"]', "keys.laptop: 'rotues' is unknown; known: admin, expires, hash,"),
        (f'key = "{ALICE}"', "keys.laptop: needs either hash or key"),
    ],
)
def test_a_wrong_option_is_named(path: Path, options: str, complaint: str) -> None:
    with pytest.raises(KeysError) as caught:
        entry(path, options)
    assert complaint in str(caught.value)
    assert str(path) in str(caught.value)
    assert ALICE not in str(caught.value)


@pytest.mark.parametrize("value", [ALICE, HASH.upper(), HASH + "0", HASH[:-1] + "g"])
def test_a_wrong_hash_is_refused_and_not_repeated(path: Path, value: str) -> None:
    with pytest.raises(KeysError, match=r"keys\.laptop\.hash must be sha256:") as caught:
        read_key_file(write(path, f'[keys.laptop]\nhash = "{value}"\n'))
    assert value not in str(caught.value)


def test_an_entry_without_a_key_is_refused(path: Path) -> None:
    with pytest.raises(KeysError, match="needs either hash or key"):
        read_key_file(write(path, "[keys.laptop]\nadmin = true\n"))


def test_the_name_of_the_key_of_the_settings_is_taken(path: Path) -> None:
    with pytest.raises(KeysError, match="'API_SERVER_KEY' is not a name"):
        read_key_file(write(path, f'[keys]\nAPI_SERVER_KEY = "{ALICE}"\n'))


def test_a_hash_cannot_be_rated(path: Path) -> None:
    named = entry(path, "")
    assert find_weak_keys([named]) == []
    assert check_keys(KeySources("0.0.0.0", path.parent, api_key_file=path)).keys == (named,)


def test_two_entries_with_one_key_are_refused(path: Path) -> None:
    text = f'[keys.a]\nhash = "{HASH}"\n[keys.b]\nhash = "{HASH}"\n'
    with pytest.raises(KeysError, match="a and b share a key"):
        Keyring(read_key_file(write(path, text)))
    same = text.replace("hash", 'principal = "x"\nhash') + "admin = true\n"
    with pytest.raises(KeysError, match="a and b are one key with different rules"):
        Keyring(read_key_file(write(path, same)))


def test_a_key_needs_a_text_or_a_hash() -> None:
    with pytest.raises(ValueError, match="its text or its hash"):
        NamedKey("alice")


# -- adding --


def test_a_new_file_is_for_its_owner_only(path: Path) -> None:
    key = add_key(path, "ada", {})
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert key not in path.read_text()
    assert os.listdir(path.parent) == [path.name]
    assert Keyring(read_key_file(path)).identify(key) == Principal("ada")


def test_options_are_written_as_they_are_read(path: Path) -> None:
    expires = datetime(2027, 1, 31, 12, tzinfo=UTC)
    options = {"routes": ["chat"], "tools": [], "admin": True, "expires": expires, "max_runs": 3}
    key = add_key(path, "ada.phone", {"principal": "ada", **options})
    [named] = read_key_file(path)
    assert (named.name, named.principal, named.digest) == ("ada.phone", "ada", hash_key(key))
    assert named.access == Access(
        frozenset({"chat"}), None, frozenset(), True, expires.timestamp(), Quota(runs=3)
    )


def test_what_was_there_stays(path: Path) -> None:
    text = f'# who\n[keys]\nalice = "{ALICE}"   # since May'
    add_key(write(path, text), "ada", {})
    assert path.read_text().startswith(text + "\n\n[keys.ada]\n")
    assert [named.name for named in read_key_file(path)] == ["alice", "ada"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (f'[keys]\nada = "{ALICE}"\n', "there is a key of the name 'ada' already"),
        (f"{ALICE}\n", "holds one key"),
        ("[keys]\nx\n", "is not valid TOML"),
    ],
)
def test_a_file_that_cannot_take_another_key_stays(path: Path, text: str, complaint: str) -> None:
    with pytest.raises(KeysError, match=complaint):
        add_key(write(path, text), "ada", {})
    assert path.read_text() == text


@pytest.mark.parametrize(
    ("name", "options", "complaint"),
    [
        ("a b", {}, "is not"),
        ("a]\n[x", {}, "is not"),
        ("ada", {"routes": ["chats"]}, "has 'chats'"),
        ("ada", {"tools": ['"]\nadmin = true #']}, "is not valid TOML"),
    ],
)
def test_nothing_is_written_that_could_not_be_read(
    path: Path, name: str, options: dict[str, object], complaint: str
) -> None:
    with pytest.raises(KeysError, match=complaint):
        add_key(path, name, options)
    assert not path.exists()


def test_a_link_to_the_file_stays_a_link(tmp_path: Path, path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(path)
    add_key(link, "ada", {})
    remove = add_key(link, "eve", {})
    assert remove
    remove_key(link, "eve")
    assert link.is_symlink()
    assert [named.name for named in read_key_file(path)] == ["ada"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_the_owner_of_the_file_stays(path: Path) -> None:
    add_key(path, "ada", {})
    os.chown(path, 1234, 1234)
    add_key(path, "eve", {})
    assert (path.stat().st_uid, path.stat().st_gid) == (1234, 1234)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_keys_that_are_added_at_once_are_all_there(path: Path) -> None:
    threads = [threading.Thread(target=add_key, args=(path, f"k{n}", {})) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {named.name for named in read_key_file(path)} == {f"k{n}" for n in range(8)}


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(KeysError, match="cannot be changed: No such file or directory"):
        add_key(tmp_path / "none" / "keys.toml", "ada", {})


# -- removing --

FILE = f"""# who may call
[keys]
plain = "{ALICE}"
"quoted.name" = "bob-r5nj-ycg8-wfs3-xlu6"

[keys.laptop]  # of grace
hash = "sha256:{"1" * 64}"
tools = [
  "read_file",
]

# the phone
[keys."old.phone"]
hash = "sha256:{"2" * 64}"
"""


@pytest.mark.parametrize("name", ["plain", "quoted.name", "laptop", "old.phone"])
def test_only_the_entry_is_removed(path: Path, name: str) -> None:
    before = {named.name: named for named in read_key_file(write(path, FILE))}
    remove_key(path, name)
    after = {named.name: named for named in read_key_file(path)}
    del before[name]
    assert after == before
    assert "# who may call" in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (FILE, "there is no key of the name 'ada'"),
        (f'[keys]\nada = "{ALICE}"\n', "'ada' is the only key"),
        (f"{ALICE}\n", "holds one key without a name"),
        (f'[keys]\nada.key = "{ALICE}"\n[keys.b]\nhash = "{HASH[:-4]}0000"\n', "edit it by hand"),
        (
            f'[keys]\nada = """{ALICE}\\\n"""\n[keys.b]\nhash = "{HASH[:-4]}0000"\n',
            "edit it by hand",
        ),
    ],
)
def test_what_cannot_be_removed_stays(path: Path, text: str, complaint: str) -> None:
    with pytest.raises(KeysError, match=complaint):
        remove_key(write(path, text), "ada")
    assert path.read_text() == text
