// A browser for a file of tests, and a page that fails the test for whatever a person should never see.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { randomUUID } from "node:crypto";
import { readFile, rm, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before } from "node:test";
import { isDeepStrictEqual } from "node:util";
import { chromium } from "playwright-core";

export const BASE = process.env.BASE_URL;
export const KEY = process.env.API_KEY;
export const SECONDS = Number(process.env.TOOL_SECONDS ?? 30); // of the long tool
export const SLOWNESS = Number(process.env.PAGE_SLOWNESS ?? 1); // how many times slower the page is made
const AXE = createRequire(import.meta.url).resolve("axe-core/axe.min.js");
const PATIENCE = 60_000; // milliseconds: only a test that fails ever waits that long

let browser;
before(async () => {
  browser = await chromium.launch({ executablePath: process.env.BROWSER, args: ["--no-sandbox"], timeout: PATIENCE });
});
after(() => browser.close());

// Opens the page, signed in, and calls work({ page, context, problems }). `expected` matches problems that are wanted.
export async function withPage(work, { expected = /(?!)/, path = `/#key=${KEY}`, ...options } = {}) {
  const context = await browser.newContext({ viewport: { width: 1200, height: 800 }, ...options });
  const problems = [];
  await context.addInitScript(() => {
    document.addEventListener("securitypolicyviolation", (event) => console.error(`CSP: ${event.violatedDirective} ${event.blockedURI}`));
  });
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE);
  if (SLOWNESS > 1) await (await context.newCDPSession(page)).send("Emulation.setCPUThrottlingRate", { rate: SLOWNESS });
  page.on("console", (message) => ["error", "warning"].includes(message.type()) && problems.push(message.text()));
  page.on("pageerror", (error) => problems.push(`${error.message}\n${error.stack}`));
  page.on("request", (request) => /^(data:|blob:)/.test(request.url()) || request.url().startsWith(BASE) || problems.push(`fetched ${request.url()}`));
  try {
    await page.goto(BASE + path);
    await work({ page, context, problems });
    assert.deepEqual(problems.filter((line) => !expected.test(line)), []);
  } finally {
    await context.close();
  }
}

export async function say(page, text) {
  await page.fill("#message", text);
  await page.press("#message", "Enter");
}

// The last turn has ended, and is another one than those whose end was waited for before: what was just asked may not be
// on the screen yet.
export async function ended(page) {
  await page.locator(".turn:not([data-ended])").last().locator(".foot").waitFor();
  await page.locator(".turn").evaluateAll((turns) => turns.forEach((turn) => turn.setAttribute("data-ended", "")));
}

// A command for the terminal that runs for as long as the test wants, without asking: it reads from a pipe.
export function gate() {
  const path = join(tmpdir(), `gate-${randomUUID()}`);
  execFileSync("mkfifo", [path]);
  after(() => rm(path, { force: true }));
  return { command: `cat ${path}`, open: () => writeFile(path, "") };
}

export async function api(method, path, body) {
  const response = await fetch(BASE + path, {
    method, headers: { Authorization: `Bearer ${KEY}`, "Content-Type": "application/json" }, body: body && JSON.stringify(body),
  });
  assert.ok(response.ok, `${method} ${path}: ${response.status}`);
  return response.json();
}

// What follows after something that was waited for is waited for too, however soon it mostly comes.
export async function eventually(check) {
  const deadline = Date.now() + PATIENCE;
  for (;;) {
    const value = await check();
    if (value) return value;
    assert.ok(Date.now() < deadline, `not within ${PATIENCE} ms: ${check}`);
    await new Promise((resolve) => { setTimeout(resolve, 50); });
  }
}

// The same for a value, and for a text: they say what was there instead.
export async function becomes(read, expected) {
  let found;
  await eventually(async () => isDeepStrictEqual(found = await read(), expected)).catch(() => assert.deepEqual(found, expected));
}

export async function tells(locator, pattern) {
  let found;
  await eventually(async () => pattern.test(found = await locator.textContent())).catch(() => assert.match(found ?? "", pattern));
}

// No rule of axe is broken by what the page shows now.
export async function accessible(page, where) {
  // The page's own policy forbids scripts that are put in; a test may.
  const session = await page.context().newCDPSession(page);
  await session.send("Runtime.evaluate", { expression: await readFile(AXE, "utf-8") });
  const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  const told = violations.map(({ id, nodes }) => `${where}: ${id}: ${nodes.map((node) => `${node.html} ${node.any[0]?.message ?? ""}`).join("; ")}`);
  assert.deepEqual(told, []);
}

export async function timer(card) {
  const text = await card.locator(".time").first().textContent();
  const [, minutes, seconds] = /(?:(\d+):)?(\d+)/.exec(text);
  return Number(minutes ?? 0) * 60 + Number(seconds);
}

// What a button puts on the clipboard; the context needs the permission.
export const CLIPBOARD = { permissions: ["clipboard-read", "clipboard-write"] };
export async function copied(page, button) {
  await page.evaluate(() => navigator.clipboard.writeText("nothing yet"));
  await button.click();
  return eventually(async () => {
    const text = await page.evaluate(() => navigator.clipboard.readText());
    return text !== "nothing yet" && text;
  });
}
