// Draws the pictures of the documentation: a server of its own, so that nothing but this is on them.

import { test } from "node:test";
import { api, ended, say, withPage } from "./setup.js";
import { fill, show } from "./tour.js";

const SMALL = { viewport: { width: 1080, height: 720 } };
const PHONE = { viewport: { width: 360, height: 640 }, deviceScaleFactor: 2, isMobile: true, hasTouch: true };
const PLAN = "/think The tests must pass before I touch the release.\n/terminal for n in 1 2 3 4 5 6; do echo \"test $n of 6 passed\"; sleep 1; done\n/terminal rm -rf build";

async function picture(page, name) {
  await page.evaluate(() => document.activeElement?.blur());
  await page.screenshot({ path: `${process.env.PICTURES}/${name}.png` });
}

let chat = "";

test("the agent at work, and asking", () => withPage(async ({ page }) => {
  for (const [text, title] of [["/long 30", "Word counts"], ["/terminal uname -s", "Which system is this?"]]) {
    await page.locator("h1", { hasText: "New chat" }).waitFor();
    await say(page, text);
    await ended(page);
    await api("PATCH", `/api/sessions/${decodeURIComponent(page.url().split("/s/")[1])}`, { title });
    await page.click("text=New chat");
  }
  chat = await fill(page);
  await api("PATCH", `/api/sessions/${decodeURIComponent(chat.split("/s/")[1])}`, { title: "Notes and plans" });
  await page.reload();
  await show(page, "chat", chat);
  await picture(page, "chat");
  await say(page, PLAN);
  await page.locator(".tool.running").getByText("test 3").first().waitFor();
  await picture(page, "working");
  await page.locator(".approval.open").waitFor({ timeout: 20_000 });
  await page.emulateMedia({ colorScheme: "dark", reducedMotion: "reduce" }); // no colour is on its way to another one
  await page.waitForTimeout(500);
  await picture(page, "asking_dark");
  await page.getByRole("button", { name: "Allow once" }).click();
  await ended(page);
}, SMALL));

test("the other views", () => withPage(async ({ page }) => {
  await page.waitForSelector("#message");
  await api("POST", "/v1/runs", { input: "/sleep 6" });
  for (const view of ["sessions", "runs", "run"]) {
    await show(page, view, chat);
    await picture(page, view);
  }
  await show(page, "server", chat);
  for (let round = 0; round < 16; round += 1) {
    await api("POST", "/v1/runs", { input: `/long ${40 + 30 * (round % 5)}` });
    await new Promise((resolve) => { setTimeout(resolve, 1500); });
  }
  await picture(page, "server");
}, SMALL));

test("on a phone", () => withPage(async ({ page }) => {
  await show(page, "chat", chat);
  await page.locator(".foot").last().waitFor();
  await picture(page, "phone");
}, PHONE));
