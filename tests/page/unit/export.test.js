import assert from "node:assert/strict";
import { test } from "node:test";
import { asJson, asMarkdown, fileName } from "../../../hermes_trio/page/js/export.js";

const call = { id: "c1", type: "function", function: { name: "read", arguments: '{"path": "a"}' } };

test("a transcript in Markdown", () => {
  const text = asMarkdown("Plums", [
    { role: "user", content: [{ type: "text", text: "Look" }, { type: "image_url", image_url: { url: "data:image/png;base64,AA" } }] },
    { role: "assistant", content: "I read.", reasoning: "Which\nfile?", tool_calls: [call] },
    { role: "tool", tool_call_id: "c1", content: "````" },
    { role: "assistant", content: "Done." },
  ]);
  assert.equal(text, [
    "# Plums", "## You", "Look", "(an image)", "## Agent", "> Which\n> file?", "I read.", "Calls **read**:",
    '```json\n{"path": "a"}\n```', "Result of **read**:", "`````\n````\n`````", "## Agent", "Done.",
  ].join("\n\n") + "\n");
});

test("the name of a tool whose call is not there", () => {
  assert.match(asMarkdown("x", [{ role: "tool", tool_name: "grep", content: "r" }]), /\*\*grep\*\*/);
});

test("JSON has everything", () => {
  assert.deepEqual(JSON.parse(asJson({ id: "s" }, [{ id: 1 }])), { session: { id: "s" }, messages: [{ id: 1 }] });
});

test("names of files", () => {
  assert.equal(fileName("A/B: ../c ", "md"), "a-b-c.md");
  assert.equal(fileName("日本 語", "json"), "日本-語.json");
  assert.equal(fileName("///", "md"), "session.md");
});
