"""Checks of this machine: key, data directory, disk, store, packages, clock.

Each ``check_…`` function collects a fact and blocks: call it in a thread. Each ``assess_…``
function is pure and turns a fact into a finding.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from shlex import quote

from attrs import frozen

from hermes_trio.doctor.findings import Finding, Level, fail, ok, warn
from hermes_trio.keys import (
    KEY_ADVICE,
    LOCAL_FILE,
    OIDC_EXTRA,
    KeysError,
    KeySources,
    NamedKey,
    check_keys,
    find_weak_keys,
    read_key_file,
)
from hermes_trio.settings import Settings
from hermes_trio.stores.base import StoreError, newer_schema
from hermes_trio.stores.factory import (
    POSTGRES_EXTRA,
    InMemory,
    PostgresUrl,
    SqliteFile,
    StoreLocation,
)
from hermes_trio.stores.sqlite.connections import CONVERT, SQLITE_VERSION, inspect_database
from hermes_trio.stores.sqlite.schema import LATEST_VERSION
from hermes_trio.tools.sandbox import find_problem

HERMES_MODULE = "run_agent"
_FREE_FAIL = 100 * 2**20
_FREE_WARN = 2**30
_OLDEST_SQLITE = (3, 35, 0)
_SAFE_SQLITE = (3, 51, 3)
_EARLIEST = 1_767_225_600.0  # 2026-01-01: this program is younger
_LATEST = 4_102_444_800.0  # 2100-01-01
_MAX_SKEW_SECONDS = 120.0


# -- key --


@frozen
class KeyFound:
    """There are usable keys."""

    where: str
    count: int
    weak: tuple[str, ...]  # the principals whose keys are easy to guess


@frozen
class KeyPending:
    """There is no key yet; the first start generates one."""

    path: str


@frozen
class KeyUnusable:
    """There is no usable key; the reason says what to do."""

    reason: str


def check_key(settings: Settings) -> Finding:
    """Check the keys that a server would accept."""
    path = settings.data_dir / LOCAL_FILE
    sources = KeySources(settings.host, settings.data_dir, settings.api_key, settings.api_key_file)
    try:
        configured = check_keys(sources)
        if not configured.is_empty:
            return assess_key(_describe_keys("the settings", configured.keys))
        if os.path.lexists(path):
            return assess_key(_describe_keys(str(path), read_key_file(path)))
    except KeysError as error:
        return assess_key(KeyUnusable(str(error)))
    return assess_key(KeyPending(str(path)))


def _describe_keys(where: str, named: tuple[NamedKey, ...]) -> KeyFound:
    return KeyFound(where, len(named), tuple(find_weak_keys(named)))


def assess_key(fact: KeyFound | KeyPending | KeyUnusable) -> Finding:
    """Judge whether the API is protected."""
    match fact:
        case KeyFound(where, count, weak):
            keys = "1 key" if count == 1 else f"{count} keys"
            if weak:
                owners = ", ".join(weak)
                return warn(
                    "key", f"{keys} from {where}; easy to guess: that of {owners}", KEY_ADVICE
                )
            return ok("key", f"{keys} from {where}, strong, and readable by the owner only")
        case KeyPending(path):
            return ok("key", f"none yet; the first start generates one in {path}")
        case KeyUnusable(reason):
            return fail(
                "key", reason, "fix that, or remove the key file to have a new key generated"
            )


# -- sandbox --


def check_sandbox(settings: Settings) -> Finding:
    """Check what isolates the programs that tools start."""
    return assess_sandbox(settings.sandbox, find_problem(shutil.which("bwrap") or ""))


def assess_sandbox(mode: str, problem: str) -> Finding:
    """Judge whether commands of an agent can reach more than its workspace."""
    reach = "commands can read and change what the server's user can"
    if mode == "off":
        return warn("sandbox", f"off: {reach}", "set sandbox to auto or require")
    if not problem:
        return ok("sandbox", "bubblewrap: commands see the system read-only and their workspace")
    advice = "install bubblewrap, and allow user namespaces"
    if mode == "require":
        return fail("sandbox", f"required, but {problem}", advice)
    return warn("sandbox", f"none, because {problem}: {reach}", advice)


# -- files --


@frozen
class DirectoryExists:
    """The data directory exists."""

    is_writable: bool
    is_private: bool = True


@frozen
class DirectoryMissing:
    """There is no data directory yet; the first start creates it."""

    can_create: bool


@frozen
class DirectoryUnusable:
    """The path is not a directory, or cannot be accessed."""

    reason: str


def check_directory(settings: Settings) -> Finding:
    """Check the data directory."""
    path = settings.data_dir
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return assess_directory(str(path), DirectoryMissing(_can_write(_nearest_parent(path))))
    except OSError as error:
        return assess_directory(str(path), DirectoryUnusable(error.strerror or str(error)))
    if not stat.S_ISDIR(mode):
        return assess_directory(str(path), DirectoryUnusable("is not a directory"))
    is_private = not mode & (stat.S_IRWXG | stat.S_IRWXO)
    return assess_directory(str(path), DirectoryExists(_can_write(path), is_private))


def _nearest_parent(path: Path) -> Path:
    """Return the existing directory in which the missing ones would be created."""
    return next((parent for parent in path.absolute().parents if parent.exists()), Path("/"))


def _can_write(path: Path) -> bool:
    """Try to write: permissions are not the only obstacle."""
    try:
        with tempfile.TemporaryFile(dir=path):
            return True
    except OSError:
        return False


def assess_directory(
    path: str, fact: DirectoryExists | DirectoryMissing | DirectoryUnusable
) -> Finding:
    """Judge whether records can be written."""
    check = "data folder"
    match fact:
        case DirectoryExists(is_writable=False):
            return fail(check, f"{path} is not writable", f"run: chown -R $(id -u) {quote(path)}")
        case DirectoryExists(is_private=False):
            return warn(
                check, f"{path} is accessible to other users", f"run: chmod 700 {quote(path)}"
            )
        case DirectoryExists():
            return ok(check, f"{path} exists and is writable")
        case DirectoryMissing(can_create=True):
            return ok(check, f"{path} does not exist yet; the first start creates it")
        case DirectoryMissing():
            return fail(
                check, f"{path} does not exist and cannot be created", "use another --data-dir"
            )
        case DirectoryUnusable(reason):
            return fail(check, f"{path}: {reason}", "use another --data-dir")


def check_disk(settings: Settings) -> Finding:
    """Check the free space where records are kept."""
    path = settings.data_dir
    return assess_disk(shutil.disk_usage(path if path.exists() else _nearest_parent(path)).free)


def assess_disk(free: int) -> Finding:
    """Judge whether there is room for records."""
    room = f"{free / 2**30:.1f} GiB free" if free >= 2**30 else f"{free / 2**20:.0f} MiB free"
    advice = "free some space, or lower max_stored_runs or max_stored_bytes"
    if free < _FREE_FAIL:
        return fail("disk", room, advice)
    return warn("disk", room, advice) if free < _FREE_WARN else ok("disk", room)


def check_sqlite(_settings: Settings) -> Finding:
    """Check the library behind the store."""
    return assess_sqlite(SQLITE_VERSION)


def assess_sqlite(version: tuple[int, ...]) -> Finding:
    """Judge whether the library has the features that the store needs."""
    text = ".".join(map(str, version))
    if version < _OLDEST_SQLITE:
        return fail(
            "SQLite", f"version {text} is too old", "use a Python with SQLite 3.35 or newer"
        )
    if version < _SAFE_SQLITE:
        note = "before 3.51.3, two processes that write can damage a file; the lock allows one server per data folder"
        return ok("SQLite", f"version {text}; {note}")
    return ok("SQLite", f"version {text}")


@frozen
class StoreInMemory:
    """Records are not kept."""


@frozen
class StoreMissing:
    """There is no database yet; the first start creates it."""

    path: str


@frozen
class StoreReadable:
    """The database opens."""

    path: str
    version: int
    latest: int
    is_in_use: bool
    can_shrink: bool = True


@frozen
class StoreUnusable:
    """The database does not open."""

    reason: str


@frozen
class PostgresReachable:
    """The database server answers."""

    server: str  # its version
    is_supported: bool
    version: int
    latest: int
    living_nodes: int
    is_pooled: bool
    loses_commits: bool


def check_store(settings: Settings) -> Finding:
    """Check the database, and what the server would do without it."""
    try:
        finding = _check_location(settings.store_location)
    except ImportError as error:  # there is no fallback from a missing driver
        message = f"the driver of PostgreSQL is missing ({error})"
        return fail("store", message, POSTGRES_EXTRA)
    if finding.level is Level.FAIL and settings.store_fallback == "memory":
        return assess_fallback(finding)
    return finding


def assess_fallback(finding: Finding) -> Finding:
    """Judge a store that cannot be used, where the server may keep records in memory instead."""
    loss = "the server starts without it and loses all records at the end (store_fallback)"
    return warn(finding.check, f"{finding.message}; {loss}", finding.advice)


def _check_location(location: StoreLocation) -> Finding:
    match location:
        case InMemory():
            return assess_store(StoreInMemory())
        case SqliteFile(path):
            if not os.path.lexists(path):
                return assess_store(StoreMissing(str(path)))
            try:
                found = inspect_database(path)
            except StoreError as error:
                return assess_store(StoreUnusable(str(error)))
            return assess_store(
                StoreReadable(
                    str(path),
                    found.schema_version,
                    LATEST_VERSION,
                    found.is_in_use,
                    found.can_shrink,
                )
            )
        case PostgresUrl(url):
            return assess_postgres(_inspect_postgres(url))


def _inspect_postgres(url: str) -> PostgresReachable | StoreUnusable:
    from hermes_trio.stores.postgres import connections, schema  # noqa: PLC0415 - an extra

    try:
        found = connections.inspect_database(url)
    except StoreError as error:
        return StoreUnusable(str(error))
    return PostgresReachable(
        server=f"{found.version // 10000}.{found.version % 10000}, {found.encoding}",
        is_supported=found.version >= connections.OLDEST_SERVER and found.encoding == "UTF8",
        version=found.schema_version,
        latest=schema.LATEST_VERSION,
        living_nodes=found.living_nodes,
        is_pooled=found.is_pooled,
        loses_commits=found.loses_commits,
    )


def assess_postgres(fact: PostgresReachable | StoreUnusable) -> Finding:
    """Judge whether a PostgreSQL database can be used, and is safe."""
    match fact:
        case StoreUnusable(reason):
            return fail("store", reason, "check the URL, the server and the user's rights")
        case PostgresReachable(is_supported=False):
            message = f"PostgreSQL {fact.server} is not supported"
            return fail("store", message, "use PostgreSQL 14 or newer, and a database in UTF8")
        case PostgresReachable() if fact.version > fact.latest:
            message = newer_schema("the database", fact.version, fact.latest)
            return fail(
                "store", message, "use the newer version that wrote it, or another database"
            )
        case PostgresReachable(loses_commits=True):
            message = f"PostgreSQL {fact.server} may lose acknowledged records in a crash"
            advice = "set fsync, full_page_writes and synchronous_commit to on"
            return warn("store", message, advice)
        case PostgresReachable():
            return ok("store", f"PostgreSQL {fact.server} answers{_describe_postgres(fact)}")


def _describe_postgres(fact: PostgresReachable) -> str:
    parts = [f", schema version {fact.version}"]
    if fact.version < fact.latest:
        parts.append(f", the next start migrates it to {fact.latest}")
    if fact.is_pooled:
        parts.append(", through a pooler: statements are not prepared")
    if fact.living_nodes:
        parts.append(f", servers that use it: {fact.living_nodes}")
    return "".join(parts)


def assess_store(fact: StoreInMemory | StoreMissing | StoreReadable | StoreUnusable) -> Finding:
    """Judge whether the records can be read."""
    match fact:
        case StoreInMemory():
            return ok("store", "in memory: records are lost when the process ends")
        case StoreMissing(path):
            return ok("store", f"{path} does not exist yet; the first start creates it")
        case StoreReadable(path, version, latest) if version > latest:
            message = newer_schema(path, version, latest)
            return fail(
                "store", message, "use the newer version that wrote it, or another --data-dir"
            )
        case StoreReadable(path, can_shrink=False):
            return warn("store", f"{path} opens, but keeps the space of deleted records", CONVERT)
        case StoreReadable(path, version, latest, is_in_use):
            use = ", in use by a running server" if is_in_use else ""
            migration = f", the next start migrates it to {latest}" if version < latest else ""
            return ok("store", f"{path} opens, schema version {version}{migration}{use}")
        case StoreUnusable(reason):
            return fail("store", reason, "restore a backup, or use another --data-dir")


# -- packages and clock --


@frozen
class OptionalPackage:
    """A package that is not always needed."""

    name: str
    needed_for: str
    install: str
    is_needed: bool = False


def check_packages(settings: Settings) -> Iterator[Finding]:
    """Check the packages of our extras."""
    for package in (
        OptionalPackage(
            "rich",
            "the live view of hermes-trio chat",
            "pip install '.[chat]' in a clone of the repository",
        ),
        OptionalPackage(
            "mcp",
            "tools of MCP servers",
            "pip install '.[mcp]' in a clone of the repository",
            bool(settings.mcp),
        ),
        OptionalPackage(
            "psycopg",
            "a store in PostgreSQL",
            POSTGRES_EXTRA,
            isinstance(settings.store_location, PostgresUrl),
        ),
        OptionalPackage("joserfc", "tokens of an OpenID Connect issuer", OIDC_EXTRA),
        OptionalPackage(
            "opentelemetry.sdk",
            "exporting traces",
            "pip install '.[otel]' in a clone of the repository",
        ),
    ):
        yield assess_package(package, "" if is_installed(package.name) else "not installed")


def is_installed(module: str) -> bool:
    """Return whether a module could be imported.

    Imports its parent packages, but not the module itself.
    """
    try:
        return find_spec(module) is not None
    except ImportError:
        return False


def hermes_package(settings: Settings) -> OptionalPackage:
    """Return the package behind the agent ``hermes``."""
    agents = {settings.agent_name, *(profile.agent_name for profile in settings.profiles.values())}
    return OptionalPackage(
        "hermes-agent", "the agent hermes", "pip install hermes-agent", "hermes" in agents
    )


def assess_package(package: OptionalPackage, problem: str) -> Finding:
    """Judge whether a package is usable; ``problem`` is empty if it is."""
    check = f"package {package.name}"
    if not problem:
        return ok(check, f"installed, for {package.needed_for}")
    if package.is_needed:
        return fail(check, f"{problem}; needed for {package.needed_for}", package.install)
    return ok(check, f"{problem}; only needed for {package.needed_for}")


def assess_clock(now: float, others: Sequence[float]) -> Finding:
    """Judge whether the time is plausible, by the calendar and by the clocks of other servers."""
    if not _EARLIEST <= now <= _LATEST:
        advice = "set it; records and TLS certificates depend on it"
        return fail("clock", "the clock of this machine is wrong by years", advice)
    skew = max((abs(now - other) for other in others), default=0.0)
    if skew > _MAX_SKEW_SECONDS:
        advice = "make sure that this machine synchronises its clock (NTP)"
        return warn("clock", f"differs by {skew:.0f} s from the clock of another server", advice)
    return ok("clock", "plausible" + (", and in agreement with other servers" if others else ""))
