"""Known faults, planted one at a time in a copy of the package: the short part of the suite must catch each.

``python -m tests.robustness.mutants`` plants all of them, or those whose names are given. A fault whose place is not
found in the source any more is an error: then the code has changed and the fault has to be written anew.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from attrs import frozen

ROOT = Path(__file__).parents[2]
PACKAGE = "hermes_trio"
LIMIT = 600.0  # seconds; a fault that makes the suite hang is caught too


@frozen
class Mutant:
    """One fault: a text of one file, replaced by another."""

    name: str
    path: str
    old: str
    new: str
    test: str = "test_cuts.py::test_cuts"  # that must fail


CRASHES = "test_cuts.py::test_crashes"
RACES, PRINCIPALS = "test_races.py", "test_principals.py"

MUTANTS = (
    Mutant(
        "drop the shield around the last save",
        "runs/tracker.py",
        "with trio.CancelScope(shield=True, relative_deadline=self._limits.save):",
        "with trio.CancelScope(relative_deadline=self._limits.save):",
    ),
    Mutant(
        "tell the end before it is saved",
        "runs/tracker.py",
        "            await self._save()\n            self._is_saved = True\n            self._append((self._end,))\n",
        "            self._append((self._end,))\n            await self._save()\n            self._is_saved = True\n",
    ),
    Mutant(
        "take a save that took too long for one that worked",
        "runs/tracker.py",
        '            else:\n                log.error("a run could not be stored", error="the store took too long")\n                break\n',
        "            else:\n                return\n",
    ),
    Mutant(
        "drop what is queued at the end",
        "runs/tracker.py",
        "        events = [*self._unhandled, *drained]\n",
        "        events = [event for event in (*self._unhandled, *drained) if type(event) is Finished]\n",
        f"{RACES}::test_what_waits_at_the_end_is_kept",
    ),
    Mutant(
        "lose what was taken before a mistake",
        "runs/tracker.py",
        "        finally:\n            # Even if one event fails: what the turn took before it must reach the subscribers.\n            self._append_open(changes)\n",
        "        except BaseException:\n            raise\n        self._append_open(changes)\n",
        CRASHES,
    ),
    Mutant(
        "swallow a cancellation",
        "agent/runner.py",
        "        except Exception as error:  # noqa: BLE001 - an agent may raise anything; cancellation passes\n",
        "        except BaseException as error:\n",
    ),
    Mutant(
        "forget to close a call at the end",
        "core/turn.py",
        "        for call in self._calls.still_running():\n",
        "        for call in tuple(self._calls.still_running())[1:]:\n",
    ),
    Mutant(
        "leave questions open at the end",
        "core/turn.py",
        "[*self._approvals.close(at)]\n",
        "[]\n",
    ),
    Mutant(
        "leak a slot when the agent never began",
        "agent/runner.py",
        "        else:\n            self._end_part(_Part.THREAD)\n",
        "",
    ),
    Mutant(
        "leak a slot when the request was cut before its run",
        "web/request.py",
        "        self.on_close(slot.forfeit)\n",
        "",
    ),
    Mutant(
        "leave the session taken",
        "runs/run.py",
        "            if self._spec.turnstile is not None:\n                self._spec.turnstile.release()\n            self._begun",
        "            self._begun",
    ),
    Mutant(
        "do not stop runs when the server drains",
        "runs/registry.py",
        "        for run in tuple(self._live.values()):\n            run.stop(reason)\n",
        "        for run in tuple(self._live.values())[:0]:\n            run.stop(reason)\n",
        "test_cuts.py::test_an_agent_that_never_ends_is_ended",
    ),
    Mutant(
        "do not save an end later that the store refused",
        "runs/tracker.py",
        "        self._callbacks.save_later(self._turn, self._end)\n",
        "",
        CRASHES,
    ),
    Mutant(
        "blame the client for a mistake of ours",
        "runs/run.py",
        "            self.stop(Reason.SERVER_ERROR)\n\n    # -- persistence",
        "            raise\n\n    # -- persistence",
        CRASHES,
    ),
    Mutant(
        "resume one event too late",
        "core/dialects/responses.py",
        "        number = self._number\n        self._number += 1\n        if number <= self._after:\n            return b\"\"\n        return named_frame",
        "        number = self._number\n        self._number += 1\n        if number <= self._after + 1 * (self._after > 0):\n            return b\"\"\n        return named_frame",
        RACES,
    ),
    Mutant(
        "let two requests with one key both run",
        "web/start_run.py",
        "    if first.run_id != claim.run_id:\n",
        "    if first.run_id != claim.run_id and first.fingerprint != claim.fingerprint:\n",
        RACES,
    ),
    Mutant(
        "settle a question twice",
        "runs/approvals.py",
        "        if all(question.approval_id != approval_id for question in self._floor.waiting()):\n            return False\n",
        "",
        f"{RACES}::test_time_is_up_while_an_answer_is_remembered",
    ),
    Mutant(
        "hand the live run of one principal to another",
        "runs/registry.py",
        "        return self._live.get((principal, run_id))\n",
        "        return next((run for (_, name), run in self._live.items() if name == run_id), None)\n",
        PRINCIPALS,
    ),
    Mutant(
        "hand the record of one principal to another",
        "web/api/runs.py",
        "        return LiveRun(run.header)\n    found = await app_state().services.store.find_run(principal(), run_id)\n",
        "        return LiveRun(run.header)\n    found = await app_state().services.store.find_run(\"ann\", run_id)\n",
        PRINCIPALS,
    ),
    Mutant(
        "repeat secrets in errors",
        "web/errors.py",
        "    param = error.param if error.param is None else redact(error.param)\n",
        "    param = error.param\n",
        "test_bad_input.py",
    ),
    Mutant(
        "let what is pending overtake what is in the channel",
        "agent/event_queue.py",
        "        return batch + pending\n",
        "        return pending + batch\n",
        f"{RACES}::test_what_waits_at_the_end_is_kept",
    ),
    Mutant(
        "write through to a reader that was woken",
        "runs/log.py",
        "        self._is_waiting = False  # it is scheduled to run: what comes now has to queue behind this\n",
        "",
        "../runs/test_pipeline.py",
    ),
)  # fmt: skip


class NotFound(Exception):
    """The place of a fault is not in the source."""


def mutated(mutant: Mutant) -> str:
    """The source with the fault in it.

    Raises:
        NotFound: its place is not there, or more than once.
    """
    source = (ROOT / PACKAGE / mutant.path).read_text("utf-8")
    if source.count(mutant.old) != 1:
        raise NotFound(f"{mutant.name}: found {source.count(mutant.old)} times in {mutant.path}")
    return source.replace(mutant.old, mutant.new)


def plant(mutant: Mutant, home: Path) -> None:
    """Copy the package with one fault in it.

    Raises:
        NotFound: its place is not there, or more than once.
    """
    shutil.copytree(ROOT / PACKAGE, home / PACKAGE, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "tests", home / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", home)
    (home / PACKAGE / mutant.path).write_text(mutated(mutant), "utf-8")


def is_caught(mutant: Mutant) -> bool:
    """Whether the test that should fail does."""
    with tempfile.TemporaryDirectory() as place:
        home = Path(place)
        plant(mutant, home)
        test = f"tests/robustness/{mutant.test}"
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", test]
        environ = {**os.environ, "PYTHONPATH": str(home), "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            done = subprocess.run(
                command, cwd=home, env=environ, capture_output=True, timeout=LIMIT, check=False
            )
        except subprocess.TimeoutExpired:
            return True
        if done.returncode not in {0, 1}:  # neither passed nor failed: the fault broke the suite itself
            raise RuntimeError(done.stdout.decode() + done.stderr.decode())
        return done.returncode == 1


def main(names: Sequence[str]) -> int:
    """Plant them all; returns how many were not caught."""
    missed = 0
    for mutant in MUTANTS:
        if names and mutant.name not in names:
            continue
        began = time.monotonic()
        caught = is_caught(mutant)
        missed += not caught
        word = "caught" if caught else "MISSED"
        print(f"{word}  {time.monotonic() - began:6.1f} s  {mutant.name}", flush=True)  # noqa: T201
    return missed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
