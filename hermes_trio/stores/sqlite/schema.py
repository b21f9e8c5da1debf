"""The database schema as a list of migrations.

``PRAGMA user_version`` counts those a database has had.

A released migration is never changed: append a new one instead.

Every table is keyed by the principal first. Ids and free text are TEXT; values that are only read
back whole are one BLOB or one JSON text. Those columns come last in a row, so that reading the
others does not touch their pages.
"""

from __future__ import annotations

import sqlite3

from hermes_trio.stores.base import StoreError, newer_schema

Migration = tuple[str, ...]

_SESSIONS: Migration = (
    """
    CREATE TABLE sessions (
        principal TEXT NOT NULL,
        session_id TEXT NOT NULL,
        created_at REAL NOT NULL,
        updated_at REAL NOT NULL,
        PRIMARY KEY (principal, session_id)
    )
    """,
    # No foreign key to runs: messages stay in their session when the record of the run is deleted.
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

_RUNS: Migration = (
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

_CONVERSATIONS: Migration = (
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

_CLAIMS: Migration = (
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

# A single row, rewritten by every health check.
_PROBE: Migration = (
    "CREATE TABLE probe (id INTEGER PRIMARY KEY CHECK (id = 1), checked_at REAL NOT NULL)",
)

# An empty session_id stands for all sessions of the principal.
_APPROVALS: Migration = (
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

# Lists of runs are filtered in this index alone; only the rows of the page are read.
_RUN_LISTS: Migration = (
    "ALTER TABLE runs ADD COLUMN listed INTEGER NOT NULL DEFAULT 1",
    """
    CREATE INDEX runs_by_age ON runs (principal, created_at, run_id, session_id, kind, status, reason)
        WHERE hidden = 0 AND listed = 1
    """,
)

# The fields that the Sessions API shows. Existing messages are counted once, here. A body that is
# not valid JSON counts as nothing; the store reports it when it is read.
_SESSION_FIELDS: Migration = (
    "ALTER TABLE sessions ADD COLUMN kind TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE sessions ADD COLUMN model TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE sessions ADD COLUMN title TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE sessions ADD COLUMN parent TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE sessions ADD COLUMN ended_at REAL NOT NULL DEFAULT 0",
    "ALTER TABLE sessions ADD COLUMN end_reason TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE sessions ADD COLUMN message_count INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE sessions ADD COLUMN tool_call_count INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE sessions ADD COLUMN api_call_count INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE sessions ADD COLUMN input_tokens INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE sessions ADD COLUMN output_tokens INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE sessions ADD COLUMN cache_read_tokens INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE sessions ADD COLUMN cache_write_tokens INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE sessions ADD COLUMN reasoning_tokens INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE sessions ADD COLUMN preview TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE sessions ADD COLUMN system_prompt TEXT NOT NULL DEFAULT ''",
    # The run that produced a copied message: its run_id is empty, so that no history contains it
    # twice.
    "ALTER TABLE messages ADD COLUMN origin TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE messages ADD COLUMN at REAL NOT NULL DEFAULT 0",
    "CREATE UNIQUE INDEX sessions_by_title ON sessions (principal, title) WHERE title <> ''",
    "CREATE INDEX sessions_by_use ON sessions (principal, updated_at, session_id)",
    "CREATE INDEX sessions_by_parent ON sessions (principal, parent) WHERE parent <> ''",
    "CREATE INDEX runs_by_session ON runs (principal, session_id, created_at)",
    """
    UPDATE messages SET at = coalesce(
        (SELECT created_at + ended_after FROM runs
            WHERE runs.principal = messages.principal AND runs.run_id = messages.run_id),
        (SELECT updated_at FROM sessions
            WHERE sessions.principal = messages.principal AND sessions.session_id = messages.session_id)
    )
    """,
    """
    UPDATE sessions SET
        message_count = said.messages, tool_call_count = said.calls, api_call_count = said.runs
    FROM (
        SELECT principal, session_id, count(*) AS messages, count(DISTINCT run_id) AS runs,
            sum(CASE WHEN json_valid(body) THEN coalesce(json_array_length(body, '$.tool_calls'), 0) ELSE 0 END)
                AS calls
        FROM messages GROUP BY principal, session_id
    ) AS said
    WHERE sessions.principal = said.principal AND sessions.session_id = said.session_id
    """,
    """
    UPDATE sessions SET kind = first.kind, model = first.model FROM (
        SELECT principal, session_id, kind, model, min(created_at) FROM runs GROUP BY principal, session_id
    ) AS first
    WHERE sessions.principal = first.principal AND sessions.session_id = first.session_id
    """,
    """
    UPDATE sessions SET input_tokens = used.input, output_tokens = used.output, cache_read_tokens = used.cached,
        cache_write_tokens = used.cache_write, reasoning_tokens = used.reasoning
    FROM (
        SELECT principal, session_id,
            sum(min(coalesce(json_extract(outcome, '$.usage.input_tokens'), 0), 1 << 40)) AS input,
            sum(min(coalesce(json_extract(outcome, '$.usage.output_tokens'), 0), 1 << 40)) AS output,
            sum(min(coalesce(json_extract(outcome, '$.usage.cached_tokens'), 0), 1 << 40)) AS cached,
            sum(min(coalesce(json_extract(outcome, '$.usage.cache_write_tokens'), 0), 1 << 40)) AS cache_write,
            sum(min(coalesce(json_extract(outcome, '$.usage.reasoning_tokens'), 0), 1 << 40)) AS reasoning
        FROM runs WHERE json_valid(outcome) GROUP BY principal, session_id
    ) AS used
    WHERE sessions.principal = used.principal AND sessions.session_id = used.session_id
    """,
    """
    UPDATE sessions SET preview = replace(substr(first.text, 1, 60), char(10), ' ') FROM (
        SELECT principal, session_id, json_extract(body, '$.content') AS text, min(n) FROM messages
        WHERE CASE WHEN json_valid(body)
            THEN json_extract(body, '$.role') = 'user' AND json_type(body, '$.content') = 'text'
        END
        GROUP BY principal, session_id
    ) AS first
    WHERE sessions.principal = first.principal AND sessions.session_id = first.session_id
    """,
)

# Which run holds the item that a client refers to. An item that a later run repeats in its input
# belongs to the run that first had it. Items of runs that ended before this migration are not here.
# There is no index by run, which would double the cost of a row: the record of a run has the ids.
_ITEM_INDEX: Migration = (
    """
    CREATE TABLE item_index (
        principal TEXT NOT NULL,
        item_id TEXT NOT NULL,
        run_id TEXT NOT NULL,
        PRIMARY KEY (principal, item_id)
    ) WITHOUT ROWID
    """,
    "CREATE INDEX conversation_items_by_id ON conversation_items (principal, item_id)",
)

# What was granted before belongs to requests without an end user. SQLite cannot change a primary key.
_END_USERS: Migration = (
    "ALTER TABLE approvals RENAME TO approvals_of_principals",
    """
    CREATE TABLE approvals (
        principal TEXT NOT NULL,
        end_user TEXT NOT NULL,
        session_id TEXT NOT NULL,
        pattern TEXT NOT NULL,
        made_at REAL NOT NULL,
        PRIMARY KEY (principal, end_user, session_id, pattern)
    )
    """,
    """
    INSERT INTO approvals (principal, end_user, session_id, pattern, made_at)
        SELECT principal, '', session_id, pattern, made_at FROM approvals_of_principals
    """,
    "DROP TABLE approvals_of_principals",
)

# Each owner's own runs are purged, least recently used first.
_USE_BY_OWNER: Migration = (
    "DROP INDEX runs_by_use",
    """
    CREATE INDEX runs_by_use ON runs (principal, accessed_at, run_id, size)
        WHERE hidden = 0 AND status <> 'in_progress'
    """,
)

# Every list of runs is a merge of ranges of these indexes, each in the order of the list: one range
# for each API and each way to end. An ended run is entered into the last two once, when it ends. The
# columns after the id are those that a list checks, so that it reads no other rows than it shows.
_LISTS_BY_END: Migration = (
    "DROP INDEX runs_by_age",
    """
    CREATE INDEX runs_by_age ON runs (principal, created_at, run_id, hidden, listed)
        WHERE hidden = 0 AND listed = 1
    """,
    "DROP INDEX runs_in_progress",
    """
    CREATE INDEX runs_in_progress
        ON runs (principal, created_at, run_id, hidden, listed, status, kind, session_id)
        WHERE status = 'in_progress'
    """,
    """
    CREATE INDEX runs_by_end
        ON runs (principal, kind, status, reason, created_at, run_id, hidden, listed)
        WHERE hidden = 0 AND listed = 1 AND status <> 'in_progress'
    """,
    "DROP INDEX runs_by_session",
    """
    CREATE INDEX runs_by_session
        ON runs (principal, session_id, listed, kind, status, reason, created_at, run_id, hidden)
        WHERE hidden = 0 AND status <> 'in_progress'
    """,
    "CREATE INDEX hidden_runs ON runs (principal, session_id) WHERE hidden = 1",
)

# What retention needs: the size of everything that an owner stores, and the last use of a session. A
# run that is listed has a session; those that clients asked not to store are purged by themselves.
_SIZES: Migration = (
    "ALTER TABLE sessions ADD COLUMN used_at REAL NOT NULL DEFAULT 0",
    "ALTER TABLE sessions ADD COLUMN size INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE runs ADD COLUMN log_size INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE conversations ADD COLUMN size INTEGER NOT NULL DEFAULT 0",
    """
    UPDATE sessions SET
        used_at = max(updated_at, coalesce((SELECT max(accessed_at) FROM runs
            WHERE runs.principal = sessions.principal AND runs.session_id = sessions.session_id
                AND runs.hidden = 0 AND runs.status <> 'in_progress'), 0)),
        size = 500 + length(system_prompt) + coalesce((SELECT sum(length(body) + 150) FROM messages
            WHERE messages.principal = sessions.principal AND messages.session_id = sessions.session_id), 0)
    """,
    """
    UPDATE conversations SET size = coalesce((SELECT sum(length(body) + 300) FROM conversation_items AS item
        WHERE item.principal = conversations.principal AND item.conversation_id = conversations.conversation_id), 0)
    """,
    """
    UPDATE runs SET listed = 0 WHERE listed = 1 AND NOT EXISTS (SELECT 1 FROM sessions
        WHERE sessions.principal = runs.principal AND sessions.session_id = runs.session_id)
    """,
    "DROP INDEX runs_by_use",
    """
    UPDATE runs SET size = size + 1200, log_size = coalesce((SELECT sum(length(body)) FROM log
            WHERE log.principal = runs.principal AND log.run_id = runs.run_id), 0)
        WHERE hidden = 0 AND status <> 'in_progress'
    """,
    """
    CREATE INDEX runs_by_use ON runs (principal, session_id, accessed_at, run_id, size, log_size)
        WHERE hidden = 0 AND status <> 'in_progress'
    """,
    """
    CREATE INDEX unlisted_runs ON runs (principal, accessed_at, run_id)
        WHERE listed = 0 AND hidden = 0 AND status <> 'in_progress'
    """,
    "CREATE INDEX sessions_by_last_use ON sessions (principal, used_at, session_id, size)",
    "CREATE INDEX conversations_by_age ON conversations (principal, created_at, conversation_id)",
)

# The fencing token of a run: how often it was taken over.
_OWNER_EPOCH: Migration = ("ALTER TABLE runs ADD COLUMN owner_epoch INTEGER NOT NULL DEFAULT 0",)

# A job that is not to run has due_at 0.
_JOBS: Migration = (
    """
    CREATE TABLE jobs (
        principal TEXT NOT NULL,
        job_id TEXT NOT NULL,
        created_at REAL NOT NULL,
        due_at REAL NOT NULL,
        revision INTEGER NOT NULL,
        body TEXT NOT NULL,
        PRIMARY KEY (principal, job_id)
    )
    """,
    "CREATE INDEX jobs_by_due ON jobs (due_at, principal, job_id) WHERE due_at > 0",
)

# Whether a run in progress waits for an approval.
_WAITING: Migration = (
    "ALTER TABLE runs ADD COLUMN waiting INTEGER NOT NULL DEFAULT 0",
    "DROP INDEX runs_in_progress",
    """
    CREATE INDEX runs_in_progress
        ON runs (principal, created_at, run_id, hidden, listed, status, kind, session_id, waiting)
        WHERE status = 'in_progress'
    """,
)

# What the page shows of sessions: pins, and where a fork began; -1 for forks of earlier versions.
_PINS_AND_FORKS: Migration = (
    "ALTER TABLE sessions ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE sessions ADD COLUMN forked_messages INTEGER NOT NULL DEFAULT -1",
)

MIGRATIONS: tuple[Migration, ...] = (
    _SESSIONS + _RUNS + _CONVERSATIONS + _CLAIMS + _PROBE,
    _APPROVALS,
    _RUN_LISTS,
    _SESSION_FIELDS,
    _ITEM_INDEX,
    _END_USERS,
    _USE_BY_OWNER,
    _LISTS_BY_END,
    _SIZES,
    _OWNER_EPOCH,
    _JOBS,
    _WAITING,
    _PINS_AND_FORKS,
)
LATEST_VERSION = len(MIGRATIONS)


def schema_version(connection: sqlite3.Connection) -> int:
    """Return the number of migrations that a database has had."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def migrate(connection: sqlite3.Connection, migrations: tuple[Migration, ...] = MIGRATIONS) -> None:
    """Apply the outstanding migrations, each in its own transaction.

    Raises:
        StoreError: The database has a newer schema than this version supports.
    """
    current = schema_version(connection)
    if current > len(migrations):
        raise StoreError(newer_schema("the database", current, len(migrations)))
    for version, statements in enumerate(migrations[current:], current + 1):
        connection.execute("BEGIN IMMEDIATE")
        try:
            for statement in statements:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {version}")
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
