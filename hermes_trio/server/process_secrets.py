"""Keep the secrets of the process from other programs of its user, such as those that tools start."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping

from hermes_trio.settings import LoadedSettings, SourceKind, options
from hermes_trio.settings.channels import SECRETS

_PR_SET_DUMPABLE = 4
# They get all keys from the settings.
_AGENTS_WITHOUT_ENVIRONMENT = frozenset({"demo", "synthetic", "upstream", "local"})


def hide_secrets(loaded: LoadedSettings) -> dict[str, str]:
    """Forbid inspection and remove secrets from the environment, unless the sandbox is off.

    Return the variables that were removed, with their values.
    """
    if loaded.settings.sandbox == "off":
        return {}
    forbid_inspection()
    present = secret_variables(loaded) & os.environ.keys()
    return {name: os.environ.pop(name) for name in present}


def forbid_inspection() -> None:
    """Forbid other processes of this user to read this one's memory and first environment.

    Linux keeps the environment that a process was started with readable in ``/proc/PID/environ``,
    whatever the process removes from it later. Child processes are not affected. Root can still
    read it. There are no core dumps either.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def secret_variables(loaded: LoadedSettings) -> set[str]:
    """Return the environment variables that nothing needs once the settings are read.

    An agent that is not ours may read the key of a model from the environment itself, and commands
    may be given variables on purpose; these stay.
    """
    settings = loaded.settings
    profiles = settings.profiles.values()
    agents = {settings.agent_name, *(profile.agent_name for profile in profiles)}
    found = set()
    for name, source in loaded.sources.items():
        option = options().get(name)
        is_of_channel = name.startswith("channels.") and name.rpartition(".")[2] in SECRETS
        is_secret = name == "store" or (option.secret if option else name.endswith(".api_key"))
        is_needed = name not in ("api_key", "store") and not agents <= _AGENTS_WITHOUT_ENVIRONMENT
        is_removable = is_of_channel or (is_secret and not is_needed)
        if is_removable and source.kind is SourceKind.ENVIRONMENT:
            found.add(source.name)
    for table in (settings.agent_options, *(profile.options for profile in profiles)):
        terminal = table.get("terminal")
        if isinstance(terminal, Mapping):
            found -= {*terminal.get("environment", ())}
    return found
