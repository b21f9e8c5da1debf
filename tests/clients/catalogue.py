"""The clients that are driven, and the features that are checked with each."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen

PYTHON_MODULES = "tests.clients.drivers"


@frozen
class ClientSpec:
    """One row of the table."""

    name: str  # as its users know it
    api: str  # what it speaks, as shown
    package: str  # whose version is shown
    driver: str  # the module of the driver, or the file for Node.js
    argument: str = ""
    environment: str = "main"  # the name of a Python environment, "node" or "codex"
    lacks: Mapping[str, str] = field(factory=dict)  # tests that do not apply, and why
    limits: Mapping[str, str] = field(factory=dict)  # tests that fail by its own fault, and why

    @property
    def id(self) -> str:
        """The name of its tests."""
        return "-".join(filter(None, (self.environment, self.driver, self.argument)))


CHAT, RESPONSES = "Chat Completions", "Responses"
FAILURES = ("test_failure", "test_streamed_failure")
IGNORES_FAILURES = dict.fromkeys(FAILURES, "the client ignores that a response has failed")
HIDES_MESSAGES = dict.fromkeys(FAILURES, "the client raises an error without the message")
IGNORES_STREAMED_FAILURES = {"test_streamed_failure": "the client ignores `response.failed`"}
REPEATS_424 = {
    "test_failure": "the client repeats a turn that failed with 424, unless `maxRetries` is 0; "
    "`agent_failure_status = 400` prevents it"
}
ALWAYS_STREAMS = dict.fromkeys(("test_answer", "test_failure"), "it always streams")

CLIENTS = (
    ClientSpec("OpenAI SDK, Python", CHAT, "openai", "openai_sdk", "chat"),
    ClientSpec("OpenAI SDK, Python", f"{CHAT}, stream helper", "openai", "openai_sdk", "chat helper"),
    ClientSpec("OpenAI SDK, Python", RESPONSES, "openai", "openai_sdk", "responses"),
    ClientSpec("OpenAI SDK, Python", f"{RESPONSES}, stream helper", "openai", "openai_sdk", "responses helper"),
    ClientSpec("OpenAI Agents SDK, Python", RESPONSES, "openai-agents", "openai_agents", "responses"),
    ClientSpec("OpenAI Agents SDK, Python", CHAT, "openai-agents", "openai_agents", "chat"),
    ClientSpec("Pydantic AI", RESPONSES, "pydantic-ai-slim", "pydantic_ai_agent", "responses"),
    ClientSpec("Pydantic AI", CHAT, "pydantic-ai-slim", "pydantic_ai_agent", "chat"),
    ClientSpec("LangChain, Python", RESPONSES, "langchain-openai", "langchain_agent", "responses"),
    ClientSpec("LangChain, Python", CHAT, "langchain-openai", "langchain_agent", "chat"),
    ClientSpec("LiteLLM", CHAT, "litellm", "litellm_sdk", "chat", "openai_2"),
    ClientSpec("LiteLLM", RESPONSES, "litellm", "litellm_sdk", "responses", "openai_2"),
    ClientSpec("LlamaIndex `OpenAILike`", CHAT, "llama-index-llms-openai-like", "llama_index_llm", "like", "openai_2"),
    ClientSpec("LlamaIndex `OpenAI`", CHAT, "llama-index-llms-openai", "llama_index_llm", "chat", "openai_2"),
    ClientSpec("LlamaIndex `OpenAIResponses`", RESPONSES, "llama-index-llms-openai", "llama_index_llm", "responses", "openai_2", limits=IGNORES_FAILURES),
    ClientSpec("OpenAI SDK, JavaScript", CHAT, "openai", "openai", "chat", "node"),
    ClientSpec("OpenAI SDK, JavaScript", f"{CHAT}, stream helper", "openai", "openai", "chat+helper", "node"),
    ClientSpec("OpenAI SDK, JavaScript", RESPONSES, "openai", "openai", "responses", "node"),
    ClientSpec("OpenAI SDK, JavaScript", f"{RESPONSES}, stream helper", "openai", "openai", "responses+helper", "node"),
    ClientSpec("AI SDK `openai()`", RESPONSES, "@ai-sdk/openai", "ai_sdk", "responses", "node"),
    ClientSpec("AI SDK `openai.chat()`", CHAT, "@ai-sdk/openai", "ai_sdk", "chat", "node"),
    ClientSpec("AI SDK `openai-compatible`", CHAT, "@ai-sdk/openai-compatible", "ai_sdk", "compatible", "node"),
    ClientSpec("OpenAI Agents SDK, JavaScript", RESPONSES, "@openai/agents", "openai_agents", "responses", "node", limits=HIDES_MESSAGES),
    ClientSpec("OpenAI Agents SDK, JavaScript", CHAT, "@openai/agents", "openai_agents", "chat", "node"),
    ClientSpec("LangChain, JavaScript", RESPONSES, "@langchain/openai", "langchain", "responses", "node", limits=IGNORES_STREAMED_FAILURES),
    ClientSpec("LangChain, JavaScript", CHAT, "@langchain/openai", "langchain", "chat", "node", limits=REPEATS_424),
    ClientSpec("Codex CLI", RESPONSES, "@openai/codex", "codex", "", "codex", ALWAYS_STREAMS),
)  # fmt: skip
