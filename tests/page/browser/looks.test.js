import assert from "node:assert/strict";
import { test } from "node:test";
import { accessible, becomes, ended, gate, say, withPage } from "./setup.js";
import { fill, show, VIEWS } from "./tour.js";

const PHONE = { viewport: { width: 320, height: 640 }, isMobile: true, hasTouch: true };

for (const colorScheme of ["light", "dark"]) {
  test(`accessible in ${colorScheme}`, () => withPage(async ({ page }) => {
    const chat = await fill(page);
    for (const head of await page.locator(".tool-head, .fold").all()) if (await head.getAttribute("aria-expanded") === "false") await head.click();
    await accessible(page, "chat");
    for (const view of VIEWS.slice(1)) {
      await show(page, view, chat);
      await accessible(page, view);
    }
    await page.keyboard.press("?");
    await page.getByRole("dialog").waitFor();
    await accessible(page, "keys");
  }, { colorScheme }));
}

test("accessible before signing in, and while the agent works and asks", () => withPage(async ({ page }) => {
  await page.waitForSelector("#message");
  await say(page, "/ask echo hello");
  await page.locator(".approval.open").waitFor();
  await accessible(page, "asking");
  await page.getByRole("button", { name: "Deny" }).click();
  await ended(page);
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.waitForSelector("input[type=password]");
  await accessible(page, "sign in");
}));

test("light and dark, by the system and by hand", () => withPage(async ({ page }) => {
  await page.waitForSelector("#message");
  const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  await becomes(ground, "rgb(19, 22, 21)");
  await page.getByRole("button", { name: "Theme: system" }).click();
  await becomes(ground, "rgb(255, 255, 255)");
  await page.getByRole("button", { name: "Theme: light" }).click();
  await becomes(ground, "rgb(19, 22, 21)");
  await page.reload();
  await page.getByRole("button", { name: "Theme: dark" }).waitFor();
}, { colorScheme: "dark" }));

test("320 pixels: nothing is wider than the screen", () => withPage(async ({ page }) => {
  const chat = await fill(page);
  for (const head of await page.locator(".tool-head").all()) if (await head.getAttribute("aria-expanded") === "false") await head.click();
  for (const view of VIEWS) {
    await show(page, view, chat);
    const wide = () => page.evaluate(() => [document.documentElement, ...document.querySelectorAll(".view, .scroll, .composer, .side")]
      .filter((each) => each.scrollWidth > 320).map((each) => `${each.className || each.tagName}: ${each.scrollWidth}`));
    await becomes(async () => [view, ...await wide()], [view]);
  }
  await page.goto(chat);
  await say(page, "/ask echo here");
  await page.locator(".approval.open").getByRole("button", { name: "Deny" }).click(); // all can be reached
  await ended(page);
}, PHONE));

test("on a phone, the menu opens the side and Escape closes it", () => withPage(async ({ page }) => {
  await page.waitForSelector("#message");
  const menu = page.getByRole("button", { name: "Menu" });
  await menu.click();
  await page.getByRole("link", { name: /^Runs/ }).waitFor();
  assert.equal(await page.locator("main").getAttribute("inert"), "");
  await page.keyboard.press("Escape");
  await becomes(() => menu.evaluate((button) => button === document.activeElement), true);
  await menu.click();
  await page.getByRole("link", { name: /^Runs/ }).click();
  await page.getByRole("heading", { name: "Runs", level: 1 }).waitFor();
  await becomes(() => page.locator(".frame.drawer").count(), 0);
  await page.getByRole("link", { name: "New chat" }).last().click();
  await page.waitForSelector("#message");
}, PHONE));

test("a screen reader hears what happens, not every word", () => withPage(async ({ page }) => {
  await page.waitForSelector("#message");
  await page.evaluate(() => {
    window.heard = [];
    const status = document.querySelector(".unseen[role=status]");
    new MutationObserver(() => window.heard.push(status.textContent)).observe(status, { childList: true, characterData: true, subtree: true });
  });
  const last = async () => (await page.evaluate(() => window.heard)).at(-1);
  const { command, open } = gate();
  await say(page, `/terminal ${command}`);
  await becomes(last, "Tool terminal is running.");
  await open();
  await becomes(last, "The answer is complete.");
  const heard = await page.evaluate(() => window.heard);
  assert.ok(heard.length < 6, `${heard}`);
  assert.equal(await page.locator("[role=log]").getAttribute("aria-live"), "off");
}));

test("nothing jumps while an answer streams", () => withPage(async ({ page }) => {
  await page.waitForSelector("#message");
  await page.evaluate(() => {
    window.shifts = 0;
    new PerformanceObserver((list) => { for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.shifts += entry.value; })
      .observe({ type: "layout-shift", buffered: false });
  });
  await say(page, "/think so\n/terminal echo one; sleep 0.3; echo two\n/long 60");
  await ended(page);
  const shifts = await page.evaluate(() => window.shifts);
  assert.ok(shifts < 0.1, `layout shift ${shifts}`);
}));
