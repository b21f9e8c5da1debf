// A value that views look at. Changes are put on the screen once per animation frame, however many there were.

import { useEffect, useState } from "./lib.js";

const waiting = new Set();

function flush() {
  const due = [...waiting];
  waiting.clear();
  for (const draw of due) draw();
}

// A hidden page has no frames; what it does must still be seen by screen readers and tests of the title.
function schedule() {
  if (document.hidden) setTimeout(flush, 250);
  else requestAnimationFrame(flush);
}

function soon(draw) {
  if (!waiting.size) schedule();
  waiting.add(draw);
}

document.addEventListener("visibilitychange", () => waiting.size && flush());

export class Cell {
  #viewers = new Set();

  constructor(value) {
    this.value = value;
    this.version = 0;
  }

  set(value) {
    this.value = value;
    this.poke();
  }

  // The value changed inside.
  poke() {
    this.version += 1;
    for (const viewer of this.#viewers) soon(viewer);
  }

  watch(viewer) {
    this.#viewers.add(viewer);
    return () => {
      this.#viewers.delete(viewer);
      waiting.delete(viewer);
    };
  }
}

export function useCell(cell) {
  const [, draw] = useState(0);
  const drawn = cell.version;
  useEffect(() => {
    const again = () => draw((number) => number + 1);
    if (cell.version !== drawn) again(); // it changed after it was drawn and before anybody watched
    return cell.watch(again);
  }, [cell]);
  return cell.value;
}

// Draws again at every tick while it is on: for timers.
export function useTicks(isOn, milliseconds = 1000) {
  const [, draw] = useState(0);
  useEffect(() => {
    if (!isOn) return undefined;
    const timer = setInterval(() => draw((number) => number + 1), milliseconds);
    return () => clearInterval(timer);
  }, [isOn, milliseconds]);
}
