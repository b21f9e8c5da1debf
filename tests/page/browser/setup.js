// A browser for a file of tests, and a page that fails the test for whatever a person should never see.

import assert from "node:assert/strict";
import { after, before } from "node:test";
import { chromium } from "playwright-core";

export const BASE = process.env.BASE_URL;
export const KEY = process.env.API_KEY;
export const SECONDS = Number(process.env.TOOL_SECONDS ?? 30); // of the long tool

let browser;
before(async () => {
  browser = await chromium.launch({ executablePath: process.env.BROWSER, args: ["--no-sandbox"] });
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
  page.setDefaultTimeout(10_000);
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

// The last turn has ended.
export async function ended(page, timeout = 20_000) {
  await page.locator(".turn").last().locator(".foot").waitFor({ timeout });
}

export async function api(method, path, body) {
  const response = await fetch(BASE + path, {
    method, headers: { Authorization: `Bearer ${KEY}`, "Content-Type": "application/json" }, body: body && JSON.stringify(body),
  });
  assert.ok(response.ok, `${method} ${path}: ${response.status}`);
  return response.json();
}

export async function eventually(check, timeout = 10_000) {
  const deadline = Date.now() + timeout;
  for (;;) {
    const value = await check();
    if (value) return value;
    assert.ok(Date.now() < deadline, `not within ${timeout} ms: ${check}`);
    await new Promise((resolve) => { setTimeout(resolve, 50); });
  }
}

export async function timer(card) {
  const text = await card.locator(".time").first().textContent();
  const [, minutes, seconds] = /(?:(\d+):)?(\d+)/.exec(text);
  return Number(minutes ?? 0) * 60 + Number(seconds);
}

// What is on the clipboard; the context needs the permission.
export const CLIPBOARD = { permissions: ["clipboard-read", "clipboard-write"] };
export function clipboard(page) {
  return page.evaluate(() => navigator.clipboard.readText());
}
