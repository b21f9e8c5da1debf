// The events of a run, in the words of the Runs API, by whichever route tells most of it.

import { part, request } from "./api.js";
import { ENDS, fromSession } from "./events.js";
import { follow } from "./follow.js";

// Runs of any kind. `after` is asked again at every attempt: it is the number of the last event that arrived.
export function followRun(runId, { after, take, state, signal }) {
  const open = (attempt) => request("GET", `/v1/runs/${part(runId)}/events?last_seq=${after()}`, { signal: attempt });
  return follow({ open, state, signal, take: (frame) => takeRun(JSON.parse(frame.data), take) });
}

function takeRun(event, take) {
  take(event);
  return ENDS.has(event.event);
}

// A turn of a session. `start` begins it; once its run is known, what is missing is asked for by number.
export function followTurn(sessionId, { start, run, after, take, state, signal }) {
  const path = `/api/sessions/${part(sessionId)}/chat/stream`;
  const open = (attempt) => run()
    ? request("GET", `${path}?run_id=${part(run())}&last_seq=${Math.max(0, after())}`, { signal: attempt })
    : start(path, attempt);
  return follow({ open, state, signal, take: (frame) => takeTurn(frame, take) });
}

function takeTurn(frame, take) {
  const event = fromSession(frame.event, JSON.parse(frame.data));
  take(event);
  return event.event === "stream.done";
}
