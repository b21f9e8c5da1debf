// What the server did within the last hour. The server keeps it, so it is there at once when the view opens.

import { get } from "./api.js";
import { Cell } from "./cell.js";

// { samples, routes, problem }: as in GET /api/metrics/history, oldest first.
export const history = new Cell({ samples: [], routes: [], problem: "" });

export async function loadHistory() {
  const { samples } = history.value;
  try {
    const found = await get(`/api/metrics/history?after=${samples.at(-1)?.at ?? 0}`);
    history.set({ samples: joined(samples, found.data, found.kept_seconds), routes: found.routes, problem: "" });
  } catch (error) {
    history.set({ ...history.value, problem: error.message });
  }
}

// The former samples and what came since, without those that the server no longer keeps either.
export function joined(samples, added, kept) {
  if (!added.length) return samples;
  const oldest = added.at(-1).at - kept;
  return [...samples, ...added].filter((sample) => sample.at > oldest);
}
