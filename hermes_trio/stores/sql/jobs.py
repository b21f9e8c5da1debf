"""Jobs as rows. What the scheduler looks for has columns; the rest is one JSON text."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import structlog
from attrs import asdict, evolve

from hermes_trio.core.jobs import Job, NoJob
from hermes_trio.core.records import Ownership, RunHeader
from hermes_trio.stores.base import CorruptRecord
from hermes_trio.stores.codec import decode_json, encode_json
from hermes_trio.stores.sql import owners, runs
from hermes_trio.stores.sql.database import SqlConnection

log = structlog.get_logger(__name__)

JobKey = tuple[str, str]  # principal and job id

_BY_KEY = "principal = ? AND job_id = ?"
_COLUMNS = "principal, job_id, revision, CAST(body AS BLOB)"
_INSERT = """
    INSERT INTO jobs (principal, job_id, created_at, due_at, revision, body)
    SELECT :principal, :job_id, :created_at, :due_at, 0, :body
    WHERE (SELECT count(*) FROM jobs WHERE principal = :principal) < :limit
    ON CONFLICT (principal, job_id) DO NOTHING
"""
_REPLACE = """
    UPDATE jobs SET due_at = :due_at, revision = revision + 1, body = :body
    WHERE principal = :principal AND job_id = :job_id AND revision = :revision
"""
LIST_DUE = f"""
    SELECT {_COLUMNS} FROM jobs WHERE due_at > 0 AND due_at <= ?
    ORDER BY due_at, principal, job_id LIMIT ? OFFSET ?
"""  # noqa: S608 - only constants of this module
NEXT_DUE = "SELECT min(due_at) FROM jobs WHERE due_at > 0"


def add(connection: SqlConnection, job: Job, limit: int) -> bool:
    """Store a new job unless its principal has too many, or one with this id."""
    row = _row(job) | {"created_at": job.created_at, "limit": limit}
    return connection.execute(_INSERT, row).rowcount == 1


def find(connection: SqlConnection, key: JobKey) -> Job | NoJob:
    """Return a job."""
    row = connection.execute(f"SELECT {_COLUMNS} FROM jobs WHERE {_BY_KEY}", key).fetchone()  # noqa: S608
    return NoJob() if row is None else _decode(row)


def list_all(connection: SqlConnection, principal: str) -> tuple[Job, ...]:
    """Return the jobs of a principal, oldest first."""
    query = f"SELECT {_COLUMNS} FROM jobs WHERE principal = ? ORDER BY created_at, job_id"  # noqa: S608
    return _decode_all(connection.execute(query, (principal,)).fetchall())


def replace(connection: SqlConnection, job: Job) -> bool:
    """Replace the revision of a job that was read."""
    return connection.execute(_REPLACE, _row(job) | {"revision": job.revision}).rowcount == 1


def delete(connection: SqlConnection, key: JobKey) -> bool:
    """Delete a job."""
    return connection.execute(f"DELETE FROM jobs WHERE {_BY_KEY}", key).rowcount == 1  # noqa: S608


def next_due(connection: SqlConnection) -> float:
    """Return when the first job is due, infinity for never."""
    [due_at] = connection.execute(NEXT_DUE).fetchone()
    return math.inf if due_at is None else float(due_at)


def list_due(connection: SqlConnection, now: float, limit: int, offset: int) -> tuple[Job, ...]:
    """Return jobs that are due, the longest overdue first."""
    return _decode_all(connection.execute(LIST_DUE, (now, limit, offset)).fetchall())


def begin_run(connection: SqlConnection, job: Job, header: RunHeader, ownership: Ownership) -> bool:
    """Replace a job and begin its run, both or none.

    Return whether the run is new, or was begun by an earlier call of the same node.
    """
    if replace(connection, job):
        return runs.begin(connection, header, ownership)
    key = (header.principal, header.run_id)
    owner = owners.find(connection, [key]).get(key)
    return owner is not None and owner.is_live and owner.ownership == ownership


def _row(job: Job) -> dict[str, Any]:
    return {
        "principal": job.principal,
        "job_id": job.job_id,
        "due_at": job.due_at,
        "body": encode_json(asdict(job)),
    }


def _decode_all(rows: Iterable[tuple[Any, ...]]) -> tuple[Job, ...]:
    jobs: list[Job] = []
    for row in rows:
        try:
            jobs.append(_decode(row))
        except CorruptRecord as error:
            log.error("a job that cannot be read is left out", error=str(error))
    return tuple(jobs)


def _decode(row: tuple[Any, ...]) -> Job:
    principal, job_id, revision, body = row
    job = decode_json(body, Job, f"job {job_id!r}")
    return evolve(job, principal=principal, job_id=job_id, revision=revision)
