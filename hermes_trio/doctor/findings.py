"""What the doctor says about what was found: pure functions from facts to findings. No secret is ever part of a fact."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from shlex import quote

from attrs import frozen

_FREE_FAIL = 100 * 2**20
_FREE_WARN = 2**30
_OLDEST_SQLITE = (3, 35, 0)
_SAFE_SQLITE = (3, 51, 3)
_STRONG_CHARACTERS = 24
_STRONG_VARIETY = 10
_EARLIEST = 1_767_225_600.0  # 2026-01-01: this program is younger
_LATEST = 4_102_444_800.0  # 2100-01-01
_SKEW_SECONDS = 120.0
_LISTED = 5


class Level(StrEnum):
    """How bad it is."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@frozen
class Finding:
    """One line of the doctor."""

    check: str
    level: Level
    says: str
    advice: str = ""


def ok(check: str, says: str) -> Finding:
    """All is well."""
    return Finding(check, Level.OK, says)


def warn(check: str, says: str, advice: str) -> Finding:
    """It works, but not as it should."""
    return Finding(check, Level.WARN, says, advice)


def fail(check: str, says: str, advice: str) -> Finding:
    """It cannot work."""
    return Finding(check, Level.FAIL, says, advice)


def too_slow(check: str, seconds: float) -> Finding:
    """A check that did not end in time."""
    return fail(
        check, f"no result within {seconds:g} s", "see what keeps it: a dead disk, network or name server?"
    )


def broken(check: str, why: str) -> Finding:
    """A check that could not be made."""
    return fail(check, f"cannot be looked at: {why}", "see what is in the way")


def exit_code(findings: Iterable[Finding]) -> int:
    """1 if anything cannot work."""
    return int(any(finding.level is Level.FAIL for finding in findings))


# -- the port --


@frozen
class PortFree:
    """Nobody listens there, and we could."""


@frozen
class PortOurs:
    """A server of ours listens there."""

    version: str


@frozen
class PortTaken:
    """Somebody else does."""

    by: str = ""  # a process, if it can be seen


@frozen
class PortUnusable:
    """Nobody can, as it is."""

    why: str


def port(place: str, fact: PortFree | PortOurs | PortTaken | PortUnusable) -> Finding:
    """Whether a server can listen."""
    match fact:
        case PortFree():
            return ok("port", f"{place} is free")
        case PortOurs(version):
            return ok("port", f"a hermes-trio server (version {version}) listens on {place}")
        case PortTaken(by):
            whom = by or "another program"
            return fail("port", f"{place} is taken by {whom}", "end it, or use another --port")
        case PortUnusable(why):
            return fail("port", why, "use another --host or --port")


def models(names: Sequence[str]) -> Finding:
    """What the server that runs serves."""
    if not names:
        return warn("models", "the server offers no model to this key", "see the keys of the profiles")
    return ok("models", f"the server offers {_listed(names)}")


def models_refused(why: str) -> Finding:
    """The server that runs does not take the key that these settings lead to."""
    return warn(
        "models",
        f"the server that runs does not tell its models: {why}",
        "run the doctor with the settings of that server, or restart it",
    )


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


# -- the model's server --


@frozen
class Upstream:
    """A server that an agent needs."""

    label: str  # "" or the name of a profile
    url: str
    model: str
    has_key: bool

    @property
    def check(self) -> str:
        """The name of the check."""
        return f"upstream of {self.label}" if self.label else "upstream"


@frozen
class Offers:
    """It answered with a list."""

    names: tuple[str, ...]


@frozen
class Answers:
    """It answered with something else."""

    status: int


@frozen
class Silent:
    """It did not answer."""

    why: str


def upstream(asked: Upstream, fact: Offers | Answers | Silent) -> Finding:
    """Whether an agent can reach its model."""
    match fact:
        case Silent(why):
            return fail(
                asked.check, f"{asked.url} cannot be reached: {why}", "start that server, or correct base_url"
            )
        case Answers(401 | 403):
            has = "does not take the key" if asked.has_key else "wants a key"
            return fail(
                asked.check,
                f"{asked.url} {has}",
                "set upstream_api_key (OPENAI_API_KEY), or api_key of the profile",
            )
        case Answers(status):
            says = f"{asked.url} answers /models with status {status}"
            return warn(
                asked.check, says, "it may work all the same; most servers want /v1 at the end of base_url"
            )
        case Offers(names) if asked.model and names and asked.model not in names:
            says = f"{asked.url} does not list the model {asked.model}; it has {_listed(names)}"
            return warn(asked.check, says, "correct upstream_model, or model of the profile")
        case Offers(names):
            return ok(asked.check, f"{asked.url} answers, with {_listed(names)}")


def no_upstream(wanting: Sequence[str]) -> Finding:
    """There is none; some agents may want one."""
    if wanting:
        says = f"no base_url, but there is an agent that needs one: {_listed(wanting)}"
        return fail("upstream", says, "set base_url (OPENAI_BASE_URL), or use another --agent")
    return ok("upstream", "none is configured, and the agents need none")


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


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_LISTED])
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f"{shown}{more}" if names else "no model listed"
