// What a screen reader is told: things that happen, never the text as it streams.

import { Cell, useCell } from "./cell.js";
import { html } from "./lib.js";

const note = new Cell("");

export function announce(text) {
  note.set(text);
}

export function Notes() {
  return html`<div class="unseen" role="status" aria-live="polite">${useCell(note)}</div>`;
}
