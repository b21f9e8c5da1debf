// Open WebUI in a real browser, with our server as its only connection.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, test } from "node:test";

import { chromium } from "playwright-core";

const { API_KEY, BASE_URL, BROWSER, OPEN_WEBUI, WORKSPACE } = process.env;
const PATIENCE = 30_000; // milliseconds: only a test that fails ever waits that long
const limit = { timeout: 180_000 };

let browser;
const tokens = {};

before(async () => {
  for (const name of ["ann", "bob"]) tokens[name] = await signUp(name); // the first one is the administrator
  browser = await chromium.launch({ executablePath: BROWSER, args: ["--no-sandbox"] });
});
after(() => browser?.close());

async function ask(url, token, body) {
  const headers = { Authorization: `Bearer ${token}`, "Content-Type": "application/json" };
  const response = await fetch(url, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body) });
  assert.ok(response.ok, `${url}: ${response.status} ${await response.clone().text()}`);
  return response.json();
}

async function signUp(name) {
  const account = { name, email: `${name}@example.org`, password: "a-long-password-1" };
  if (!tokens.ann) return (await ask(`${OPEN_WEBUI}/api/v1/auths/signup`, "", account)).token;
  return (await ask(`${OPEN_WEBUI}/api/v1/auths/add`, tokens.ann, { ...account, role: "user" })).token;
}

const ours = (path, body) => ask(BASE_URL + path, API_KEY, body);

// Looks at other processes, so there is nothing to wait on: a bounded loop.
async function eventually(check, milliseconds = PATIENCE) {
  const end = Date.now() + milliseconds;
  for (;;) {
    const value = await check();
    if (value) return value;
    assert.ok(Date.now() < end, `not within ${milliseconds} ms: ${check}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

const isIdle = async () => (await ours("/health/detailed")).slots.in_use === 0;
const idle = () => eventually(isIdle);

// A new chat of a user in a browser of his own.
async function withChat(name, work) {
  const context = await browser.newContext({ viewport: { width: 1200, height: 900 } });
  await context.addInitScript((token) => localStorage.setItem("token", token), tokens[name]);
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE);
  try {
    await page.goto(`${OPEN_WEBUI}/?models=hermes-agent`);
    await page.locator("#chat-input").waitFor();
    await work(page);
  } catch (error) {
    if (process.env.SHOTS) await page.screenshot({ path: join(process.env.SHOTS, `${randomUUID()}.png`) });
    throw error;
  } finally {
    await context.close();
    await idle();
  }
}

async function say(page, text) {
  await page.locator("#chat-input").click();
  await page.keyboard.insertText(text);
  await page.locator("#send-message-button").click();
}

const answers = (page) => page.locator(".chat-assistant");
const status = (page) => page.locator(".status-description");

// A command that runs for as long as the test wants, and notes that it ran.
function gate() {
  const name = randomUUID();
  return {
    command: `echo ran >> ${name}.ran; until [ -e ${name}.open ]; do sleep 0.1; done; echo through`,
    open: () => writeFile(join(WORKSPACE, `${name}.open`), ""),
    ran: async () => (await readFile(join(WORKSPACE, `${name}.ran`), "utf8")).trim().split("\n").length,
  };
}

test("the model is listed", limit, () => withChat("ann", async (page) => {
  await page.locator("#model-selector-0-button").click();
  await page.getByRole("option", { name: /hermes-agent/ }).first().waitFor();
}));

test("an answer", limit, () => withChat("ann", async (page) => {
  await say(page, "good morning");
  await answers(page).getByText("You said: “good morning”.").waitFor();
}));

test("the status of a tool is live", limit, () => withChat("ann", async (page) => {
  const { command, open } = gate();
  await say(page, `/terminal ${command}`);
  await status(page).filter({ hasText: "terminal" }).first().waitFor();
  assert.equal(await isIdle(), false, "the tool still runs");
  await open();
  await answers(page).getByText("through").last().waitFor();
}));

test("reasoning is shown", limit, () => withChat("ann", async (page) => {
  await say(page, "/think one step after the other");
  const fold = answers(page).getByText(/^Thought/).first();
  await fold.click();
  await answers(page).getByText("one step after the other").first().waitFor();
}));

test("stop ends the agent", limit, () => withChat("ann", async (page) => {
  await say(page, "/sleep 600");
  await status(page).filter({ hasText: "sleep" }).first().waitFor();
  await stopButton(page).click();
  await eventually(isIdle, 5_000);
}));

const stopButton = (page) => page.locator("button:has(svg path[d^='M2.25 12c0-5.385'])");

test("an error is shown, and still there after a reload", limit, () => withChat("ann", async (page) => {
  await say(page, "/fail the tool shed burned down");
  await page.locator(".chat-assistant", { hasText: "the tool shed burned down" }).waitFor();
  await page.waitForURL(/\/c\//);
  await idle();
  await page.reload();
  await page.locator(".chat-assistant", { hasText: "the tool shed burned down" }).waitFor();
}));

test("an approval request is shown, and answered", limit, () => withChat("ann", async (page) => {
  await say(page, "/ask echo approved-$((6*7))");
  await status(page).filter({ hasText: /approval/i }).first().waitFor();
  const [run] = (await ours("/v1/runs?status=in_progress")).data;
  await ours(`/v1/runs/${run.id}/approval`, { choice: "once" });
  await answers(page).getByText("approved-42").last().waitFor();
}));

test("calls for titles, tags and follow-up questions run no tools", limit, () => withChat("ann", async (page) => {
  const { command, open, ran } = gate();
  await open();
  const before = (await ours("/api/sessions?limit=200")).data.length;
  await say(page, `/terminal ${command}`);
  await answers(page).getByText("through").last().waitFor();
  const id = await eventually(() => page.url().match(/\/c\/([\w-]+)/)?.[1]);
  const title = await eventually(async () => {
    const chat = await ask(`${OPEN_WEBUI}/api/v1/chats/${id}`, tokens.ann);
    return chat.title !== "New Chat" && chat.title;
  });
  assert.ok(title);
  await idle();
  assert.equal(await ran(), 1, "the tool ran once");
  assert.equal((await ours("/api/sessions?limit=200")).data.length, before + 1, "one chat, one session");
}));

test("two users who say the same are apart", limit, async () => {
  const before = (await ours("/api/sessions?limit=200")).data.length;
  for (const name of ["ann", "bob"]) {
    await withChat(name, async (page) => {
      await say(page, "hi");
      await answers(page).getByText("You said: “hi”.").waitFor();
    });
  }
  assert.equal((await ours("/api/sessions?limit=200")).data.length, before + 2, "two chats, two sessions");
});

test("what one user approves for a session is asked of the other", limit, async () => {
  const command = "/ask echo secret-$((6*7))";
  for (const [name, choice] of [["ann", "session"], ["bob", "deny"]]) {
    await withChat(name, async (page) => {
      await say(page, command);
      await status(page).filter({ hasText: /approval/i }).first().waitFor();
      const [run] = (await ours("/v1/runs?status=in_progress")).data;
      await ours(`/v1/runs/${run.id}/approval`, { choice });
      await answers(page).getByText(choice === "deny" ? "not approved" : "secret-42").last().waitFor();
    });
  }
});
