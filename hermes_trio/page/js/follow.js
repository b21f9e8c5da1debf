// Follow a stream to its end, whatever happens to the network. Events have numbers, so nothing is lost and nothing twice.

import { ApiFailure } from "./api.js";
import { readEvents } from "./sse.js";

const SILENCE = 25_000; // milliseconds: the server sends a comment every ten seconds, so nobody is there any more
const LONGEST_WAIT = 8_000;

// open(signal) asks for the events that are missing; take(frame) returns true for the last one; state(text) tells how the
// connection is ("" is well): "offline", "reconnecting", "draining", "busy" or "trouble". Raises ApiFailure where another try is no use.
export async function follow({ open, take, state, signal }) {
  for (let failures = 0; !signal.aborted;) {
    let refusal = null;
    try {
      if (await listen(open, (frame) => { failures = 0; return take(frame); }, state, signal)) return;
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof ApiFailure && !mayPass(error)) throw error;
      if (error instanceof ApiFailure) refusal = error;
    }
    state(refusal ? stateOf(refusal) : navigator.onLine ? "reconnecting" : "offline");
    const asked = refusal ? 1000 * refusal.retryAfter : 0;
    await pause(Math.max(asked, Math.min(LONGEST_WAIT, 300 * 2 ** failures)), signal);
    failures += 1;
  }
}

// A server in trouble may get well, and a busy one will have time; what else it refuses it will refuse again.
function mayPass(failure) {
  return failure.status >= 500 || failure.status === 429 || failure.code === "idempotency_key_pending";
}

function stateOf(failure) {
  if (failure.code === "gateway_draining") return "draining";
  return failure.status === 429 ? "busy" : "trouble";
}

async function listen(open, take, state, signal) {
  const attempt = new AbortController();
  const cut = () => attempt.abort();
  signal.addEventListener("abort", cut);
  window.addEventListener("offline", cut);
  let timer = setTimeout(cut, SILENCE);
  const heard = () => {
    clearTimeout(timer);
    timer = setTimeout(cut, SILENCE);
  };
  try {
    const response = await open(attempt.signal);
    state("");
    if (response.status === 204) return true;
    let isOver = false;
    await readEvents(response, (frame) => { isOver = take(frame) || isOver; }, heard);
    return isOver;
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", cut);
    window.removeEventListener("offline", cut);
  }
}

// Until some time has passed or the network is back.
function pause(milliseconds, signal) {
  return new Promise((resolve) => {
    const events = new AbortController();
    const go = () => {
      clearTimeout(timer);
      events.abort();
      resolve();
    };
    const timer = setTimeout(go, navigator.onLine ? milliseconds : 60_000);
    window.addEventListener("online", go, { signal: events.signal });
    signal.addEventListener("abort", go, { signal: events.signal });
  });
}
