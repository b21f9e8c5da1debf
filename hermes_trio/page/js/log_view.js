// The log of the server as it is written, for the key of an administrator.

import { request } from "./api.js";
import { Cell, useCell } from "./cell.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "./lib.js";
import { readEvents } from "./sse.js";

const MOST = 500; // lines on the screen
const AGAIN = 3000; // milliseconds until a stream that ended is asked for again
const GRAVE = new Set(["warning", "error", "critical"]);

// state: "" before the first answer, "live", "lost" while the server is gone, or "refused" for other keys.
const log = new Cell({ state: "", lines: [] });

async function follow(signal) {
  while (!signal.aborted) {
    try {
      const last = log.value.lines.at(-1);
      const response = await request("GET", "/api/logs", { signal, headers: last ? { "Last-Event-ID": String(last.number) } : {} });
      log.set({ ...log.value, state: "live" });
      await readEvents(response, (frame) => take(JSON.parse(frame.data)));
    } catch (error) {
      if (error.status === 403 || error.status === 401) return void log.set({ state: "refused", lines: [] });
    }
    if (signal.aborted) return;
    log.set({ ...log.value, state: "lost" });
    await new Promise((resolve) => { setTimeout(resolve, AGAIN); });
  }
}

// A server that was started again numbers its lines anew: the former ones do not belong to them.
function take(line) {
  const { lines } = log.value;
  const isNew = lines.length > 0 && line.number <= lines.at(-1).number;
  log.set({ ...log.value, lines: [...(isNew ? [] : lines), line].slice(-MOST) });
}

// Lines are aligned for terminals; only a traceback needs its spaces.
function narrow(text) {
  return text.includes("\n") ? text : text.replace(/ {2,}/g, " ");
}

export function Log() {
  const { state, lines } = useCell(log);
  const [isPaused, setPaused] = useState(null); // the lines that are shown meanwhile
  const [isGrave, setGrave] = useState(false);
  const place = useRef(null);
  const isAtEnd = useRef(true);
  useEffect(() => {
    const stop = new AbortController();
    void follow(stop.signal);
    return () => stop.abort();
  }, []);
  const shown = (isPaused ?? lines).filter((line) => !isGrave || GRAVE.has(line.level));
  useLayoutEffect(() => {
    if (place.current && isAtEnd.current) place.current.scrollTop = place.current.scrollHeight;
  }, [shown.at(-1)?.number, isGrave]);
  const scrolled = ({ target }) => { isAtEnd.current = target.scrollHeight - target.scrollTop - target.clientHeight < 8; };
  if (!state || state === "refused") return null;
  const word = isPaused ? "paused" : state === "live" ? "live" : "the server does not answer";
  return html`<div class="head"><h2>Log</h2><span class="faint"><span class=${`dot ${word === "live" ? "on" : "wait"}`} aria-hidden="true"></span> ${word}</span><span class="spring"></span>
    <div class="tabs" role="group" aria-label="Log"><button type="button" aria-pressed=${isGrave} onClick=${() => setGrave(!isGrave)}>Warnings</button>
    <button type="button" aria-pressed=${isPaused !== null} onClick=${() => setPaused(isPaused ? null : lines)}>Pause</button></div></div>
    <div class="log" ref=${place} onScroll=${scrolled} tabindex="0" role="region" aria-label="Log lines">${shown.map((line) => html`<div key=${line.number} class=${line.level}>${narrow(line.text)}</div>`)}
    ${!shown.length && html`<div class="faint">${isGrave ? "No warnings." : "No lines yet."}</div>`}</div>`;
}
