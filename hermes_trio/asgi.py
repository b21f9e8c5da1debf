"""``hypercorn -k trio hermes_trio.asgi:app``: the same server under Hypercorn's own command line.

Settings come from the environment and the configuration file. If the server cannot start, one line
says why.
"""

from __future__ import annotations

import sys

# Hypercorn imports the module of its worker class before the application, and Quart imports those
# of both kinds.
if "hypercorn.asyncio.run" in sys.modules and "hypercorn.trio.run" not in sys.modules:
    raise SystemExit(
        "hermes-trio: hypercorn needs the Trio worker: add `--worker-class trio`, "
        'or `worker_class = "trio"` to its configuration file'
    )

from hermes_trio.core.errors import ConfigurationError
from hermes_trio.server.lifespan import LifespanApp, make_app


def _make_app() -> LifespanApp:
    try:
        return make_app()
    except ConfigurationError as error:
        raise SystemExit(f"hermes-trio: {error}") from None


app = _make_app()
