// The runs that are under way, for signs beside sessions, the badge of the list, and the title of the tab.

import { get } from "./api.js";
import { Cell } from "./cell.js";
import { LIVE } from "./events.js";
import { useEffect } from "./lib.js";

const EVERY = 4000; // milliseconds
const EVERY_HIDDEN = 15_000; // the title of a tab in the background is looked at, too

export const live = new Cell([]);

export async function loadLive() {
  const found = await get(`/v1/runs?status=${LIVE.join(",")}&limit=100`).catch(() => null);
  if (found) live.set(found.data);
}

// Keeps `live` up to date for as long as a component is shown.
export function useLive() {
  useEffect(() => {
    let timer = 0;
    let isOver = false;
    const round = async () => {
      clearTimeout(timer);
      await loadLive();
      if (!isOver) timer = setTimeout(round, document.hidden ? EVERY_HIDDEN : EVERY);
    };
    void round();
    document.addEventListener("visibilitychange", round);
    return () => {
      isOver = true;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", round);
    };
  }, []);
}

// The run of some sessions that is under way; one that asks before one that works.
export function liveIn(runs, sessionIds) {
  const own = runs.filter((run) => sessionIds.includes(run.session_id));
  return own.find((run) => run.status === "waiting_for_approval") ?? own[0] ?? null;
}
