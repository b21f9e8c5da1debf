import assert from "node:assert/strict";
import { test } from "node:test";
import { readEvents, SseParser } from "../../../hermes_trio/page/js/sse.js";

const STREAM = 'id: 1\nevent: a\ndata: {"x": 1}\n\n: keepalive\n\ndata: two\ndata: lines\n\nevent: none\n\ndata\n\n';
const EVENTS = [
  { id: "1", event: "a", data: '{"x": 1}' },
  { id: "", event: "", data: "two\nlines" },
  { id: "", event: "", data: "" },
];

test("events of a stream in one piece", () => {
  assert.deepEqual(new SseParser().push(STREAM), EVENTS);
});

test("the pieces in which a stream arrives make no difference", () => {
  for (const ends of ["\n", "\r\n", "\r"]) {
    const text = STREAM.replaceAll("\n", ends);
    for (let size = 1; size < 12; size += 1) {
      const parser = new SseParser();
      const found = [];
      for (let at = 0; at < text.length; at += size) found.push(...parser.push(text.slice(at, at + size)));
      assert.deepEqual([...found, ...parser.push("\n")], EVENTS, `${JSON.stringify(ends)} by ${size}`);
    }
  }
});

test("an event that is not complete is not told", () => {
  assert.deepEqual(new SseParser().push("data: half\n"), []);
});

test("characters that are cut in the middle", async () => {
  const bytes = new TextEncoder().encode("data: žluťoučký kůň 🐎\n\n");
  const body = new ReadableStream({
    start(controller) {
      for (const byte of bytes) controller.enqueue(Uint8Array.of(byte));
      controller.close();
    },
  });
  const found = [];
  let heard = 0;
  await readEvents({ body }, (event) => found.push(event.data), () => { heard += 1; });
  assert.deepEqual(found, ["žluťoučký kůň 🐎"]);
  assert.equal(heard, bytes.length);
});
