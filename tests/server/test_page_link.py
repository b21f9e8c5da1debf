"""The link to the page that is printed at the start.

A click signs in, and no log gets a key that is not new.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_trio.keys import ConfiguredKeys, GeneratedKey, Keyring, NamedKey, OpenedKeys, StoredKey
from hermes_trio.server.greeting import page_link

URL = "http://127.0.0.1:8642"
KEY = "ht-0123456789/+abc"
PLACE = Path("/data/api-key")


def link(
    origin: ConfiguredKeys | StoredKey | GeneratedKey, is_terminal: bool, *more: NamedKey
) -> str:
    keys = OpenedKeys(Keyring((NamedKey("default", KEY), *more)), origin)
    return page_link(keys, URL, is_terminal)


@pytest.mark.parametrize(
    ("origin", "is_terminal"),
    [(GeneratedKey(PLACE, KEY), True), (GeneratedKey(PLACE, KEY), False), (StoredKey(PLACE), True)],
)
def test_whoever_may_see_the_key_gets_it(
    origin: StoredKey | GeneratedKey, is_terminal: bool
) -> None:
    assert link(origin, is_terminal) == f"{URL}/#key=ht-0123456789%2F%2Babc"


def test_a_log_gets_no_key_that_is_not_new() -> None:
    assert link(StoredKey(PLACE), is_terminal=False) == f"{URL}/"


def test_keys_of_the_operator_are_never_shown() -> None:
    assert link(ConfiguredKeys(), True, NamedKey("bob", "another-key-0123456789")) == f"{URL}/"
