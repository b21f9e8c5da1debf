import assert from "node:assert/strict";
import { test } from "node:test";
import { fromSession } from "../../../hermes_trio/page/js/events.js";
import { spans } from "../../../hermes_trio/page/js/timeline.js";
import { messageOf, turnsOf } from "../../../hermes_trio/page/js/transcript.js";
import { answerText, isOver, MOST_OUTPUT, newTurn, pending, take } from "../../../hermes_trio/page/js/turn.js";

const EVENTS = [
  { event: "run.started", run_id: "r", timestamp: 100 },
  { event: "reasoning.delta", delta: "hm", timestamp: 100 },
  { event: "message.delta", delta: "Let me ", timestamp: 100 },
  { event: "message.delta", delta: "look.", timestamp: 100 },
  { event: "tool.started", tool: "terminal", preview: "ls", toolCallId: "c1", args: { command: "ls" }, timestamp: 101 },
  { event: "approval.request", approval_id: "a1", toolCallId: "c1", command: "ls", description: "why", choices: ["once", "deny"], pattern_keys: [], timeout: 60, timestamp: 101.5 },
  { event: "approval.responded", approval_id: "a1", choice: "once", by: "client", timestamp: 103 },
  { event: "tool.output", toolCallId: "c1", delta: "a\n", timestamp: 103 },
  { event: "tool.completed", tool: "terminal", toolCallId: "c1", duration: 3, error: false, result: "a", status: "completed", timestamp: 104 },
  { event: "message.delta", delta: "Done.", timestamp: 104 },
  { event: "run.completed", output: "Done.", usage: { output_tokens: 5 }, timestamp: 106 },
].map((event, seq) => ({ ...event, seq }));

function told(events) {
  return events.reduce(take, newTurn());
}

test("a turn from its events", () => {
  const turn = told(EVENTS);
  assert.deepEqual(turn.parts.map((part) => part.type), ["reasoning", "text", "tool", "approval", "text"]);
  assert.deepEqual([turn.status, turn.runId, turn.began, turn.ended, turn.usage.output_tokens], ["completed", "r", 100, 106, 5]);
  assert.equal(answerText(turn), "Let me look.\n\nDone.");
  const call = turn.parts[2];
  assert.deepEqual([call.status, call.duration, call.result, call.began], ["completed", 3, "a", 101]);
});

test("events that come twice count once, wherever the stream is taken up", () => {
  const whole = told(EVENTS);
  for (let cut = 0; cut < EVENTS.length; cut += 1) {
    for (let again = 0; again <= cut; again += 3) {
      const turn = told([...EVENTS.slice(0, cut), ...EVENTS.slice(again)]);
      assert.equal(answerText(turn), answerText(whole));
      assert.deepEqual(turn.parts[2], whole.parts[2]);
    }
  }
});

test("a question that waits", () => {
  const turn = told(EVENTS.slice(0, 6));
  assert.equal(turn.status, "waiting_for_approval");
  assert.deepEqual(pending(turn).map((part) => part.id), ["a1"]);
  assert.equal(told(EVENTS.slice(0, 7)).status, "running");
});

test("what was open when a run ended is closed", () => {
  const turn = told([...EVENTS.slice(0, 6), { event: "run.cancelled", seq: 6, timestamp: 105, reason: "stop_requested" }]);
  assert.equal(isOver(turn), true);
  assert.equal(turn.parts[2].status, "cancelled");
  assert.equal(turn.parts[3].by, "run_ended");
});

test("errors of either form", () => {
  assert.equal(told([{ event: "run.failed", seq: 0, error: "no" }]).error, "no");
  assert.equal(told([{ event: "run.failed", seq: 0, error: { message: "no" } }]).error, "no");
});

test("live output has a bound", () => {
  const start = EVENTS[4];
  const turn = told([start, ...Array.from({ length: 30 }, (_, n) => ({ event: "tool.output", toolCallId: "c1", delta: "x".repeat(1000), seq: 10 + n }))]);
  assert.equal(turn.parts[0].output.length, MOST_OUTPUT);
});

test("ten thousand pieces of text are quick", () => {
  const turn = newTurn();
  const began = performance.now();
  for (let seq = 0; seq < 10_000; seq += 1) {
    take(turn, { event: "message.delta", delta: seq % 40 ? "word " : "\n\n", seq, timestamp: 1 });
    if (seq % 10 === 0) void turn.parts[0].doc.blocks;
  }
  assert.ok(performance.now() - began < 2000);
  assert.equal(turn.parts[0].doc.blocks.length, 250);
});

// -- the dialect of sessions --

test("a session's events tell the same turn", () => {
  const said = [
    ["run.started", { user_message: { role: "user", content: "hi" } }],
    ["message.started", { message: { id: "m" } }],
    ["tool.progress", { tool_name: "_thinking", delta: "hm" }],
    ["assistant.delta", { delta: "Yes." }],
    ["tool.started", { tool_name: "terminal", toolCallId: "c", preview: "ls", args: {} }],
    ["tool.output", { tool_name: "terminal", toolCallId: "c", delta: "x" }],
    ["tool.completed", { tool_name: "terminal", toolCallId: "c", result: "x", duration: 1, error: true, status: "completed" }],
    ["assistant.completed", { content: "Yes." }],
    ["run.completed", { usage: { output_tokens: 1 }, completed: true, partial: false, interrupted: false }],
    ["done", { status: "completed" }],
  ].map(([kind, data], n) => fromSession(kind, { run_id: "r", seq: n + 1, ts: 50 + n, ...data }));
  const turn = told(said);
  assert.deepEqual(turn.parts.map((part) => part.type), ["reasoning", "text", "tool"]);
  assert.deepEqual([turn.question, turn.status, turn.parts[2].status, turn.parts[2].name], ["hi", "completed", "failed", "terminal"]);
  assert.equal(said.at(-1).event, "stream.done");
});

test("how a session's turn ends", () => {
  const ended = (kind, data) => told([fromSession(kind, { run_id: "r", seq: 1, ts: 1, ...data })]);
  assert.equal(ended("run.completed", { interrupted: true, partial: true, reason: "stop_requested" }).status, "cancelled");
  assert.deepEqual(ended("error", { message: "broken", reason: "agent_error" }).error, "broken");
});

// -- transcripts --

const MESSAGES = [
  { id: 1, role: "user", content: "one", run_id: "r1", timestamp: 1 },
  { id: 2, role: "assistant", content: "", reasoning: "hm", tool_calls: [{ id: "c", function: { name: "ls", arguments: '{"path": "x"}' } }], run_id: "r1", timestamp: 2 },
  { id: 3, role: "tool", content: "found", tool_call_id: "c", tool_name: "ls", run_id: "r1", timestamp: 3 },
  { id: 4, role: "assistant", content: "there", run_id: "r1", timestamp: 4 },
  { id: 5, role: "user", content: [{ type: "text", text: "two" }], run_id: "r2", timestamp: 5 },
];

test("turns of a transcript", () => {
  const turns = turnsOf(MESSAGES, new Map([["r2", { status: "failed", error: "oh", created_at: 5, updated_at: 9 }]]));
  assert.deepEqual(turns.map((turn) => [turn.runId, turn.status, turn.error]), [["r1", "completed", ""], ["r2", "failed", "oh"]]);
  assert.deepEqual(turns[0].parts.map((part) => part.type), ["reasoning", "tool", "text"]);
  assert.deepEqual([turns[0].parts[1].result, turns[0].parts[1].label], ["found", "x"]);
});

test("the message that a turn began with", () => {
  assert.equal(messageOf(MESSAGES, { messageId: 5, runId: "r2" }), 5);
  assert.equal(messageOf(MESSAGES, { messageId: 0, runId: "r1" }), 1);
  assert.equal(messageOf(MESSAGES, { messageId: 1, runId: "" }), 1);
  assert.equal(messageOf(MESSAGES, { messageId: 0, runId: "" }), 0); // not stored: a branch takes everything
  assert.equal(messageOf(MESSAGES, { messageId: 7, runId: "r7" }), 0);
});

// -- the timeline --

test("bars over time", () => {
  const { length, bars } = spans(told(EVENTS), 999);
  assert.equal(length, 6);
  assert.deepEqual(bars.map((bar) => bar.kind), ["reasoning", "text", "tool", "approval", "text"]);
  const tool = bars[2];
  assert.ok(Math.abs(tool.left - 1 / 6) < 1e-9 && Math.abs(tool.width - 0.5) < 1e-9);
  for (const bar of bars) assert.ok(bar.left >= 0 && bar.left + bar.width <= 1 + 1e-9);
});

test("a tool that runs grows with the clock", () => {
  const { bars } = spans(told(EVENTS.slice(0, 5)), 111);
  assert.equal(bars[2].seconds, 10);
});
