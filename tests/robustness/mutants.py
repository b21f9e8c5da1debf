"""Known faults, planted one at a time in a copy of the package.

The short version of the suite must catch each.

``python -m tests.robustness.mutants`` plants all of them, or the named ones. If the source that a fault
replaces no longer exists, the code has changed: update the fault.
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
GUARDS, WRITES, READING, PROTOCOLS, HTTP2 = (
    f"../server/test_{name}.py"
    for name in ("guards", "guards_writes", "reading", "guards_protocols", "http2")
)
BODIES = "../web/test_bodies.py"
SHARES, RUN_SHARES = "../web/test_shares.py", "../runs/test_shares.py"
TICKETS, PAGE_SESSION = "../web/test_tickets.py", "../web/test_page_session.py"
FRONT_ENDS, REPLIES = "../web/test_front_ends.py", "../web/test_approval_replies.py"
CONTINUATIONS, LOGGED = "../web/test_continuations.py", "../web/test_chat_logged.py"
WRITE_THROUGH, UNDER_HYPERCORN = "../server/test_write_through.py", "../e2e/test_hypercorn.py"

MUTANTS = (
    Mutant(
        "let one principal take all slots",
        "runs/admission.py",
        "if not held or not self.limit or self.principals < 2:",
        "if True:",
        SHARES,
    ),
    Mutant(
        "keep no slot for principals that have none",
        "runs/admission.py",
        "left = self.limit - self.in_use - (count - 1) - min(idle, self.limit // 2)",
        "left = self.limit - self.in_use - (count - 1)",
        RUN_SHARES,
    ),
    Mutant(
        "receive large bodies without room for them",
        "web/request.py",
        "        if self.is_free:\n            return message\n",
        "        if self._max_bytes:\n            return message\n",
        BODIES,
    ),
    Mutant(
        "keep the room of a body until its request ends",
        "web/request.py",
        "    finally:\n        current_request().upload.release()\n",
        "    finally:\n        pass\n",
        BODIES,
    ),
    Mutant(
        "count no open requests",
        "web/auth.py",
        "        context.release_on_close(slot)\n",
        "        slot.release()\n",
        SHARES,
    ),
    Mutant(
        "drop the shield around the last save",
        "runs/tracker.py",
        "with trio.CancelScope(shield=True, relative_deadline=self._limits.save):",
        "with trio.CancelScope(relative_deadline=self._limits.save):",
    ),
    Mutant(
        "tell the end before it is saved",
        "runs/tracker.py",
        "            may_announce = await self._save()\n            self._is_saved = True\n            if may_announce:\n                self._append((self._end,))\n",
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
        "        self.on_close(slot.release_unused)\n",
        "",
    ),
    Mutant(
        "leave the session taken",
        "runs/run.py",
        "            if self._spec.session_lock is not None:\n                self._spec.session_lock.release()\n            self._begun",
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
        "        return self._callbacks.save_later(self._turn, self._end)\n",
        "        return True\n",
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
        "remember an approval for a derived session",
        "runs/approvals.py",
        'self._session_id = "" if is_derived(header.session_id) else header.session_id',
        "self._session_id = header.session_id",
        FRONT_ENDS,
    ),
    Mutant(
        "give two users of a front end one session",
        "schema/front_ends.py",
        "_digest(front_end, end_user, chat)",
        "_digest(front_end, chat)",
        FRONT_ENDS,
    ),
    Mutant(
        "grant to every user of a front end what one was granted",
        "stores/sql/sessions.py",
        "WHERE principal = ? AND end_user = ? AND",
        "WHERE principal = ? AND ? <> '' AND",
        FRONT_ENDS,
    ),
    Mutant(
        "store the background tasks of a front end",
        "web/start_run.py",
        "persistence=Persistence.NONE, is_task=True",
        "is_task=True",
        FRONT_ENDS,
    ),
    Mutant(
        "let any user of a session answer a question",
        "web/chat_questions.py",
        "(run.end_user, run.header.stamp.model) == (asked.end_user, model)",
        "run.header.stamp.model == model",
        REPLIES,
    ),
    Mutant(
        "end a run that waits for the reply to its question",
        "runs/run.py",
        "            await self._approvals.wait_resolved(question.approval_id)\n",
        "            await trio.lowlevel.checkpoint()\n",
        REPLIES,
    ),
    Mutant(
        "run the start of an answer as the user's words",
        "schema/chat.py",
        '    is_question = new[-1].role == "user"\n',
        '    is_question = new[-1].role != "tool"\n',
        CONTINUATIONS,
    ),
    Mutant(
        "leave a turn in progress that was never started",
        "web/start_run.py",
        "        current_request().on_close(owned.abandon)\n",
        "",
        LOGGED,
    ),
    Mutant(
        "answer an approval request twice",
        "runs/approvals.py",
        "        if all(question.approval_id != approval_id for question in self._context.pending()):\n            return False\n",
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
        "    param = error.param if error.param is None else redact_message(error.param)\n",
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
        "write through to a reader that takes something else",
        "runs/log.py",
        "        self._is_waiting = self.position == self._sent\n",
        "        self._is_waiting = True\n",
        "../runs/test_pipeline.py",
    ),
    Mutant(
        "write through to a reader that was woken",
        "runs/log.py",
        "        # has to queue behind this.\n        self._is_waiting = False\n",
        "",
        "../runs/test_pipeline.py",
    ),
    Mutant(
        "let an exception of a connection reach the server",
        "server/guards/connection.py",
        "    except* (Exception, GeneratorExit) as group:",
        "    except* GeneratorExit as group:",
        f"{GUARDS}::test_the_guard_holds_without_our_protocols",
    ),
    Mutant(
        "write without a deadline",
        "server/guards/stream.py",
        "                deadline = min(self._write_deadline(), self._write_limit)\n",
        "                deadline = math.inf\n",
        f"{WRITES}::test_a_stalled_reader_is_dropped_at_the_deadline",
    ),
    Mutant(
        "do not shorten a write under way at a shutdown",
        "server/guards/connection.py",
        "        for connection in self.connections:\n            connection.limit_write(deadline)\n",
        "",
        f"{WRITES}::test_a_stalled_reader_does_not_hold_our_shutdown",
    ),
    Mutant(
        "let a cancelled writer lose what the protocol counts as sent",
        "server/guards/connection.py",
        "        self.send_lock = WriteLock()  # type: ignore[assignment]  # used as a context manager only\n",
        "        pass\n",
        f"{HTTP2}::test_a_cancelled_head_does_not_break_the_connection",
    ),
    Mutant(
        "recycle no connection whose application cancels itself",
        "server/guards/http1.py",
        "            with finishing():\n                await super().stream_send(event)\n",
        "            await super().stream_send(event)\n",
        WRITES,
    ),
    Mutant(
        "keep the tasks of an idle connection whose client has left",
        "server/guards/stream.py",
        '            self._scope.cancel(reason="the connection is closed")\n',
        "            pass\n",
        "../e2e/test_leaks.py::test_an_idle_connection_is_closed_with_its_client",
    ),
    Mutant(
        "do not watch a client while the protocol is paused",
        "server/guards/http1.py",
        "            nursery.start_soon(self._watch_client)\n",
        "",
        READING,
    ),
    Mutant(
        "take bytes behind the last request for an error",
        "server/guards/http1.py",
        "        return h11.NEED_DATA if self.their_state is h11.MUST_CLOSE else super().next_event()\n",
        "        return super().next_event()\n",
        f"{READING}::test_bytes_behind_the_last_request_are_ignored",
    ),
    Mutant(
        "close while the client is still sending",
        "server/guards/stream.py",
        "            if not self._lingers:\n",
        "            if True:\n",
        f"{PROTOCOLS}::test_who_sends_too_much_can_read_why",
    ),
    Mutant(
        "leave the upload of an application that does not receive",
        "server/guards/middleware.py",
        "            self._nursery.start_soon(self._discard)\n",
        "",
        HTTP2,
    ),
    Mutant(
        "wake a producer though nothing was sent",
        "server/guards/http2.py",
        "        if len(self.buffer) < BUFFER_LOW_WATER:\n",
        "        if len(data) < BUFFER_LOW_WATER:\n",
        f"{PROTOCOLS}::test_a_client_without_window_blocks_the_producer",
    ),
    Mutant(
        "write every frame by itself",
        "server/guards/http2.py",
        "            while framed < WRITE_BYTES:\n",
        "            while not framed:\n",
        f"{HTTP2}::test_the_parts_of_many_streams_are_written_together",
    ),
    Mutant(
        "lose the end of a stream at a shutdown",
        "server/guards/http2.py",
        "            await self._closed.wait()\n",
        "            await super().drain()\n",
        f"{HTTP2}::test_the_end_of_a_stream_is_awaited_until_it_is_sent",
    ),
    Mutant(
        "leave a stream open whose application failed",
        "server/guards/http2.py",
        "            self.connection.reset_stream(stream_id, h2.errors.ErrorCodes.INTERNAL_ERROR)\n",
        "            pass\n",
        f"{PROTOCOLS}::test_a_response_that_stops_half_way_is_reset",
    ),
    Mutant(
        "never time out a connection whose streams were reset",
        "server/guards/http2.py",
        "            await buffer.close()\n        await self.send(Updated(idle=self.idle))\n",
        "            await buffer.close()\n",
        f"{PROTOCOLS}::test_a_connection_whose_streams_were_reset_is_cut",
    ),
    Mutant(
        "send a chunk twice after a partial write",
        "server/guards/stream.py",
        "        return partial.sent\n",
        "        return 0\n",
        f"{WRITE_THROUGH}::test_a_partial_write_loses_and_repeats_nothing",
    ),
    Mutant(
        "write through while an ordinary send is in progress",
        "server/guards/middleware.py",
        "        if not self._is_chunked or self._sends:\n",
        "        if not self._is_chunked:\n",
        f"{WRITE_THROUGH}::test_an_ordinary_send_in_progress_is_not_overtaken",
    ),
    Mutant(
        "let Hypercorn cut the streams at a shutdown",
        "server/lifespan.py",
        "partial(prepare, settings), self._end_runs_on_termination)",
        "partial(prepare, settings))",
        f"{UNDER_HYPERCORN}::test_a_shutdown_ends_every_stream_in_order",
    ),
    Mutant(
        "let a ticket open every run of its principal",
        "tokens.py",
        "name, str(expires_at), *scope\n",
        "name, str(expires_at)\n",
        f"{TICKETS}::test_a_ticket_for_another_run",
    ),
    Mutant(
        "let a ticket be valid forever",
        "tokens.py",
        "        if now >= expires_at:\n",
        "        if expires_at == 0:\n",
        f"{TICKETS}::test_an_expired_ticket_is_a_401_which_stops_a_browser",
    ),
    Mutant(
        "accept a ticket with any method",
        "web/auth.py",
        '    return is_stream and request.method == "GET"\n',
        "    return is_stream\n",
        f"{TICKETS}::test_a_ticket_is_for_get_only",
    ),
    Mutant(
        "accept the page's cookie from other pages",
        "web/auth.py",
        "    _require_same_origin()\n    return principal\n",
        "    return principal\n",
        f"{PAGE_SESSION}::test_other_pages_cannot_change_anything_with_the_cookie",
    ),
    Mutant(
        "let the page's cookie prolong itself",
        "web/auth.py",
        "    if not context.has_key:",
        "    if not context.principal.name:",
        f"{PAGE_SESSION}::test_signing_in_needs_a_key",
    ),
)  # fmt: skip


class NotFound(Exception):
    """The source that a fault replaces was not found."""


def mutated(mutant: Mutant) -> str:
    """Return the source with the fault in it.

    Raises:
        NotFound: the replaced text does not occur exactly once.
    """
    source = (ROOT / PACKAGE / mutant.path).read_text("utf-8")
    if source.count(mutant.old) != 1:
        raise NotFound(f"{mutant.name}: found {source.count(mutant.old)} times in {mutant.path}")
    return source.replace(mutant.old, mutant.new)


def plant(mutant: Mutant, home: Path) -> None:
    """Copy the package with one fault in it.

    Raises:
        NotFound: the replaced text does not occur exactly once.
    """
    shutil.copytree(ROOT / PACKAGE, home / PACKAGE, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "tests", home / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", home)
    (home / PACKAGE / mutant.path).write_text(mutated(mutant), "utf-8")


def is_caught(mutant: Mutant) -> bool:
    """Return whether the expected test fails."""
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
        if done.returncode not in {
            0,
            1,
        }:  # neither passed nor failed: the fault broke the suite itself
            raise RuntimeError(done.stdout.decode() + done.stderr.decode())
        return done.returncode == 1


def main(names: Sequence[str]) -> int:
    """Plant all faults; return the number that was not caught."""
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
