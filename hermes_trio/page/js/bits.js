// Small parts that many views use.

import { html, useRef, useState } from "./lib.js";
import { announce } from "./notes.js";

export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    copyOldWay(text); // pages that came by plain http from another machine have no clipboard
  }
  announce("Copied.");
}

function copyOldWay(text) {
  const field = document.createElement("textarea");
  field.value = text;
  field.className = "unseen";
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
}

export function CopyButton({ text, label = "Copy", title }) {
  const [isDone, setDone] = useState(false);
  const timer = useRef(0);
  const copy = async () => {
    await copyText(typeof text === "function" ? text() : text);
    setDone(true);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => setDone(false), 1500);
  };
  return html`<button type="button" class="quiet copy" title=${title} onClick=${copy}>${isDone ? "Copied" : label}</button>`;
}

const WORDS = {
  queued: "queued", running: "running", waiting_for_approval: "asks", stopping: "stopping", completed: "completed",
  failed: "failed", cancelled: "stopped",
};

export function Status({ status, incomplete }) {
  return html`<span class="status ${status}"><span class="dot" aria-hidden="true"></span>${incomplete ? "incomplete" : WORDS[status] ?? status}</span>`;
}

export function Problem({ text, retry }) {
  return html`<p class="problem" role="alert">${text}${retry && html` <button type="button" onClick=${retry}>Try again</button>`}</p>`;
}
