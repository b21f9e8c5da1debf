"""What the doctor says about each fact."""

from __future__ import annotations

import json

import pytest

from hermes_trio.doctor import findings as f
from hermes_trio.doctor import findings_local as h
from hermes_trio.doctor import findings_remote as r
from hermes_trio.doctor.findings import Finding, Level
from hermes_trio.doctor.report import as_json, lines

OK, WARN, FAIL = Level.OK, Level.WARN, Level.FAIL
ASKED = r.Upstream("", "http://a/v1", "m", has_key=True)
NOW = 1_800_000_000.0
NEEDED = h.Package("x", "y", "pip install x", is_needed=True)
OPTIONAL = h.Package("x", "y", "pip install x")

CASES: list[tuple[Finding, Level, str]] = [
    (r.port("p", r.PortFree()), OK, "free"),
    (r.port("p", r.PortOurs("1.2")), OK, "version 1.2"),
    (r.port("p", r.PortTaken("nginx (pid 7)")), FAIL, "nginx"),
    (r.port("p", r.PortTaken()), FAIL, "another program"),
    (r.port("p", r.PortUnusable("no such host")), FAIL, "no such host"),
    (r.models(["a", "b"]), OK, "a, b"),
    (r.models([*"abcdefg"]), OK, "a, b, c, d, e and 2 more"),
    (r.models([]), WARN, "no model"),
    (r.models_refused("status 401"), WARN, "401"),
    (h.key(h.KeyFound("the settings", 1, 43, 30)), OK, "1 key from the settings, strong"),
    (h.key(h.KeyFound("the settings", 2, 16, 16)), WARN, "2 keys"),
    (h.key(h.KeyFound("the settings", 1, 60, 2)), WARN, "guessed"),
    (h.key(h.KeyToCome("/x")), OK, "/x"),
    (h.key(h.KeyUnusable("chmod 600")), FAIL, "chmod"),
    (h.folder("/d", h.FolderThere(True)), OK, "can be written"),
    (h.folder("/d", h.FolderThere(False)), FAIL, "cannot be written"),
    (h.folder("/d", h.FolderThere(True, False)), WARN, "other users"),
    (h.folder("/d", h.FolderToCome(True)), OK, "not there yet"),
    (h.folder("/d", h.FolderToCome(False)), FAIL, "cannot be made"),
    (h.folder("/d", h.NoFolder("is not a folder")), FAIL, "not a folder"),
    (h.disk(50 * 2**30), OK, "50.0 GiB"),
    (h.disk(500 * 2**20), WARN, "500 MiB"),
    (h.disk(5 * 2**20), FAIL, "5 MiB"),
    (h.sqlite((3, 51, 3)), OK, "3.51.3"),
    (h.sqlite((3, 40, 1)), OK, "one server for one data folder"),
    (h.sqlite((3, 9, 0)), FAIL, "too old"),
    (h.store(h.StoreInMemory()), OK, "in memory"),
    (h.store(h.StoreToCome("/s")), OK, "not there yet"),
    (h.store(h.StoreThere("/s", 3, 3, False)), OK, "schema version 3"),
    (h.store(h.StoreThere("/s", 2, 3, True)), OK, "brings it to 3, in use"),
    (h.store(h.StoreThere("/s", 4, 3, False)), FAIL, "knows only up to 3"),
    (h.store(h.StoreUnusable("damaged")), FAIL, "damaged"),
    (r.upstream(ASKED, r.Silent("refused")), FAIL, "refused"),
    (r.upstream(ASKED, r.Answers(401)), FAIL, "does not take the key"),
    (r.upstream(r.Upstream("p", "http://a", "", False), r.Answers(403)), FAIL, "wants a key"),
    (r.upstream(ASKED, r.Answers(404)), WARN, "status 404"),
    (r.upstream(ASKED, r.Offers(("x",))), WARN, "does not list the model m"),
    (r.upstream(ASKED, r.Offers(("m",))), OK, "with m"),
    (r.upstream(ASKED, r.Offers(())), OK, "no model listed"),
    (r.no_upstream([]), OK, "none"),
    (r.no_upstream(["agent"]), FAIL, "agent"),
    (h.package(OPTIONAL, ""), OK, "there, for y"),
    (h.package(OPTIONAL, "not installed"), OK, "only needed"),
    (h.package(NEEDED, "not installed"), FAIL, "needed for y"),
    (h.clock(NOW, []), OK, "plausible"),
    (h.clock(NOW, [NOW + 1]), OK, "as other servers"),
    (h.clock(NOW, [NOW, NOW - 500]), WARN, "500 s"),
    (h.clock(0.0, []), FAIL, "wrong by years"),
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
