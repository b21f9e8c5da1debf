import assert from "node:assert/strict";
import { test } from "node:test";
import { ago, brief, byDay, bytes, counted, oneLine, running, seconds } from "../../../hermes_trio/page/js/format.js";
import { ticks } from "../../../hermes_trio/page/js/timeline.js";
import { iconOf } from "../../../hermes_trio/page/js/tool_icons.js";
import { statusOf } from "../../../hermes_trio/page/js/words.js";
import { askWithCurl, askWithPython, followWithCurl, shellQuoted } from "../../../hermes_trio/page/js/snippets.js";

test("times", () => {
  assert.deepEqual([0.0004, 0.25, 1, 59.94, 60, 3725].map(seconds), ["0 ms", "250 ms", "1.0 s", "59.9 s", "1:00", "1:02:05"]);
  assert.deepEqual([-1, 0.9, 31.7, 75].map(running), ["0 s", "0 s", "31 s", "1:15"]);
  assert.deepEqual([5, 120, 7200].map((passed) => ago(1000, 1000 + passed)), ["just now", "2 min ago", "2 h ago"]);
});

test("sizes and lines", () => {
  assert.deepEqual([512, 1536, 5 * 1048576].map(bytes), ["512 B", "1.5 KiB", "5.0 MiB"]);
  assert.equal(oneLine(" a\n b ".repeat(50), 10).length, 10);
});

test("sessions by day", () => {
  const now = new Date(2026, 10, 19, 12).getTime() / 1000;
  const sessions = [0.1, 0.4, 1, 3, 30].map((days) => ({ last_active: now - days * 86_400 }));
  assert.deepEqual(byDay(sessions, now).map(([day, list]) => [day, list.length]), [["Today", 2], ["Yesterday", 1], ["Last 7 days", 1], ["Earlier", 1]]);
  assert.deepEqual(byDay([], now), []);
});

test("nouns are counted", () => {
  assert.deepEqual([0, 1, 2000].map((value) => counted(value, "tool call")), ["0 tool calls", "1 tool call", "2,000 tool calls"]);
});

test("an axis has a few round marks", () => {
  assert.deepEqual(ticks(0.32).map((at) => Math.round(at * 1000)), [0, 100, 200, 300]);
  assert.deepEqual(ticks(7), [0, 2, 4, 6]);
  for (const length of [0.001, 0.0123, 0.9, 5, 61, 999, 86_400]) {
    const count = ticks(length).length;
    assert.ok(count >= 2 && count <= 7, `${count} marks for ${length} s`);
  }
});

test("tools have icons", () => {
  assert.deepEqual(["terminal", "read_file", "web_fetch", "search_files", "lookup"].map(iconOf), ["terminal", "file", "globe", "find", "agent"]);
});

test("a run that was cut short has not failed", () => {
  assert.equal(statusOf({ status: "failed", reason: "client_disconnected" }), "incomplete");
  assert.equal(statusOf({ status: "failed", reason: "agent_error" }), "failed");
  assert.equal(statusOf({ status: "completed", incomplete: true }), "incomplete");
});

test("what takes less than ten milliseconds has two digits", () => {
  assert.deepEqual([0, 0.000214, 0.0042, 0.00999, 0.0123, 1.25, null].map(brief), ["0 ms", "0.21 ms", "4.2 ms", "10 ms", "12 ms", "1.3 s", ""]);
});

test("commands to copy hold no key and survive quotes", () => {
  assert.equal(shellQuoted("it's"), `'it'\\''s'`);
  const curl = askWithCurl("http://s", "m", "it's $HOME");
  assert.ok(curl.includes(`'{"model":"m","input":"it'\\''s $HOME","stream":true}'`));
  assert.ok(curl.includes('"Authorization: Bearer $API_SERVER_KEY"'));
  assert.ok(followWithCurl("http://s", "run_1").includes("http://s/v1/runs/run_1/events"));
  const picture = [{ type: "text", text: "x" }, { type: "image_url", image_url: { url: "data:image/png;base64,AA" } }];
  assert.ok(askWithPython("http://s", "m", picture).includes('"type":"input_image"'));
});
