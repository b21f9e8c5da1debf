"""Options, the server and the clients; at the end the table is printed and, if asked for, written."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.clients.catalogue import ClientSpec
from tests.clients.codex import CodexClient
from tests.clients.driver_process import NODE, DriverProcess, client_version, make_driver
from tests.clients.table import Cell, ClientTable
from tests.support.server_process import LaunchOptions, ServerProcess, serving

# What the log may say: the agent fails when it is told to.
EXPECTED = "a run failed|the agent raised an exception"
TABLE = pytest.StashKey[ClientTable]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--client-python",
        action="append",
        default=[],
        metavar="NAME=PATH",
        help="the interpreter of an environment with clients",
    )
    parser.addoption("--client-table", default="", help="write the table into this page")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[TABLE] = ClientTable()


@pytest.fixture(scope="session")
def pythons(request: pytest.FixtureRequest) -> Mapping[str, str]:
    """The interpreters of the environments, by name."""
    given = request.config.getoption("--client-python", default=[])
    return dict(each.split("=", 1) for each in given)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    options = LaunchOptions(tmp_path_factory.mktemp("clients"), ("--agent", "demo"))
    with serving(options, expected=EXPECTED) as process:
        yield process


@pytest.fixture(scope="module")
def client(
    request: pytest.FixtureRequest,
    pythons: Mapping[str, str],
    server: ServerProcess,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[DriverProcess | CodexClient]:
    """The client that a test is about."""
    spec: ClientSpec = request.param
    is_node = spec.environment in {"node", "codex"}
    if spec.environment not in pythons and not (is_node and (NODE / "node_modules").exists()):
        pytest.skip("the clients are installed by `nox -s clients` only")
    request.config.stash[TABLE].versions[spec.id] = client_version(spec, pythons)
    folder = tmp_path_factory.mktemp("client")
    driver: DriverProcess | CodexClient
    if spec.environment == "codex":
        driver = CodexClient(server, folder)
    else:
        driver = make_driver(spec, pythons, server, folder)
    yield driver
    driver.close()


@pytest.fixture(autouse=True)
def _exceptions(request: pytest.FixtureRequest) -> None:
    """Skip what does not apply to a client, and expect what it is known to do wrong."""
    callspec = getattr(request.node, "callspec", None)
    if callspec is None or not isinstance(spec := callspec.params.get("client"), ClientSpec):
        return
    if reason := spec.lacks.get(request.node.originalname):
        pytest.skip(reason)
    if reason := spec.limits.get(request.node.originalname):
        request.applymarker(pytest.mark.xfail(reason=reason, strict=True))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call" or not report.passed:
        limit = getattr(report, "wasxfail", "")
        cell = Cell("failed", limit) if limit else Cell(report.outcome, _reason(report, call))
        item.config.stash[TABLE].add(item.name, cell)
    return report


def _reason(report: pytest.TestReport, call: pytest.CallInfo[None]) -> str:
    """The first line of why a test failed or was skipped."""
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    if call.excinfo is None:
        return ""
    is_assertion = isinstance(call.excinfo.value, AssertionError)
    return ("expected: " if is_assertion else "") + str(call.excinfo.value).splitlines()[0][:300]


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    table = config.stash[TABLE]
    if not table.versions:
        return
    terminalreporter.section("clients")
    terminalreporter.write_line(table.markdown())
    if page := config.getoption("--client-table", default=""):
        table.write(Path(page))
