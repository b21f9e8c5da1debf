"""From a request in the form of the Responses API to the turn of an agent and the header of its run."""

from __future__ import annotations

from hermes_trio.agent.contract import TurnRequest
from hermes_trio.core.changes import Change
from hermes_trio.core.record import RunHeader
from hermes_trio.core.stamp import Stamp
from hermes_trio.runs.replay import load_changes
from hermes_trio.schema.input_items import with_ids
from hermes_trio.schema.responses import ResponsesRequest
from hermes_trio.web.asked import asker, principal
from hermes_trio.web.options import Site
from hermes_trio.web.past import Past
from hermes_trio.web.profiles import choose
from hermes_trio.web.sessions import SessionNames


def turn_of(site: Site, asked: ResponsesRequest, past: Past, names: SessionNames, run_id: str) -> TurnRequest:
    """What the agent is asked, after all that was said before."""
    chosen = choose(site, asked.model)
    return TurnRequest(
        run_id=run_id,
        session_id=past.session_id,
        message=asked.message,
        history=past.messages,
        instructions=past.instructions,
        model=chosen.model,
        session_key=names.key,
        principal=asker(),
        profile=chosen.profile,
        options=asked.options,
    )


def header_of(site: Site, kind: str, asked: ResponsesRequest, turn: TurnRequest, parent: str) -> RunHeader:
    """What the run's streams and its record repeat."""
    return RunHeader(
        principal=principal(),
        stamp=Stamp(turn.run_id, site.services.wall_clock(), turn.model),
        kind=kind,
        session_id=turn.session_id,
        messages=(*asked.explicit_history, *asked.messages),
        parent=parent,
        conversation=asked.conversation,
        instructions=turn.instructions,
        background=asked.background,
        request=asked.echo,
        input_items=with_ids(turn.run_id, asked.input_items),
    )


async def logged(site: Site, run_id: str) -> list[Change]:
    """All changes that the store has of a run."""
    changes: list[Change] = []
    while more := await load_changes(site.services.store, principal(), run_id, len(changes)):
        changes += more
    return changes
