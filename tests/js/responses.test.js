// The OpenAI client for JavaScript on the Responses API: its plain loop, its stream helper, and what can be asked later.

import assert from "node:assert/strict";
import { test } from "node:test";

import OpenAI from "openai";

const { BASE_URL, API_KEY } = process.env;
assert.ok(BASE_URL && API_KEY, "BASE_URL and API_KEY must be set: python tests/js/run.py does that");

const client = new OpenAI({ baseURL: `${BASE_URL}/v1`, apiKey: API_KEY, timeout: 20_000, maxRetries: 0 });
const limit = { timeout: 30_000 };
const model = "hermes-agent";

function textOf(response) {
  const parts = response.output.filter((item) => item.type === "message").flatMap((item) => item.content);
  return parts.map((part) => part.text).join("");
}

const types = (response) => response.output.map((item) => item.type);

// Numbers without a gap, and text that is the same in pieces and whole.
function check(events) {
  assert.deepEqual(events.map((event) => event.sequence_number), events.map((_, n) => events[0].sequence_number + n));
  const said = events.filter((event) => event.type === "response.output_text.delta").map((event) => event.delta);
  assert.equal(said.join(""), textOf(events.at(-1).response));
  return events.at(-1).response;
}

async function plainLoop(input, options = {}) {
  const events = [];
  for await (const event of await client.responses.create({ model, input, stream: true, ...options })) events.push(event);
  return check(events);
}

async function helper(input, options = {}) {
  const events = [];
  const stream = client.responses.stream({ model, input, ...options });
  for await (const event of stream) events.push(event);
  const last = check(events);
  const final = await stream.finalResponse();
  assert.equal(final.status, last.status);
  assert.deepEqual(types(final), types(last));
  assert.equal(textOf(final), textOf(last));
  return last;
}

const TOOLS = "/think hard\n/terminal echo one\n/write notes.txt two\n/terminal exit 3";

for (const listen of [plainLoop, helper]) {
  test(`${listen.name}: text`, limit, async () => {
    const response = await listen("good morning, ¡señor! 👋");
    assert.equal(response.status, "completed");
    assert.match(textOf(response), /You said: “good morning, ¡señor! 👋”\./u);
  });

  test(`${listen.name}: reasoning and tools`, limit, async () => {
    const response = await listen(TOOLS);
    assert.equal(response.status, "completed");
    const calls = ["mcp_call", "mcp_call", "mcp_call"];
    assert.deepEqual(types(response), ["message", "reasoning", ...calls, "message"]);
  });

  test(`${listen.name}: a failure`, limit, async () => {
    const response = await listen("/terminal true\n/fail the tool shed burned down");
    assert.equal(response.status, "failed");
    assert.match(response.error.message, /the tool shed burned down/);
  });

  test(`${listen.name}: truncation`, limit, async () => {
    const response = await listen("/long 50", { max_output_tokens: 30 });
    assert.equal(response.status, "incomplete");
    assert.equal(response.incomplete_details.reason, "max_output_tokens");
  });
}

test("a response can be fetched, read again, and deleted", limit, async () => {
  const streamed = await plainLoop(TOOLS);
  const kept = await client.responses.retrieve(streamed.id);
  assert.equal(kept.status, "completed");
  assert.equal(kept.output_text, textOf(streamed));
  const events = [];
  for await (const event of await client.responses.retrieve(streamed.id, { stream: true, starting_after: 6 })) {
    events.push(event);
  }
  assert.equal(events[0].sequence_number, 7);
  assert.deepEqual(events.at(-1).response, streamed);
  await client.responses.delete(streamed.id);
  await assert.rejects(client.responses.retrieve(streamed.id), OpenAI.NotFoundError);
});

test("helper: picks up a stream where it broke", limit, async () => {
  const { id } = await client.responses.create({ model, input: TOOLS, background: true });
  const events = [];
  const stream = client.responses.stream({ response_id: id });
  for await (const event of stream) events.push(event);
  assert.equal(check(events).status, "completed");
  const rest = [];
  for await (const event of client.responses.stream({ response_id: id, starting_after: 6 })) rest.push(event);
  assert.deepEqual(rest.map((event) => event.sequence_number), events.slice(7).map((event) => event.sequence_number));
});

test("background, and stopped while somebody listens", limit, async () => {
  const { id, status } = await client.responses.create({ model, input: "/sleep 60", background: true });
  assert.equal(status, "in_progress");
  const events = [];
  let cancelled;
  for await (const event of await client.responses.retrieve(id, { stream: true })) {
    events.push(event);
    if (event.type === "response.mcp_call_arguments.done") cancelled = client.responses.cancel(id);
  }
  assert.equal((await cancelled).status, "cancelled");
  assert.equal(check(events).status, "cancelled");
  assert.equal((await client.responses.cancel(id)).status, "cancelled");
});

test("a chain, and the input of a response", limit, async () => {
  const first = await client.responses.create({ model, input: "hello" });
  assert.match(first.output_text, /demo agent/);
  const second = await client.responses.create({ model, input: "again", previous_response_id: first.id });
  assert.doesNotMatch(second.output_text, /demo agent/);
  const page = await client.responses.inputItems.list(second.id);
  assert.deepEqual(page.data.map((item) => item.content[0].text), ["again"]);
});

test("a conversation", limit, async () => {
  const talk = await client.conversations.create({ metadata: { topic: "tests" } });
  await client.responses.create({ model, input: "/long 2", conversation: talk.id });
  const stream = client.responses.stream({ model, input: "/long 3", conversation: talk.id });
  await stream.finalResponse();
  const roles = [];
  for await (const item of client.conversations.items.list(talk.id, { order: "asc", limit: 3 })) roles.push(item.role);
  assert.deepEqual(roles, ["user", "assistant", "user", "assistant"]);
});

test("plainLoop: leaving ends the response", limit, async () => {
  let id;
  for await (const event of await client.responses.create({ model, input: "/long 100000", stream: true })) {
    id ??= event.response?.id;
    if (event.type === "response.output_text.delta") break;
  }
  const end = Date.now() + 2000;
  let kept = await client.responses.retrieve(id);
  while (kept.status === "in_progress") {
    assert.ok(Date.now() < end, "the response still runs");
    await new Promise((resolve) => setTimeout(resolve, 10));
    kept = await client.responses.retrieve(id);
  }
  assert.equal(kept.status, "incomplete");
  assert.equal(kept.hermes.reason, "client_disconnected");
});
