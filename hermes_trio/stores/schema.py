"""The tables, as the list of steps that led to them.

A step that has been released is never changed; a new need is a new step at the end.

Everything is keyed by the principal first. Identifiers and free text are TEXT; what is only ever read back whole is
one BLOB or one JSON text. Those columns come last in a row, so that looking at the others does not read them.
"""

from __future__ import annotations

Step = tuple[str, ...]

_SESSIONS: Step = (
    """
    CREATE TABLE sessions (
        principal TEXT NOT NULL,
        session_id TEXT NOT NULL,
        created_at REAL NOT NULL,
        updated_at REAL NOT NULL,
        PRIMARY KEY (principal, session_id)
    )
    """,
    # No key to runs: what was said stays in its session when the record of the run is gone.
    """
    CREATE TABLE messages (
        principal TEXT NOT NULL,
        session_id TEXT NOT NULL,
        n INTEGER NOT NULL,
        run_id TEXT NOT NULL,
        body TEXT NOT NULL,
        PRIMARY KEY (principal, session_id, n),
        FOREIGN KEY (principal, session_id) REFERENCES sessions (principal, session_id)
    )
    """,
    "CREATE INDEX messages_of_run ON messages (principal, run_id, n)",
)

_RUNS: Step = (
    """
    CREATE TABLE runs (
        principal TEXT NOT NULL,
        run_id TEXT NOT NULL,
        kind TEXT NOT NULL,
        session_id TEXT NOT NULL,
        parent TEXT NOT NULL,
        conversation TEXT NOT NULL,
        model TEXT NOT NULL,
        status TEXT NOT NULL,
        reason TEXT NOT NULL,
        created_at REAL NOT NULL,
        ended_after REAL NOT NULL,
        owner TEXT NOT NULL,
        accessed_at REAL NOT NULL,
        hidden INTEGER NOT NULL DEFAULT 0,
        logged INTEGER NOT NULL DEFAULT 0,
        size INTEGER NOT NULL DEFAULT 0,
        header BLOB NOT NULL,
        items BLOB NOT NULL DEFAULT x'',
        outcome TEXT NOT NULL DEFAULT '',
        PRIMARY KEY (principal, run_id)
    )
    """,
    "CREATE INDEX runs_in_progress ON runs (owner) WHERE status = 'in_progress'",
    """
    CREATE INDEX runs_by_use ON runs (accessed_at, principal, run_id, size)
        WHERE hidden = 0 AND status <> 'in_progress'
    """,
    "CREATE INDEX runs_by_parent ON runs (principal, parent, run_id) WHERE parent <> ''",
    "CREATE INDEX runs_by_conversation ON runs (principal, conversation, created_at) WHERE conversation <> ''",
    "CREATE INDEX runs_with_log ON runs (created_at + ended_after) WHERE logged = 1",
    """
    CREATE TABLE log (
        principal TEXT NOT NULL,
        run_id TEXT NOT NULL,
        first INTEGER NOT NULL,
        count INTEGER NOT NULL,
        body BLOB NOT NULL,
        PRIMARY KEY (principal, run_id, first),
        FOREIGN KEY (principal, run_id) REFERENCES runs (principal, run_id)
    )
    """,
)

_CONVERSATIONS: Step = (
    """
    CREATE TABLE conversations (
        principal TEXT NOT NULL,
        conversation_id TEXT NOT NULL,
        created_at REAL NOT NULL,
        metadata TEXT NOT NULL,
        PRIMARY KEY (principal, conversation_id)
    )
    """,
    """
    CREATE TABLE conversation_items (
        principal TEXT NOT NULL,
        conversation_id TEXT NOT NULL,
        n INTEGER NOT NULL,
        item_id TEXT NOT NULL,
        body TEXT NOT NULL,
        PRIMARY KEY (principal, conversation_id, n),
        UNIQUE (principal, conversation_id, item_id),
        FOREIGN KEY (principal, conversation_id) REFERENCES conversations (principal, conversation_id)
    )
    """,
)

_CLAIMS: Step = (
    """
    CREATE TABLE claims (
        principal TEXT NOT NULL,
        route TEXT NOT NULL,
        key TEXT NOT NULL,
        fingerprint TEXT NOT NULL,
        run_id TEXT NOT NULL,
        made_at REAL NOT NULL,
        PRIMARY KEY (principal, route, key)
    )
    """,
    "CREATE INDEX claims_by_age ON claims (made_at)",
    "CREATE INDEX claims_of_run ON claims (principal, run_id)",
)

# One row that the health check writes again and again.
_PROBE: Step = ("CREATE TABLE probe (id INTEGER PRIMARY KEY CHECK (id = 1), checked_at REAL NOT NULL)",)

# A session of "" stands for all sessions of the principal.
_APPROVALS: Step = (
    """
    CREATE TABLE approvals (
        principal TEXT NOT NULL,
        session_id TEXT NOT NULL,
        pattern TEXT NOT NULL,
        made_at REAL NOT NULL,
        PRIMARY KEY (principal, session_id, pattern)
    )
    """,
)

# Lists of runs are read from this index alone; only what is shown is looked up.
_LISTS: Step = (
    "ALTER TABLE runs ADD COLUMN listed INTEGER NOT NULL DEFAULT 1",
    """
    CREATE INDEX runs_by_age ON runs (principal, created_at, run_id, session_id, kind, status, reason)
        WHERE hidden = 0 AND listed = 1
    """,
)

STEPS: tuple[Step, ...] = (
    _SESSIONS + _RUNS + _CONVERSATIONS + _CLAIMS + _PROBE,
    _APPROVALS,
    _LISTS,
)
