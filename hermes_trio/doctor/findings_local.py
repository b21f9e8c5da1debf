"""What the doctor says about this machine: its key, its folder, its store, its packages, its clock."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote

from attrs import frozen

from hermes_trio.doctor.findings import Finding, fail, ok, warn

_FREE_FAIL = 100 * 2**20
_FREE_WARN = 2**30
_OLDEST_SQLITE = (3, 35, 0)
_SAFE_SQLITE = (3, 51, 3)
_STRONG_CHARACTERS = 24
_STRONG_VARIETY = 10
_EARLIEST = 1_767_225_600.0  # 2026-01-01: this program is younger
_LATEST = 4_102_444_800.0  # 2100-01-01
_SKEW_SECONDS = 120.0


# -- the key --


@frozen
class KeyFound:
    """Keys that can be used."""

    where: str
    count: int
    characters: int  # of the shortest
    variety: int  # different characters, of the least varied


@frozen
class KeyToCome:
    """The first start makes one."""

    path: str


@frozen
class KeyUnusable:
    """There is none that can be used. The reason tells what to do."""

    why: str


def key(fact: KeyFound | KeyToCome | KeyUnusable) -> Finding:
    """Whether clients can be told apart from strangers."""
    match fact:
        case KeyFound(where, count, characters, variety):
            keys = "1 key" if count == 1 else f"{count} keys"
            if characters < _STRONG_CHARACTERS or variety < _STRONG_VARIETY:
                advice = "make a longer, random one: openssl rand -base64 32"
                return warn("key", f"{keys} from {where}, but the weakest could be guessed", advice)
            return ok("key", f"{keys} from {where}, strong, and for their owner only")
        case KeyToCome(path):
            return ok("key", f"none yet; the first start makes one in {path}")
        case KeyUnusable(why):
            return fail("key", why, "correct that, or take the key file away to have a new one made")


# -- files --


@frozen
class FolderThere:
    """It is there."""

    is_writable: bool
    is_private: bool = True


@frozen
class FolderToCome:
    """The first start makes it."""

    can_be_made: bool


@frozen
class NoFolder:
    """There is something else, or it cannot be seen."""

    why: str


def folder(path: str, fact: FolderThere | FolderToCome | NoFolder) -> Finding:
    """Whether there is a place for records."""
    match fact:
        case FolderThere(is_writable=False):
            return fail(
                "data folder", f"{path} cannot be written to", f"run: chown -R $(id -u) {quote(path)}"
            )
        case FolderThere(is_private=False):
            return warn("data folder", f"other users can look into {path}", f"run: chmod 700 {quote(path)}")
        case FolderThere():
            return ok("data folder", f"{path} is there and can be written to")
        case FolderToCome(can_be_made=True):
            return ok("data folder", f"{path} is not there yet; the first start makes it")
        case FolderToCome():
            return fail("data folder", f"{path} is not there and cannot be made", "use another --data-dir")
        case NoFolder(why):
            return fail("data folder", f"{path}: {why}", "use another --data-dir")


def disk(free: int) -> Finding:
    """Whether there is room for records."""
    room = f"{free / 2**30:.1f} GiB free" if free >= 2**30 else f"{free / 2**20:.0f} MiB free"
    advice = "make room, or lower max_stored_runs or max_stored_bytes"
    if free < _FREE_FAIL:
        return fail("disk", room, advice)
    return warn("disk", room, advice) if free < _FREE_WARN else ok("disk", room)


def sqlite(version: tuple[int, ...]) -> Finding:
    """Whether the library can do what the store needs."""
    text = ".".join(map(str, version))
    if version < _OLDEST_SQLITE:
        return fail("SQLite", f"version {text} is too old", "use a Python with SQLite 3.35 or newer")
    if version < _SAFE_SQLITE:
        note = "before 3.51.3 two processes that write can damage a file: one server for one data folder, as the lock demands"
        return ok("SQLite", f"version {text}; {note}")
    return ok("SQLite", f"version {text}")


@frozen
class StoreInMemory:
    """Records are not kept."""


@frozen
class StoreToCome:
    """The first start makes it."""

    path: str


@frozen
class StoreThere:
    """It opens."""

    path: str
    schema: int
    known: int
    is_in_use: bool


@frozen
class StoreUnusable:
    """It does not open."""

    why: str


def store(fact: StoreInMemory | StoreToCome | StoreThere | StoreUnusable) -> Finding:
    """Whether the records can be read."""
    match fact:
        case StoreInMemory():
            return ok("store", "in memory: records end with the process")
        case StoreToCome(path):
            return ok("store", f"{path} is not there yet; the first start makes it")
        case StoreThere(path, schema, known, _) if schema > known:
            says = f"{path} has schema version {schema}, this program knows only up to {known}"
            return fail("store", says, "use the newer program that wrote it, or another --data-dir")
        case StoreThere(path, schema, known, is_in_use):
            use = ", in use by a running server" if is_in_use else ""
            steps = f", the next start brings it to {known}" if schema < known else ""
            return ok("store", f"{path} opens, schema version {schema}{steps}{use}")
        case StoreUnusable(why):
            return fail("store", why, "restore a copy, or use another --data-dir")


# -- packages and the clock --


@frozen
class Package:
    """A package that is not always needed."""

    name: str
    needed_for: str
    install: str
    is_needed: bool = False


def package(wanted: Package, why_not: str) -> Finding:
    """Whether a package is there; ``why_not`` is empty then."""
    check = f"package {wanted.name}"
    if not why_not:
        return ok(check, f"there, for {wanted.needed_for}")
    if wanted.is_needed:
        return fail(check, f"{why_not}; needed for {wanted.needed_for}", wanted.install)
    return ok(check, f"{why_not}; only needed for {wanted.needed_for}")


def clock(now: float, others: Sequence[float]) -> Finding:
    """Whether the time can be true: by the calendar, and by what other servers say."""
    if not _EARLIEST <= now <= _LATEST:
        return fail(
            "clock",
            "the clock of this machine is wrong by years",
            "set it; records and keys of TLS depend on it",
        )
    worst = max((abs(now - other) for other in others), default=0.0)
    if worst > _SKEW_SECONDS:
        return warn(
            "clock", f"another server's clock is {worst:.0f} s away", "see that this machine keeps time (NTP)"
        )
    return ok("clock", "plausible" + (", and as other servers have it" if others else ""))
