// A chat worth looking at, and the way to each view.

import { BASE, ended, say } from "./setup.js";

export const VIEWS = ["chat", "sessions", "runs", "run", "server"];

// Has a turn with everything in it; returns where it is.
export async function fill(page) {
  await page.waitForSelector("#message");
  await say(page, "/think Which files are there, and what do they say?\n/write notes.md # Plans\n/terminal ls -l; sleep 1; cat notes.md\n/read missing.txt");
  await ended(page);
  return page.url();
}

export async function show(page, view, chat) {
  if (view === "chat") {
    await page.goto(chat);
    await page.locator(".foot").last().waitFor();
  } else if (view === "run") {
    await page.goto(`${BASE}/#/runs`);
    await page.locator("table.runs tbody tr", { hasText: "sessions" }).first().locator("a").first().click();
    await page.locator(".timeline").waitFor();
  } else {
    await page.goto(`${BASE}/#/${view}`);
    await FILLED[view](page).first().waitFor();
  }
}

const FILLED = {
  sessions: (page) => page.locator(".sessions li"),
  runs: (page) => page.locator("table.runs tbody tr"),
  server: (page) => page.getByRole("region", { name: "Settings" }),
};
