import assert from "node:assert/strict";
import { test } from "node:test";

// What the module needs of a browser: frames come when the test says so.
let frames = [];
globalThis.document = { hidden: false, addEventListener: () => {} };
globalThis.requestAnimationFrame = (work) => frames.push(work);
const { Cell } = await import("../../../hermes_trio/page/js/cell.js");

function nextFrame() {
  const due = frames;
  frames = [];
  for (const work of due) work();
}

test("any number of changes are one drawing, in the next frame", () => {
  const cell = new Cell(0);
  let drawn = 0;
  cell.watch(() => { drawn += 1; });
  for (let number = 1; number <= 1000; number += 1) cell.set(number);
  assert.equal(drawn, 0);
  nextFrame();
  assert.deepEqual([drawn, cell.value], [1, 1000]);
});

test("who has left is not drawn, not even for a change before that", () => {
  const cell = new Cell(0);
  let drawn = 0;
  const leave = cell.watch(() => { drawn += 1; });
  cell.poke();
  leave();
  nextFrame();
  cell.poke();
  nextFrame();
  assert.equal(drawn, 0);
});

test("a change is seen by who looked before and watches after it", () => {
  const cell = new Cell(0);
  const { version } = cell;
  cell.set(1);
  assert.notEqual(cell.version, version);
});

test("a frame that changes something gets another frame", () => {
  const cell = new Cell(0);
  let drawn = 0;
  cell.watch(() => { drawn += 1; if (drawn === 1) cell.poke(); });
  cell.poke();
  nextFrame();
  nextFrame();
  assert.equal(drawn, 2);
});
