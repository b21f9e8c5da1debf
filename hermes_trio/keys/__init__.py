"""API keys: where they come from, which rules they must meet, which principal each belongs to, and what it allows."""

from hermes_trio.core.access import Access, Principal, Quota
from hermes_trio.keys.key_file import (
    DEFAULT_PRINCIPAL,
    OPERATOR_ACCESS,
    SETTINGS_KEY,
    add_key,
    read_key_file,
    remove_key,
)
from hermes_trio.keys.keyring import (
    ANONYMOUS,
    ActiveKeys,
    Anonymous,
    Keyring,
    KeysError,
    NamedKey,
    find_weak_keys,
    hash_key,
    refuse_weak_keys,
)
from hermes_trio.keys.sources import (
    LOCAL_FILE,
    SECRET_FILE,
    ConfiguredKeys,
    Credentials,
    GeneratedKey,
    KeySources,
    OpenedKeys,
    StoredKey,
    check_keys,
    check_secret,
    is_loopback,
    open_credentials,
    open_keys,
    open_secret,
)
from hermes_trio.keys.strength import KEY_ADVICE, MIN_KEY_BITS, estimate_bits

__all__ = [
    "ANONYMOUS", "DEFAULT_PRINCIPAL", "KEY_ADVICE", "LOCAL_FILE", "MIN_KEY_BITS", "OPERATOR_ACCESS", "SECRET_FILE",
    "SETTINGS_KEY", "Access", "ActiveKeys", "Anonymous", "ConfiguredKeys", "Credentials", "GeneratedKey",
    "KeySources", "Keyring", "KeysError", "NamedKey", "OpenedKeys", "Principal", "Quota", "StoredKey", "add_key",
    "check_keys", "check_secret", "estimate_bits", "find_weak_keys", "hash_key", "is_loopback", "open_credentials",
    "open_keys", "open_secret", "read_key_file", "refuse_weak_keys", "remove_key",
]  # fmt: skip
