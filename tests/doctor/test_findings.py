"""The finding for each fact, and the report."""

from __future__ import annotations

import json

import pytest

from hermes_trio.doctor import findings as f
from hermes_trio.doctor import local, remote
from hermes_trio.doctor.findings import Finding, Level, format_json, format_text

OK, WARN, FAIL = Level.OK, Level.WARN, Level.FAIL
ASKED = remote.Upstream("", "http://a/v1", "m", has_key=True)
NOW = 1_800_000_000.0
NEEDED = local.OptionalPackage("x", "y", "pip install x", is_needed=True)
OPTIONAL = local.OptionalPackage("x", "y", "pip install x")

CASES: list[tuple[Finding, Level, str]] = [
    (remote.assess_port("p", remote.PortFree()), OK, "free"),
    (remote.assess_port("p", remote.PortOurs("1.2")), OK, "version 1.2"),
    (remote.assess_port("p", remote.PortTaken("nginx (pid 7)")), FAIL, "nginx"),
    (remote.assess_port("p", remote.PortTaken()), FAIL, "another program"),
    (remote.assess_port("p", remote.PortUnusable("no such host")), FAIL, "no such host"),
    (remote.assess_models(["a", "b"]), OK, "a, b"),
    (remote.assess_models([*"abcdefg"]), OK, "a, b, c, d, e and 2 more"),
    (remote.assess_models([]), WARN, "no model"),
    (remote.assess_models_refused("status 401"), WARN, "401"),
    (
        local.assess_key(local.KeyFound("the settings", 1, ())),
        OK,
        "1 key from the settings, strong",
    ),
    (local.assess_key(local.KeyFound("the settings", 2, ("ann", "bob"))), WARN, "2 keys"),
    (local.assess_key(local.KeyFound("the settings", 2, ("bob",))), WARN, "guess: that of bob"),
    (local.assess_key(local.KeyPending("/x")), OK, "/x"),
    (local.assess_key(local.KeyUnusable("chmod 600")), FAIL, "chmod"),
    (local.assess_directory("/d", local.DirectoryExists(True)), OK, "is writable"),
    (local.assess_directory("/d", local.DirectoryExists(False)), FAIL, "not writable"),
    (local.assess_directory("/d", local.DirectoryExists(True, False)), WARN, "other users"),
    (local.assess_directory("/d", local.DirectoryMissing(True)), OK, "does not exist yet"),
    (local.assess_directory("/d", local.DirectoryMissing(False)), FAIL, "cannot be created"),
    (
        local.assess_directory("/d", local.DirectoryUnusable("is not a directory")),
        FAIL,
        "not a directory",
    ),
    (local.assess_disk(50 * 2**30), OK, "50.0 GiB"),
    (local.assess_disk(500 * 2**20), WARN, "500 MiB"),
    (local.assess_disk(5 * 2**20), FAIL, "5 MiB"),
    (local.assess_sqlite((3, 51, 3)), OK, "3.51.3"),
    (local.assess_sqlite((3, 40, 1)), OK, "one server per data folder"),
    (local.assess_sqlite((3, 9, 0)), FAIL, "too old"),
    (local.assess_store(local.StoreInMemory()), OK, "in memory"),
    (local.assess_store(local.StoreMissing("/s")), OK, "does not exist yet"),
    (local.assess_store(local.StoreReadable("/s", 3, 3, False)), OK, "schema version 3"),
    (local.assess_store(local.StoreReadable("/s", 2, 3, True)), OK, "migrates it to 3, in use"),
    (local.assess_store(local.StoreReadable("/s", 4, 3, False)), FAIL, "supports only up to 3"),
    (local.assess_store(local.StoreUnusable("damaged")), FAIL, "damaged"),
    (remote.assess_upstream(ASKED, remote.UpstreamUnreachable("refused")), FAIL, "refused"),
    (remote.assess_upstream(ASKED, remote.UnexpectedStatus(401)), FAIL, "does not accept the key"),
    (
        remote.assess_upstream(
            remote.Upstream("p", "http://a", "", False), remote.UnexpectedStatus(403)
        ),
        FAIL,
        "requires a key",
    ),
    (remote.assess_upstream(ASKED, remote.UnexpectedStatus(404)), WARN, "status 404"),
    (remote.assess_upstream(ASKED, remote.ModelsListed(("x",))), WARN, "does not list the model m"),
    (remote.assess_upstream(ASKED, remote.ModelsListed(("m",))), OK, "with m"),
    (remote.assess_upstream(ASKED, remote.ModelsListed(())), OK, "no model listed"),
    (remote.assess_no_upstream([]), OK, "none"),
    (remote.assess_no_upstream(["agent"]), FAIL, "agent"),
    (local.assess_package(OPTIONAL, ""), OK, "installed, for y"),
    (local.assess_package(OPTIONAL, "not installed"), OK, "only needed"),
    (local.assess_package(NEEDED, "not installed"), FAIL, "needed for y"),
    (local.assess_clock(NOW, []), OK, "plausible"),
    (local.assess_clock(NOW, [NOW + 1]), OK, "in agreement with other servers"),
    (local.assess_clock(NOW, [NOW, NOW - 500]), WARN, "500 s"),
    (local.assess_clock(0.0, []), FAIL, "wrong by years"),
    (f.timed_out("disk", 5), FAIL, "within 5 s"),
    (f.not_checked("disk", "gone"), FAIL, "gone"),
]


@pytest.mark.parametrize(("finding", "level", "says"), CASES)
def test_what_is_said(finding: Finding, level: Level, says: str) -> None:
    assert finding.level is level
    assert says in finding.message
    assert bool(finding.advice) == (level is not OK)


def test_only_a_failure_sets_the_exit_code() -> None:
    assert f.exit_code([f.ok("a", "x"), f.warn("b", "y", "z")]) == 0
    assert f.exit_code([f.ok("a", "x"), f.fail("b", "y", "z")]) == 1


def test_the_report() -> None:
    found = [f.ok("a", "fine"), f.warn("longer", "hm", "do this")]
    assert [*format_text(found)] == [
        "ok    a       fine",
        "warn  longer  hm",
        "              -> do this",
        "1 ok, 1 warn",
    ]
    told = json.loads(format_json(found))
    assert told["status"] == "warn"
    assert told["findings"][0] == {"check": "a", "level": "ok", "says": "fine", "advice": ""}
