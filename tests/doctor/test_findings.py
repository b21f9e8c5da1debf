"""What the doctor says about each fact."""

from __future__ import annotations

import json

import pytest

from hermes_trio.doctor import findings as f
from hermes_trio.doctor.findings import Finding, Level
from hermes_trio.doctor.report import as_json, lines

OK, WARN, FAIL = Level.OK, Level.WARN, Level.FAIL
ASKED = f.Upstream("", "http://a/v1", "m", has_key=True)
NOW = 1_800_000_000.0
NEEDED = f.Package("x", "y", "pip install x", is_needed=True)
OPTIONAL = f.Package("x", "y", "pip install x")

CASES: list[tuple[Finding, Level, str]] = [
    (f.port("p", f.PortFree()), OK, "free"),
    (f.port("p", f.PortOurs("1.2")), OK, "version 1.2"),
    (f.port("p", f.PortTaken("nginx (pid 7)")), FAIL, "nginx"),
    (f.port("p", f.PortTaken()), FAIL, "another program"),
    (f.port("p", f.PortUnusable("no such host")), FAIL, "no such host"),
    (f.models(["a", "b"]), OK, "a, b"),
    (f.models([*"abcdefg"]), OK, "a, b, c, d, e and 2 more"),
    (f.models([]), WARN, "no model"),
    (f.models_refused("status 401"), WARN, "401"),
    (f.key(f.KeyFound("the settings", 1, 43, 30)), OK, "1 key from the settings, strong"),
    (f.key(f.KeyFound("the settings", 2, 16, 16)), WARN, "2 keys"),
    (f.key(f.KeyFound("the settings", 1, 60, 2)), WARN, "guessed"),
    (f.key(f.KeyToCome("/x")), OK, "/x"),
    (f.key(f.KeyUnusable("chmod 600")), FAIL, "chmod"),
    (f.folder("/d", f.FolderThere(True)), OK, "can be written"),
    (f.folder("/d", f.FolderThere(False)), FAIL, "cannot be written"),
    (f.folder("/d", f.FolderThere(True, False)), WARN, "other users"),
    (f.folder("/d", f.FolderToCome(True)), OK, "not there yet"),
    (f.folder("/d", f.FolderToCome(False)), FAIL, "cannot be made"),
    (f.folder("/d", f.NoFolder("is not a folder")), FAIL, "not a folder"),
    (f.disk(50 * 2**30), OK, "50.0 GiB"),
    (f.disk(500 * 2**20), WARN, "500 MiB"),
    (f.disk(5 * 2**20), FAIL, "5 MiB"),
    (f.sqlite((3, 51, 3)), OK, "3.51.3"),
    (f.sqlite((3, 40, 1)), OK, "one server for one data folder"),
    (f.sqlite((3, 9, 0)), FAIL, "too old"),
    (f.store(f.StoreInMemory()), OK, "in memory"),
    (f.store(f.StoreToCome("/s")), OK, "not there yet"),
    (f.store(f.StoreThere("/s", 3, 3, False)), OK, "schema version 3"),
    (f.store(f.StoreThere("/s", 2, 3, True)), OK, "brings it to 3, in use"),
    (f.store(f.StoreThere("/s", 4, 3, False)), FAIL, "knows only up to 3"),
    (f.store(f.StoreUnusable("damaged")), FAIL, "damaged"),
    (f.upstream(ASKED, f.Silent("refused")), FAIL, "refused"),
    (f.upstream(ASKED, f.Answers(401)), FAIL, "does not take the key"),
    (f.upstream(f.Upstream("p", "http://a", "", False), f.Answers(403)), FAIL, "wants a key"),
    (f.upstream(ASKED, f.Answers(404)), WARN, "status 404"),
    (f.upstream(ASKED, f.Offers(("x",))), WARN, "does not list the model m"),
    (f.upstream(ASKED, f.Offers(("m",))), OK, "with m"),
    (f.upstream(ASKED, f.Offers(())), OK, "no model listed"),
    (f.no_upstream([]), OK, "none"),
    (f.no_upstream(["agent"]), FAIL, "agent"),
    (f.package(OPTIONAL, ""), OK, "there, for y"),
    (f.package(OPTIONAL, "not installed"), OK, "only needed"),
    (f.package(NEEDED, "not installed"), FAIL, "needed for y"),
    (f.clock(NOW, []), OK, "plausible"),
    (f.clock(NOW, [NOW + 1]), OK, "as other servers"),
    (f.clock(NOW, [NOW, NOW - 500]), WARN, "500 s"),
    (f.clock(0.0, []), FAIL, "wrong by years"),
    (f.too_slow("disk", 5), FAIL, "within 5 s"),
    (f.broken("disk", "gone"), FAIL, "gone"),
]


@pytest.mark.parametrize(("finding", "level", "says"), CASES)
def test_what_is_said(finding: Finding, level: Level, says: str) -> None:
    assert finding.level is level
    assert says in finding.says
    assert bool(finding.advice) == (level is not OK)


def test_only_a_failure_is_one_for_scripts() -> None:
    assert f.exit_code([f.ok("a", "x"), f.warn("b", "y", "z")]) == 0
    assert f.exit_code([f.ok("a", "x"), f.fail("b", "y", "z")]) == 1


def test_the_report() -> None:
    found = [f.ok("a", "fine"), f.warn("longer", "hm", "do this")]
    assert [*lines(found)] == [
        "ok    a       fine",
        "warn  longer  hm",
        "              -> do this",
        "1 ok, 1 warn",
    ]
    told = json.loads(as_json(found))
    assert told["status"] == "warn"
    assert told["findings"][0] == {"check": "a", "level": "ok", "says": "fine", "advice": ""}
