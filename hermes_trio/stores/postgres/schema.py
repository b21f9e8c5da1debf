"""The schema in PostgreSQL as a list of migrations, and the partitions of the log.

The tables and columns are those of SQLite, so that the statements are too; a test compares them. A
released migration is never changed: append a new one instead. Migrations only add, so that servers
of two versions can share a database during an upgrade.

Text is compared byte by byte, whatever the locale of the database. Values that are compressed
already are stored as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import psycopg
import structlog
from psycopg import errors

from hermes_trio.stores.base import StoreError, newer_schema

Migration = tuple[str, ...]

_LOCK = "SELECT pg_advisory_xact_lock(hashtext('hermes-trio migrations'))"
SECONDS_PER_DAY = 86400
DAYS_AHEAD = 2
"""Partitions that exist for coming days, so that none is created while runs wait for it."""

log = structlog.get_logger(__name__)


def _columns(names: str) -> str:
    """Return the columns of a table; each name is followed by its kind."""
    kinds = {
        "text": 'TEXT COLLATE "C" NOT NULL',
        "text?": "TEXT COLLATE \"C\" NOT NULL DEFAULT ''",
        "real": "DOUBLE PRECISION NOT NULL",
        "real?": "DOUBLE PRECISION NOT NULL DEFAULT 0",
        "int": "BIGINT NOT NULL",
        "int?": "BIGINT NOT NULL DEFAULT 0",
        "flag?": "SMALLINT NOT NULL DEFAULT 0",
        "blob": "BYTEA NOT NULL",
        "blob?": "BYTEA NOT NULL DEFAULT ''",
    }
    pairs = (line.split() for line in names.strip().splitlines())
    return ", ".join(f"{name} {kinds[kind]}" for name, kind in pairs)


_SESSIONS: Migration = (
    f"""
    CREATE TABLE sessions ({
        _columns('''
        principal text
        session_id text
        created_at real
        updated_at real
        kind text?
        model text?
        title text?
        parent text?
        ended_at real?
        end_reason text?
        message_count int?
        tool_call_count int?
        api_call_count int?
        input_tokens int?
        output_tokens int?
        cache_read_tokens int?
        cache_write_tokens int?
        reasoning_tokens int?
        preview text?
        system_prompt text?
    ''')
    }, PRIMARY KEY (principal, session_id))
    """,
    "CREATE UNIQUE INDEX sessions_by_title ON sessions (principal, title) WHERE title <> ''",
    "CREATE INDEX sessions_by_use ON sessions (principal, updated_at, session_id)",
    "CREATE INDEX sessions_by_parent ON sessions (principal, parent) WHERE parent <> ''",
    f"""
    CREATE TABLE messages ({
        _columns('''
        principal text
        session_id text
        n int
        run_id text
        at real?
        origin text?
        body text
    ''')
    }, PRIMARY KEY (principal, session_id, n))
    """,
    "CREATE INDEX messages_of_run ON messages (principal, run_id, n)",
)

# rowid tells which of two runs that began at the same time was stored last. day is the partition of
# the run's log. The epoch of the owner is the fencing token of nodes that share the database.
_RUNS: Migration = (
    f"""
    CREATE TABLE runs ({
        _columns('''
        principal text
        run_id text
        kind text
        session_id text
        parent text
        conversation text
        model text
        status text
        reason text
        created_at real
        ended_after real
        owner text
        owner_epoch int?
        accessed_at real
        hidden flag?
        logged flag?
        listed flag?
        size int?
        header blob
        items blob?
        outcome text?
    ''')
    },
        rowid BIGINT GENERATED ALWAYS AS IDENTITY,
        day BIGINT GENERATED ALWAYS AS (CAST(floor(created_at / {
        SECONDS_PER_DAY
    }) AS BIGINT)) STORED,
        PRIMARY KEY (principal, run_id)
    )
    """,
    "ALTER TABLE runs ALTER COLUMN header SET STORAGE EXTERNAL, ALTER COLUMN items SET STORAGE EXTERNAL",
    """
    CREATE INDEX runs_in_progress ON runs (principal, created_at, run_id, kind, session_id, owner)
        WHERE status = 'in_progress'
    """,
    """
    CREATE INDEX runs_by_use ON runs (principal, accessed_at, run_id, size)
        WHERE hidden = 0 AND status <> 'in_progress'
    """,
    "CREATE INDEX runs_by_parent ON runs (principal, parent, run_id) WHERE parent <> ''",
    "CREATE INDEX runs_by_conversation ON runs (principal, conversation, created_at) WHERE conversation <> ''",
    "CREATE INDEX runs_by_age ON runs (principal, created_at, run_id) WHERE hidden = 0 AND listed = 1",
    """
    CREATE INDEX runs_by_end ON runs (principal, kind, status, reason, created_at, run_id)
        WHERE hidden = 0 AND listed = 1 AND status <> 'in_progress'
    """,
    """
    CREATE INDEX runs_by_session ON runs (principal, session_id, listed, kind, status, reason, created_at, run_id)
        WHERE hidden = 0 AND status <> 'in_progress'
    """,
    "CREATE INDEX hidden_runs ON runs (principal, session_id) WHERE hidden = 1",
    "CREATE INDEX runs_with_log ON runs ((created_at + ended_after)) WHERE logged = 1",
    "CREATE INDEX runs_by_log_day ON runs (day) WHERE logged = 1 OR status = 'in_progress'",
    f"""
    CREATE TABLE item_index ({
        _columns('''
        principal text
        item_id text
        run_id text
    ''')
    }, PRIMARY KEY (principal, item_id))
    """,
    f"""
    CREATE TABLE nodes ({
        _columns('''
        node text
        epoch int
        address text
    ''')
    }, heartbeat_at TIMESTAMPTZ NOT NULL DEFAULT now(), PRIMARY KEY (node))
    """,
)

# A run's whole log is in the partition of the day on which the run began. Days without a partition
# of their own are in log_other.
_LOG: Migration = (
    f"""
    CREATE TABLE log ({
        _columns('''
        day int
        principal text
        run_id text
        first int
        count int
        body blob
    ''')
    }, PRIMARY KEY (principal, run_id, first, day)) PARTITION BY RANGE (day)
    """,
    "ALTER TABLE log ALTER COLUMN body SET STORAGE EXTERNAL",
    "CREATE TABLE log_other PARTITION OF log DEFAULT",
)

_CONVERSATIONS: Migration = (
    f"""
    CREATE TABLE conversations ({
        _columns('''
        principal text
        conversation_id text
        created_at real
        metadata text
    ''')
    }, PRIMARY KEY (principal, conversation_id))
    """,
    f"""
    CREATE TABLE conversation_items ({
        _columns('''
        principal text
        conversation_id text
        n int
        item_id text
        body text
    ''')
    }, PRIMARY KEY (principal, conversation_id, n), UNIQUE (principal, conversation_id, item_id))
    """,
    "CREATE INDEX conversation_items_by_id ON conversation_items (principal, item_id)",
)

_CLAIMS_AND_APPROVALS: Migration = (
    f"""
    CREATE TABLE claims ({
        _columns('''
        principal text
        route text
        key text
        fingerprint text
        run_id text
        made_at real
    ''')
    }, PRIMARY KEY (principal, route, key))
    """,
    "CREATE INDEX claims_by_age ON claims (made_at)",
    "CREATE INDEX claims_of_run ON claims (principal, run_id)",
    f"""
    CREATE TABLE approvals ({
        _columns('''
        principal text
        end_user text
        session_id text
        pattern text
        made_at real
    ''')
    }, PRIMARY KEY (principal, end_user, session_id, pattern))
    """,
    f"CREATE TABLE probe ({_columns('checked_at real')}, id INTEGER PRIMARY KEY CHECK (id = 1))",
)

# What retention needs: the size of everything that an owner stores, and the last use of a session. A
# run that is listed has a session; those that clients asked not to store are purged by themselves.
_SIZES: Migration = (
    "ALTER TABLE sessions ADD COLUMN used_at DOUBLE PRECISION NOT NULL DEFAULT 0",
    "ALTER TABLE sessions ADD COLUMN size BIGINT NOT NULL DEFAULT 0",
    "ALTER TABLE runs ADD COLUMN log_size BIGINT NOT NULL DEFAULT 0",
    "ALTER TABLE conversations ADD COLUMN size BIGINT NOT NULL DEFAULT 0",
    """
    UPDATE sessions SET
        used_at = greatest(updated_at, (SELECT max(accessed_at) FROM runs
            WHERE runs.principal = sessions.principal AND runs.session_id = sessions.session_id
                AND runs.hidden = 0 AND runs.status <> 'in_progress')),
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
    """
    UPDATE runs SET size = size + 1200, log_size = CASE logged WHEN 0 THEN 0 ELSE coalesce((
            SELECT sum(length(body)) FROM log
            WHERE log.principal = runs.principal AND log.run_id = runs.run_id AND log.day = runs.day), 0) END
        WHERE hidden = 0 AND status <> 'in_progress'
    """,
    "DROP INDEX runs_by_use",
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

# How nodes reach each other's runs. The times are those of the database.
_COMMANDS: Migration = (
    f"""
    CREATE TABLE commands ({
        _columns('''
        command_id text
        principal text
        run_id text
        kind text
        arguments text
        sender text?
        answer text?
    ''')
    },
        created_at TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
        taken_at TIMESTAMPTZ,
        answered_at TIMESTAMPTZ,
        PRIMARY KEY (command_id)
    )
    """,
    "CREATE INDEX commands_to_take ON commands (created_at, command_id) WHERE taken_at IS NULL",
    "CREATE INDEX commands_by_age ON commands (created_at)",
    f"""
    CREATE TABLE session_locks ({
        _columns('''
        principal text
        session_id text
        node text
    ''')
    }, locked_at TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(), PRIMARY KEY (principal, session_id))
    """,
)

# Every node has its own, so that two with different settings agree on whether one is alive.
_LEASE_SECONDS: Migration = (
    "ALTER TABLE nodes ADD COLUMN lease_seconds DOUBLE PRECISION NOT NULL DEFAULT 8",
)

# A job that is not to run has due_at 0.
_JOBS: Migration = (
    f"""
    CREATE TABLE jobs ({
        _columns('''
        principal text
        job_id text
        created_at real
        due_at real
        revision int
        body text
    ''')
    }, PRIMARY KEY (principal, job_id))
    """,
    "CREATE INDEX jobs_by_due ON jobs (due_at, principal, job_id) WHERE due_at > 0",
)

# Whether a run in progress waits for an approval.
_WAITING: Migration = ("ALTER TABLE runs ADD COLUMN waiting SMALLINT NOT NULL DEFAULT 0",)

# What the page shows of sessions: pins, and where a fork began; -1 for forks of earlier versions.
_PINS_AND_FORKS: Migration = (
    "ALTER TABLE sessions ADD COLUMN pinned SMALLINT NOT NULL DEFAULT 0",
    "ALTER TABLE sessions ADD COLUMN forked_messages BIGINT NOT NULL DEFAULT -1",
)

# Those of a principal on all nodes together. The number limits them.
_RUN_SLOTS: Migration = (
    f"""
    CREATE TABLE run_slots ({
        _columns('''
        principal text
        number int
        slot text
        node text
    ''')
    }, taken_at TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(), PRIMARY KEY (principal, number))
    """,
    "CREATE INDEX run_slots_by_name ON run_slots (slot)",
)

MIGRATIONS: tuple[Migration, ...] = (
    _SESSIONS + _RUNS + _LOG + _CONVERSATIONS + _CLAIMS_AND_APPROVALS,
    _SIZES,
    _COMMANDS,
    _LEASE_SECONDS,
    _JOBS,
    _WAITING,
    _PINS_AND_FORKS,
    _RUN_SLOTS,
)
LATEST_VERSION = len(MIGRATIONS)


def schema_version(connection: psycopg.Connection) -> int:
    """Return the number of migrations that a database has had."""
    try:
        row = connection.execute("SELECT version FROM schema_version").fetchone()
    except errors.UndefinedTable:
        return 0
    return 0 if row is None else int(row[0])


def migrate(connection: psycopg.Connection, migrations: tuple[Migration, ...] = MIGRATIONS) -> None:
    """Apply the outstanding migrations in one transaction; of servers that start at once, one does.

    Raises:
        StoreError: The database has a newer schema than this version supports.
    """
    if schema_version(connection) < len(migrations):
        with connection.transaction():
            connection.execute(_LOCK)
            connection.execute(
                "CREATE TABLE IF NOT EXISTS schema_version (version INTEGER NOT NULL)"
            )
            _apply(connection, migrations)
    current = schema_version(connection)
    if current > len(migrations):
        raise StoreError(newer_schema("the database", current, len(migrations)))


def _apply(connection: psycopg.Connection, migrations: tuple[Migration, ...]) -> None:
    outstanding = migrations[schema_version(connection) :]
    for statements in outstanding:
        for statement in statements:
            connection.execute(statement.encode())
    if outstanding:
        connection.execute("DELETE FROM schema_version")
        connection.execute("INSERT INTO schema_version VALUES (%s)", [len(migrations)])


# -- records that are moved here from another database --

MIGRATION_STATE: Migration = (
    f"""
    CREATE TABLE IF NOT EXISTS store_migration ({
        _columns('''
        source text
        tables int?
        after_key text?
        rows int?
        begun_at real
        finished_at real?
    ''')
    }, id INTEGER PRIMARY KEY DEFAULT 1 CHECK (id = 1))
    """,
)
"""The progress of ``hermes-trio store migrate``, only in databases that were the target of one."""

_UNFINISHED = "SELECT 1 FROM store_migration WHERE finished_at = 0"


def require_all_records(connection: psycopg.Connection) -> None:
    """Refuse a database into which not all records have been moved yet.

    Raises:
        StoreError: ``hermes-trio store migrate`` was interrupted.
    """
    [(table,)] = connection.execute("SELECT to_regclass('store_migration')").fetchall()
    if table is not None and connection.execute(_UNFINISHED).fetchone():
        raise StoreError(
            "the records have not all been moved to the database yet: run hermes-trio store migrate again"
        )


# -- partitions of the log --

_PARTITIONS = """
    SELECT relname FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
    WHERE inhparent = CAST('log' AS regclass)
"""
# CheckViolation: log_other already has logs of that day. The last two: another server has created the
# partition since this one looked, which IF NOT EXISTS does not notice when both do it at once.
_PARTITION_CONFLICTS = (
    errors.LockNotAvailable,
    errors.DeadlockDetected,
    errors.CheckViolation,
    errors.DuplicateTable,
    errors.UniqueViolation,
)
_HAS_LOGS = "SELECT 1 FROM runs WHERE day = %s AND (logged = 1 OR status = 'in_progress') LIMIT 1"


def maintain_partitions(connection: psycopg.Connection, now: float) -> None:
    """Create the partitions of the coming days, and drop those whose logs have all expired.

    Both need a lock that readers of the log hold, so neither waits for long: what does not succeed
    now is tried again the next time. Until then logs go to ``log_other``.
    """
    today = int(now // SECONDS_PER_DAY)
    create_partitions(connection, range(today, today + DAYS_AHEAD + 1))
    names = {name for (name,) in connection.execute(_PARTITIONS).fetchall()}
    # The clocks of two servers may differ: yesterday may not be over everywhere.
    for day in sorted(int(name[4:]) for name in names if name[4:].isdecimal()):
        if day < today - 1 and not connection.execute(_HAS_LOGS, [day]).fetchone():
            _change_partition(connection, _drop_partition, day)


def create_partitions(connection: psycopg.Connection, days: Iterable[int]) -> None:
    """Create the partitions of days which have none, as far as that is possible without waiting."""
    names = {name for (name,) in connection.execute(_PARTITIONS).fetchall()}
    for day in days:
        if f"log_{day}" not in names:
            _change_partition(connection, _create_partition, day)


def _create_partition(connection: psycopg.Connection, day: int) -> None:
    connection.execute(
        f"CREATE TABLE IF NOT EXISTS log_{day} PARTITION OF log FOR VALUES FROM ({day}) TO ({day + 1})".encode()
    )


def _drop_partition(connection: psycopg.Connection, day: int) -> None:
    connection.execute("LOCK TABLE log IN ACCESS EXCLUSIVE MODE")
    if not connection.execute(_HAS_LOGS, [day]).fetchone():  # nothing was added meanwhile
        connection.execute(f"DROP TABLE IF EXISTS log_{day}".encode())


def _change_partition(
    connection: psycopg.Connection,
    change: Callable[[psycopg.Connection, int], None],
    day: int,
) -> None:
    try:
        with connection.transaction():
            connection.execute("SET LOCAL lock_timeout = '250ms'")
            change(connection, day)
    except _PARTITION_CONFLICTS as error:
        log.info("a partition of the log was not changed", day=day, error=str(error))
