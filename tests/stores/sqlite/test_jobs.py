"""Jobs in a damaged database."""

from __future__ import annotations

from attrs import evolve
from structlog.testing import capture_logs

from hermes_trio.stores.sqlite import MemoryStore
from tests.stores.contract.jobs import PLAIN


async def test_a_job_that_cannot_be_read_hides_no_other() -> None:
    store = MemoryStore()
    other = evolve(PLAIN, job_id="ba9876543210")
    for job in (PLAIN, other):
        await store.add_job(job, 10)
    await store._submit(
        lambda connection: connection.execute(
            "UPDATE jobs SET body = '{' WHERE job_id = ?", (PLAIN.job_id,)
        )
    )
    with capture_logs() as logged:
        assert await store.list_jobs("ann") == (other,)
        assert await store.list_due_jobs(1000.0, 10) == (other,)
    assert [line["event"] for line in logged] == ["a job that cannot be read is left out"] * 2
    assert PLAIN.job_id in logged[0]["error"]
