"""Run the examples of the documentation as a reader would.

Each page is run from top to bottom, in a folder of its own. The language of a fenced block decides
what it means, together with a comment in the line above it if the language is not enough:

* ``console``: lines after ``$`` are run, and what follows must be in their output, ``...`` standing for anything;
  what a line exports stays set for the rest of the page
* ``python``: a program that is run, or a file that is kept (``example: file: NAME``)
* ``toml``: a configuration file, or a ``key file``
* ``json``: must parse
* ``text`` and the like: not checked, or the ``output`` of the program before, or what the ``server says``
* a server that the reader starts (``serves``), and a command that fails (``exit code: N``)
* ``not run``, with the reason

Documented addresses are replaced by that of a real server on a free port.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from attrs import define, evolve, field, frozen

from hermes_trio.keys import load_key_file
from hermes_trio.settings import load

ROOT = Path(__file__).parents[2]
DOCUMENTED_URL = "http://127.0.0.1:8642"
SECONDS = 30
"""No example takes longer than this, on the busiest machine."""

FENCE = re.compile(
    r"(?:^<!-- example: (?P<mark>[a-z ]+)(?:: (?P<value>[^\n]+))? -->\n)?"
    r"^```(?P<language>[^\n]*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
INERT = {"text", "ini", "nginx", "caddy", "yaml", "{toctree}", "{eval-rst}", "{include}"}


@frozen
class Block:
    """One fenced block and the mark above it."""

    place: str
    language: str
    text: str
    mark: str
    value: str

    @property
    def kind(self) -> str:
        """The kind of the block."""
        own = ("not run", "file", "serves", "output", "server says", "key file")
        return self.mark if self.mark in own else self.language.partition(" ")[0]


@frozen
class Command:
    """One command of a console block and what it shows."""

    line: str
    shown: list[str]


def blocks_of(page: Path) -> Iterator[Block]:
    """Return all blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    for found in FENCE.finditer(text):
        line = text.count("\n", 0, found.start("language")) + 1
        place = f"{page.relative_to(ROOT)}:{line}"
        yield Block(
            place, found["language"], found["text"], found["mark"] or "", found["value"] or ""
        )


def commands_of(text: str) -> list[Command]:
    """Return the commands of a console block."""
    commands: list[Command] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            commands.append(Command(line[2:], []))
        else:
            commands[-1].shown.append(line)
    return commands


def check_shown(shown: list[str], actual: str, place: str) -> None:
    """Check that each shown line is in the output, in the same order.

    ``...`` stands for any text; empty lines are ignored.
    """
    lines = iter(actual.splitlines())
    for line in filter(str.strip, shown):
        if line.strip() == "...":
            continue
        pattern = re.compile(".*".join(map(re.escape, re.split(r"\.\.\.", line))))
        assert any(pattern.fullmatch(got) for got in lines), f"{place}: no {line!r} in\n{actual}"


@define
class DocServer:
    """A server process and its output so far."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def said(self) -> str:
        """The text of its standard output and error."""
        return self.log.read_text(encoding="utf-8")

    @property
    def url(self) -> str:
        """Where it listens."""
        found = re.search(r"http://\S+", self.said)
        assert found is not None
        return found[0]

    def wait_until(self, is_true: Callable[[str], bool]) -> None:
        """Wait until its output satisfies a condition."""
        deadline = time.monotonic() + SECONDS
        while not is_true(self.said):
            assert self.process.poll() is None, self.said
            assert time.monotonic() < deadline, self.said
            time.sleep(0.02)


@frozen
class Shell:
    """A shell: home folder, environment and working directory."""

    folder: Path
    environ: Mapping[str, str]

    def run(self, line: str, exit_code: int = 0) -> str:
        """Run a command line and return all it wrote."""
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=self.folder,
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=SECONDS,
            check=False,
        )
        output = done.stdout.decode()
        assert done.returncode == exit_code, f"{line}\n{output}"
        return output

    def after_export(self, line: str) -> Shell:
        """Return a shell with the variables that a line exports."""
        pairs = (pair.partition("=") for pair in self.run(f"{line} && env -0").split("\0"))
        return evolve(self, environ={name: value for name, _, value in pairs if name})

    @contextmanager
    def serving(self, line: str) -> Iterator[DocServer]:
        """Run the server that a command line starts."""
        log = self.folder / f"server-{time.monotonic_ns()}.log"
        with log.open("wb") as output:
            command = ["bash", "-c", f"exec {line}"]
            process = subprocess.Popen(
                command, cwd=self.folder, env=self.environ, stdout=output, stderr=output
            )
        server = DocServer(process, log)
        try:
            server.wait_until(lambda said: "Try it:" in said)
            yield server
        finally:
            process.terminate()
            assert process.wait(SECONDS) == 0


def make_environment(home: Path) -> dict[str, str]:
    """Return an environment with the documented commands and without the settings of the real user."""
    bin_folder = home / "bin"
    bin_folder.mkdir()
    script = bin_folder / "hermes-trio"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m hermes_trio "$@"\n', encoding="utf-8")
    script.chmod(0o755)
    path = f"{bin_folder}{os.pathsep}{os.environ['PATH']}"
    return {"HOME": str(home), "PATH": path, "PYTHONPATH": str(ROOT), "LANG": "C.UTF-8"}


@define
class PageRunner:
    """Runs the blocks of one page, from top to bottom."""

    reader: Shell
    server: DocServer
    servers: ExitStack
    output: str = ""
    handlers: Mapping[str, Callable[[Block], None]] = field(init=False)

    def __attrs_post_init__(self) -> None:
        """Map each kind of block to its handler."""
        self.handlers = {
            "console": self.run_console,
            "python": self.run_python,
            "file": self.keep_file,
            "serves": self.start_server,
            "output": lambda block: check_shown(block.text.splitlines(), self.output, block.place),
            "server says": self.hear_server,
            "toml": self.load_settings,
            "key file": self.read_keys,
            "json": lambda block: json.loads(block.text),
            "not run": lambda block: note(f"{block.place} is not run: {block.value}"),
            **dict.fromkeys(INERT, lambda _block: None),
        }

    def take(self, block: Block) -> None:
        """Run a block."""
        assert block.kind in self.handlers, f"{block.place}: no rule for testing {block.kind!r}"
        self.handlers[block.kind](block)

    def here(self, text: str) -> str:
        """Return a text with the address of the running server."""
        return text.replace(DOCUMENTED_URL, self.server.url)

    def run_console(self, block: Block) -> None:
        exit_code = int(block.value) if block.mark == "exit code" else 0
        for command in commands_of(self.here(block.text)):
            if command.line.startswith("export "):
                self.reader = self.reader.after_export(command.line)
            else:
                check_shown(command.shown, self.reader.run(command.line, exit_code), block.place)

    def run_python(self, block: Block) -> None:
        (self.reader.folder / "example.py").write_text(self.here(block.text), encoding="utf-8")
        self.output = self.reader.run(f'"{sys.executable}" example.py')

    def keep_file(self, block: Block) -> None:
        (self.reader.folder / block.value).write_text(block.text, encoding="utf-8")

    def start_server(self, block: Block) -> None:
        [command] = commands_of(block.text)
        self.servers.close()
        self.server = self.servers.enter_context(
            self.reader.serving(f"{command.line} --port 0 --data-dir data")
        )
        check_shown([self.here(line) for line in command.shown], self.server.said, block.place)

    def hear_server(self, block: Block) -> None:
        self.server.wait_until(lambda said: block.text.strip() in said)
        self.wait_until_idle()

    def wait_until_idle(self) -> None:
        """Wait for the end of the runs: only then their records can be read."""
        ask = (
            f'curl -s {self.server.url}/health/detailed -H "Authorization: Bearer $API_SERVER_KEY"'
        )
        self.server.wait_until(lambda _said: '"active_agents": 0' in self.reader.run(ask))

    def load_settings(self, block: Block) -> None:
        path = self.reader.folder / "config.toml"
        path.write_text(block.text, encoding="utf-8")
        (self.reader.folder / "keys.toml").touch()
        load({}, {"HOME": str(self.reader.folder)}, path)

    def read_keys(self, block: Block) -> None:
        path = self.reader.folder / "keys.toml"
        path.write_text(block.text, encoding="utf-8")
        path.chmod(0o600)
        assert not load_key_file(path).is_empty


def note(line: str) -> None:
    """Print a note that pytest shows with the test."""
    sys.stdout.write(f"{line}\n")
