"""The principals and what they store, for administrators."""

from __future__ import annotations

from collections import Counter

from attrs import asdict
from quart import Blueprint, Response

from hermes_trio.schema.replies import PrincipalList, PrincipalUsage
from hermes_trio.web.auth import require_admin
from hermes_trio.web.errors import json_response
from hermes_trio.web.request import app_state

blueprint = Blueprint("principals", __name__, url_prefix="/api/principals")


@blueprint.get("")
async def list_principals() -> Response:
    """List the principals that store anything, whichever profiles they use, in alphabetical order."""
    require_admin()
    runs: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for usage in await app_state().services.store.list_usages():
        name = usage.principal.partition("/")[0]  # without the profile of a prefix
        runs[name] += usage.runs
        sizes[name] += usage.size
    shown = [PrincipalUsage(name, runs[name], sizes[name]) for name in sorted(sizes)]
    return json_response(asdict(PrincipalList(shown)))
