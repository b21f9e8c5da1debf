"""API keys: where they come from, which rules they must meet, which principal each belongs to, and what it allows."""

from hermes_trio.core.access import Access, Principal, Quota
from hermes_trio.keys.errors import KeysError
from hermes_trio.keys.key_file import (
    DEFAULT_PRINCIPAL,
    OPERATOR_ACCESS,
    SETTINGS_KEY,
    add_key,
    load_key_file,
    read_key_file,
    remove_key,
)
from hermes_trio.keys.keyring import (
    ANONYMOUS,
    ActiveKeys,
    Anonymous,
    Keyring,
    NamedKey,
    find_weak_keys,
    hash_key,
    refuse_weak_keys,
)
from hermes_trio.keys.loopback import is_loopback
from hermes_trio.keys.oidc_settings import OIDC_PREFIX, OidcSettings
from hermes_trio.keys.report import log_doubtful_keys
from hermes_trio.keys.sources import (
    LOCAL_FILE,
    OIDC_EXTRA,
    SECRET_FILE,
    ConfiguredKeys,
    Credentials,
    GeneratedKey,
    KeySources,
    OpenedKeys,
    StoredKey,
    check_keys,
    check_secret,
    open_credentials,
    open_keys,
    open_secret,
)
from hermes_trio.keys.strength import KEY_ADVICE, MIN_KEY_BITS, estimate_bits

__all__ = [
    "ANONYMOUS", "DEFAULT_PRINCIPAL", "KEY_ADVICE", "LOCAL_FILE", "MIN_KEY_BITS", "OIDC_EXTRA", "OIDC_PREFIX", "OPERATOR_ACCESS", "SECRET_FILE",
    "SETTINGS_KEY", "Access", "ActiveKeys", "Anonymous", "ConfiguredKeys", "Credentials", "GeneratedKey",
    "KeySources", "Keyring", "KeysError", "NamedKey", "OidcSettings", "OpenedKeys", "Principal", "Quota", "StoredKey", "add_key",
    "check_keys", "check_secret", "estimate_bits", "find_weak_keys", "hash_key", "is_loopback", "load_key_file",
    "log_doubtful_keys", "open_credentials", "open_keys", "open_secret", "read_key_file", "refuse_weak_keys", "remove_key",
]  # fmt: skip
