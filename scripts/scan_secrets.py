"""Look for secrets in the tracked files of the current folder: ``python -m scripts.scan_secrets [--update]``.

Prints what detect-secrets finds and ``.secrets.baseline`` does not list, and fails. The baseline
lists examples and test data, by hash. ``--update`` rewrites it; review what was added, and set
its ``is_secret`` to false.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from attrs import frozen
from detect_secrets.core.potential_secret import PotentialSecret
from detect_secrets.core.scan import scan_file
from detect_secrets.settings import default_settings

BASELINE = Path(".secrets.baseline")
# Recorded and foreign files, whose ids and checksums look like secrets.
SKIPPED = re.compile(
    r"tests/golden/corpus/|hermes_trio/page/vendor/|requirements\.lock$|\.secrets\.baseline$"
)
GENERATED_KEY = re.compile(r"\bht-[\w-]{43}(?![\w-])")  # as hermes_trio/keys.py makes them


@frozen
class FoundSecret:
    """A text that may be a secret, by its hash."""

    path: str
    kind: str
    sha1: str


def main(arguments: list[str]) -> int:
    """Return the exit code: 1 if there is a secret that the baseline does not list."""
    known = load_baseline()
    found = dict(scan())
    if "--update" in arguments:
        save_baseline({secret: known.get(secret) for secret in found})
        return 0
    for secret in (new := [secret for secret in found if secret not in known]):
        sys.stdout.write(f"{secret.path}:{found[secret]}: {secret.kind}\n")
    if new:
        sys.stdout.write("Remove them. Add examples to the baseline: see CONTRIBUTING.md.\n")
    return 1 if new else 0


def scan() -> Iterator[tuple[FoundSecret, int]]:
    """Yield the possible secrets in the tracked files, with their lines."""
    command = ["git", "ls-files", "-z"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    with default_settings():  # without its filter that asks services whether a secret is valid
        for path in filter(None, listed.split("\0")):
            if not SKIPPED.match(path) and Path(path).is_file():
                for each in scan_file(path):
                    yield FoundSecret(path, each.type, each.secret_hash), each.line_number
                yield from find_generated_keys(path)


def find_generated_keys(path: str) -> Iterator[tuple[FoundSecret, int]]:
    """Yield the keys of this server, which detect-secrets knows only between quotes."""
    lines = Path(path).read_text("utf-8", errors="replace").splitlines()
    for number, line in enumerate(lines, 1):
        for key in GENERATED_KEY.findall(line):
            yield FoundSecret(path, "API key", PotentialSecret.hash_secret(key)), number


def load_baseline() -> dict[FoundSecret, bool | None]:
    """Return the listed secrets, and whether each was found to be a real one; None if it was not reviewed."""
    document = json.loads(BASELINE.read_text("utf-8")) if BASELINE.exists() else {}
    return {
        FoundSecret(path, entry["type"], entry["hashed_secret"]): entry.get("is_secret")
        for path, entries in document.items()
        for entry in entries
    }


def save_baseline(secrets: dict[FoundSecret, bool | None]) -> None:
    """Write the list, without line numbers, which every edit would change."""
    document: dict[str, list[Mapping[str, object]]] = {}
    for secret in sorted(secrets, key=lambda each: (each.path, each.kind, each.sha1)):
        entry = {"type": secret.kind, "hashed_secret": secret.sha1, "is_secret": secrets[secret]}
        document.setdefault(secret.path, []).append(entry)
    BASELINE.write_text(json.dumps(document, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
