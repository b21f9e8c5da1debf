"""A stand-in for the package ``hermes-agent``.

The names that we use, under the modules where it has them.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from attrs import define, field

Script = Callable[["FakeAIAgent"], Mapping[str, Any]]


def done(text: str = "", **more: Any) -> dict[str, Any]:
    """What ``run_conversation`` returns at the end of a good turn."""
    return {"final_response": text, "completed": True, "failed": False, "partial": False, **more}


class FakeAIAgent:
    """Notes what it is given, and does what the test says."""

    def __init__(self, package: FakePackage, **kwargs: Any) -> None:
        if package.construction_fails:
            raise package.construction_fails
        self.package, self.kwargs = package, kwargs
        self.asked: dict[str, Any] = {}
        self.session_id = kwargs.get("session_id")
        self.session_prompt_tokens, self.session_completion_tokens = 11, 7
        self.session_cache_read_tokens, self.session_reasoning_tokens = 3, 2
        self.interrupts: list[str] = []
        self.interrupted = threading.Event()
        self.released = 0
        package.agents.append(self)
        package.constructed.set()

    def run_conversation(self, **asked: Any) -> Mapping[str, Any]:
        self.asked = asked
        self.package.note("running")
        for message in asked["conversation_history"]:
            message["_db_persisted"] = True
        return self.package.script(self)

    def interrupt(self, reason: str) -> None:
        self.interrupts.append(reason)
        self.interrupted.set()

    def release_clients(self) -> None:
        self.released += 1
        if self.package.release_fails:
            raise RuntimeError("no connection to close")

    def call(self, name: str, *args: Any, **more: Any) -> None:
        """Call a callback as the real one does: whatever it raises is swallowed."""
        with contextlib.suppress(Exception):
            self.kwargs[name](*args, **more)


@define(eq=False)
class _Entry:
    data: Mapping[str, Any]
    event: threading.Event = field(factory=threading.Event)
    result: str | None = None


@define(eq=False)
class FakePackage:
    """All of it."""

    script: Script = lambda _agent: done("Hello")
    agents: list[FakeAIAgent] = field(factory=list)
    events: list[str] = field(factory=list)  # what was called around turns, in order
    constructed: threading.Event = field(factory=threading.Event)
    construction_fails: Exception | None = None
    release_fails: bool = False
    stored: dict[str, list[dict[str, Any]]] = field(factory=dict)
    notify: dict[str, Callable[[Mapping[str, Any]], None]] = field(factory=dict)
    queues: dict[str, list[_Entry]] = field(factory=dict)
    lock: threading.Lock = field(factory=threading.Lock)

    @property
    def agent(self) -> FakeAIAgent:
        """The last one that was made."""
        return self.agents[-1]

    def note(self, event: str) -> None:
        self.events.append(event)

    def ask(self, run_id: str, question: dict[str, Any]) -> str | None:
        """As a tool asks for an approval: waits in its thread."""
        entry = _Entry(question)
        with self.lock:
            self.queues.setdefault(run_id, []).append(entry)
        self.notify[run_id](question)
        assert entry.event.wait(10)
        return entry.result

    def install(self, monkeypatch: pytest.MonkeyPatch, without: tuple[str, ...] = ()) -> None:
        """Put it where imports find it, without some of its names."""
        for path, names in self._modules().items():
            kept = {name: value for name, value in names.items() if f"{path}.{name}" not in without}
            module = ModuleType(path)
            module.__spec__ = ModuleSpec(path, None)
            module.__dict__.update(kept)
            monkeypatch.setitem(sys.modules, path, module)

    def _modules(self) -> dict[str, dict[str, Any]]:
        return {
            "run_agent": {"AIAgent": lambda **kwargs: FakeAIAgent(self, **kwargs)},
            "gateway": {},
            "gateway.run": self._gateway(),
            "gateway.session_context": {
                "set_session_vars": lambda **them: self.note(f"vars {sorted(them.items())}"),
                "clear_session_vars": lambda _tokens: self.note("vars cleared"),
            },
            "hermes_cli": {},
            "hermes_cli.profiles": {
                "profile_exists": lambda name: name == "work",
                "get_profile_dir": lambda name: Path("/profiles") / name,
            },
            "hermes_cli.tools_config": {
                "_get_platform_tools": lambda config, _platform, **_: set(config["sets"]),
                "_get_effective_configurable_toolsets": lambda: [
                    ("file", "Files", "Reads files"),
                    ("broken", "Broken", ""),
                    ("web", "Web", ""),
                ],
                "_toolset_has_keys": lambda name, _config: name != "web",
            },
            "hermes_cli.config": {"load_config": lambda: {"sets": ["web", "file"]}},
            "toolsets": {
                "resolve_toolset": lambda name: {"file": ["read_file"], "web": ["web_search"]}[name]
            },
            "tools.skills_tool": {
                "_find_all_skills": lambda: [
                    {"name": "knots", "description": "Tie knots", "category": None}
                ],
                "_sort_skills": list,
            },
            "hermes_constants": {
                "get_hermes_home": lambda: Path("/hermes-home"),
                "parse_reasoning_effort": lambda effort: {"effort": effort},
            },
            "hermes_logging": {"setup_logging": lambda: None},
            "hermes_state": {"SessionDB": lambda db_path: FakeSessionDB(self, db_path)},
            "tools": {},
            "tools.approval": self._approval(),
            "tools.env_probe": {"get_environment_probe_line": lambda: self.note("probed")},
        }

    def _gateway(self) -> dict[str, Any]:
        class GatewayRunner:
            @staticmethod
            def _load_reasoning_config() -> Any:
                return {"effort": "configured"}

            @staticmethod
            def _load_fallback_model() -> Any:
                return ["fallback"]

        @contextlib.contextmanager
        def scope(home: Path) -> Iterator[None]:
            self.note(f"home {home}")
            yield
            self.note("home left")

        return {
            "GatewayRunner": GatewayRunner,
            "_profile_runtime_scope": scope,
            "_resolve_runtime_agent_kwargs": lambda: {
                "base_url": "http://configured",
                "api_key": "theirs",
            },
            "_resolve_runtime_agent_kwargs_for_provider": lambda name: {
                "provider": name,
                "api_key": "p",
            },
            "_resolve_gateway_model": lambda: "configured-model",
            "_load_gateway_config": lambda: {"sets": ["web", "file"]},
            "_current_max_iterations": lambda: 33,
        }

    def _approval(self) -> dict[str, Any]:
        def unregister(run_id: str) -> None:
            self.note("approvals closed")
            self.notify.pop(run_id)
            for entry in self.queues.pop(run_id, []):
                entry.event.set()

        def resolve(run_id: str, choice: str) -> None:
            entry = self.queues[run_id].pop(0)
            entry.result = choice
            entry.event.set()

        return {
            "set_current_session_key": lambda run_id: self.note(f"key {run_id}"),
            "reset_current_session_key": lambda _token: self.note("key reset"),
            "register_gateway_notify": self.notify.__setitem__,
            "unregister_gateway_notify": unregister,
            "resolve_gateway_approval": resolve,
            "_lock": self.lock,
            "_gateway_queues": self.queues,
        }


@define(eq=False)
class FakeSessionDB:
    """Its database of sessions."""

    package: FakePackage
    db_path: Path
    closed: int = 0

    def get_messages_as_conversation(self, session_id: str) -> list[dict[str, Any]]:
        if session_id == "broken":
            raise OSError("disk")
        return self.package.stored.get(session_id, [])

    def close(self) -> None:
        self.closed += 1
        self.package.note("database closed")
