// Small parts that many views use.

import { html, useRef, useState } from "./lib.js";
import { announce } from "./notes.js";

const SPRITE = new URL("../icons.svg", import.meta.url).pathname;

// `more` are further classes, such as "spin".
export function Icon({ name, more = "" }) {
  return html`<svg class="i ${more}" aria-hidden="true"><use href=${`${SPRITE}#${name}`} /></svg>`;
}

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
  return html`<button type="button" class="quiet copy" title=${title} onClick=${copy}><${Icon} name=${isDone ? "check" : "copy"} />${isDone ? "Copied" : label}</button>`;
}

const WORDS = {
  queued: "queued", running: "running", waiting_for_approval: "asks", stopping: "stopping", completed: "completed",
  failed: "failed", cancelled: "stopped", incomplete: "incomplete",
};
const SIGNS = {
  queued: "queue", running: "spin", waiting_for_approval: "wait", stopping: "spin", completed: "check", failed: "failed",
  cancelled: "off", incomplete: "off", "handed over": "out",
};

export function Sign({ status }) {
  const name = SIGNS[status] ?? "off";
  return html`<${Icon} name=${name} more=${name === "spin" ? "spin" : ""} />`;
}

// `reason`: what there is to say instead of the status itself.
export function Status({ status, reason }) {
  return html`<span class="status ${status}"><${Sign} status=${status} />${reason || (WORDS[status] ?? status)}</span>`;
}

// A wing that beats while something works.
export function Wing() {
  return html`<svg class="wing" viewBox="0 0 24 24" aria-hidden="true"><path d="M3.5 18.5C5.5 10.5 11.5 6 21 5" /><path d="M9 18.8C11 14.8 14.8 12.5 20.3 12" /><path d="M14.3 19.2c1.2-.6 2.7-.9 4.5-.9" /></svg>`;
}

export function Problem({ text, retry }) {
  return html`<p class="problem" role="alert">${text}${retry && html` <button type="button" onClick=${retry}>Try again</button>`}</p>`;
}
