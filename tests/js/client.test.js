// The OpenAI client for JavaScript, its plain loop and its stream helper, against the server at BASE_URL.

import assert from "node:assert/strict";
import { test } from "node:test";

import OpenAI from "openai";

const { BASE_URL, API_KEY } = process.env;
assert.ok(BASE_URL && API_KEY, "BASE_URL and API_KEY must be set: python tests/js/run.py does that");

const client = new OpenAI({ baseURL: `${BASE_URL}/v1`, apiKey: API_KEY, timeout: 20_000 });
const limit = { timeout: 30_000 };

// A second turn: the demo agent introduces itself in the first one.
function asked(text, options = {}) {
  const messages = [
    { role: "user", content: "hello" },
    { role: "assistant", content: "hello" },
    { role: "user", content: text },
  ];
  return { model: "hermes-agent", messages, stream: true, ...options };
}

// In the manner of a tutorial: nothing is checked before it is used.
function take(heard, chunk) {
  const choice = chunk.choices[0];
  heard.text += choice.delta.content ?? "";
  heard.thoughts += choice.delta.reasoning_content ?? "";
  heard.finish = choice.finish_reason ?? heard.finish;
  if (chunk.toolCallId) heard.tools.push([chunk.toolCallId, chunk.status]);
}

const nothing = () => ({ text: "", thoughts: "", finish: null, tools: [] });

async function plainLoop(text, options) {
  const heard = nothing();
  for await (const chunk of await client.chat.completions.create(asked(text, options))) take(heard, chunk);
  return heard;
}

async function helper(text, options) {
  const heard = nothing();
  const stream = client.chat.completions.stream(asked(text, options));
  for await (const chunk of stream) take(heard, chunk);
  const message = await stream.finalMessage();
  assert.equal(message.content, heard.text);
  return heard;
}

for (const listen of [plainLoop, helper]) {
  test(`${listen.name}: text`, limit, async () => {
    const heard = await listen("good morning, ¡señor! 👋");
    assert.match(heard.text, /^You said: “good morning, ¡señor! 👋”\./u);
    assert.equal(heard.finish, "stop");
  });

  test(`${listen.name}: reasoning`, limit, async () => {
    const heard = await listen("/think step by step");
    assert.equal(heard.thoughts, "step by step");
    assert.match(heard.text, /I thought about it/);
  });

  test(`${listen.name}: tool progress breaks nothing`, limit, async () => {
    const heard = await listen("/terminal echo one\n/write notes.txt two\n/terminal exit 3");
    assert.equal(heard.finish, "stop");
    assert.deepEqual(heard.tools.map(([, status]) => status), Array(3).fill(["running", "completed"]).flat());
    assert.equal(new Set(heard.tools.map(([id]) => id)).size, 3);
  });

  test(`${listen.name}: a failure is thrown`, limit, async () => {
    await assert.rejects(listen("/terminal true\n/fail the tool shed burned down"), (error) => {
      assert.ok(error instanceof OpenAI.APIError, String(error));
      assert.match(error.message, /the tool shed burned down/);
      assert.equal(error.code, "agent_error");
      return true;
    });
  });

  test(`${listen.name}: truncation`, limit, async () => {
    const heard = await listen("/long 50", { max_tokens: 3 });
    assert.equal(heard.text, "word1 word2 word3 ");
    assert.equal(heard.finish, "length");
  });
}

test("usage comes last if asked for", limit, async () => {
  const chunks = [];
  const options = { stream_options: { include_usage: true } };
  for await (const chunk of await client.chat.completions.create(asked("/long 5", options))) chunks.push(chunk);
  const last = chunks.pop();
  assert.deepEqual(last.choices, []);
  assert.equal(last.usage.completion_tokens, 5);
  assert.ok(chunks.every((chunk) => chunk.usage === null && chunk.choices.length === 1));
});

test("an answer in one piece", limit, async () => {
  const answer = await client.chat.completions.create(asked("/long 2", { stream: false }));
  assert.equal(answer.choices[0].message.content, "word1 word2 ");
});

test("an agent that raises is not asked again", limit, async () => {
  const before = await countRuns();
  await assert.rejects(client.chat.completions.create(asked("/fail no", { stream: false })), (error) => {
    assert.equal(error.status, 424);
    assert.equal(error.headers.get("x-should-retry"), "false");
    return true;
  });
  assert.equal(await countRuns(), before + 1);
});

async function countRuns() {
  const answer = await fetch(`${BASE_URL}/v1/runs?limit=100`, { headers: { Authorization: `Bearer ${API_KEY}` } });
  return (await answer.json()).data.length;
}

test("models and a wrong key", limit, async () => {
  assert.deepEqual((await client.models.list()).data.map((model) => model.id), ["hermes-agent"]);
  const stranger = new OpenAI({ baseURL: `${BASE_URL}/v1`, apiKey: "ht-not-the-key" });
  await assert.rejects(stranger.models.list(), OpenAI.AuthenticationError);
});

async function health() {
  const answer = await fetch(`${BASE_URL}/health/detailed`, { headers: { Authorization: `Bearer ${API_KEY}` } });
  return answer.json();
}

// Looks at another process, so there is nothing to wait on: a short and bounded loop.
async function idleWithin(milliseconds) {
  const end = Date.now() + milliseconds;
  while ((await health()).slots.in_use > 0) {
    assert.ok(Date.now() < end, "the agent still runs");
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

test("plainLoop: leaving interrupts the agent", limit, async () => {
  await idleWithin(1000);
  for await (const chunk of await client.chat.completions.create(asked("/long 100000"))) {
    if (chunk.choices[0].delta.content) break;
  }
  await idleWithin(1000);
});

test("plainLoop: aborting a silent stream interrupts the agent", limit, async () => {
  const stream = await client.chat.completions.create(asked("/sleep 60"));
  for await (const chunk of stream) {
    if (chunk.status === "running") stream.controller.abort();
  }
  await idleWithin(1000);
});

test("helper: aborting interrupts the agent", limit, async () => {
  const stream = client.chat.completions.stream(asked("/long 100000"));
  stream.on("content", () => stream.abort());
  await assert.rejects(stream.done(), OpenAI.APIUserAbortError);
  await idleWithin(1000);
});
