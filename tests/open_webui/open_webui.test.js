// Open WebUI in a real browser, with our server as its only connection.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { after, before, test } from "node:test";

import { chromium } from "playwright-core";

const { API_KEY, BASE_URL, BROWSER, OPEN_WEBUI, WORKSPACE } = process.env;
const PATIENCE = 30_000; // milliseconds: only a test that fails ever waits that long
const limit = { timeout: 180_000 };

let browser;
const tokens = {};

before(async () => {
  const { version } = await ask(`${OPEN_WEBUI}/api/config`, "");
  for (const name of ["ann", "bob"]) {
    tokens[name] = await signUp(name); // the first one is the administrator
    // Who has seen the news of a version is not greeted with them.
    await ask(`${OPEN_WEBUI}/api/v1/users/user/settings/update`, tokens[name], { ui: { version } });
  }
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

async function stopAll() {
  for (const status of ["in_progress", "waiting_for_approval"]) {
    const { data } = await ours(`/v1/runs?status=${status}`);
    for (const run of data) await ours(`/v1/runs/${run.run_id}/stop`, {});
  }
}

// How many chat completions the server has been asked for.
async function requests() {
  const text = await (await fetch(`${BASE_URL}/metrics`, { headers: { Authorization: `Bearer ${API_KEY}` } })).text();
  const counts = text.matchAll(/^hermes_trio_http_requests_total\{[^}]*chat\/completions[^}]*\} (\d+)/gm);
  return [...counts].reduce((sum, [, count]) => sum + Number(count), 0);
}

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
    await stopAll();
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

test("the model is listed", limit, () => withChat("ann", async (page) => {
  await page.goto(OPEN_WEBUI); // no model is named, and there is only one
  await page.getByText("hermes-agent").first().waitFor();
  const { data } = await ask(`${OPEN_WEBUI}/api/models`, tokens.bob);
  assert.deepEqual(data.filter((model) => model.owned_by !== "arena").map((model) => model.id), ["hermes-agent"]);
}));

test("an answer", limit, () => withChat("ann", async (page) => {
  await say(page, "good morning");
  await answers(page).getByText("You said: “good morning”.").waitFor();
}));

test("the status of a tool is live", limit, () => withChat("ann", async (page) => {
  await say(page, "/sleep 5");
  await status(page).filter({ hasText: "sleep" }).first().waitFor();
  assert.equal(await isIdle(), false, "the tool still runs");
  await answers(page).getByText("slept 5 s").last().waitFor();
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

test("an approval request is asked in the chat, and answered there", limit, () => withChat("ann", async (page) => {
  await say(page, "/ask echo approved-$((6*7))");
  await answers(page).getByText(/Approval needed/).waitFor();
  await say(page, "yes");
  await answers(page).getByText("approved-42").last().waitFor();
}));

test("a denied command does not run", limit, () => withChat("ann", async (page) => {
  await say(page, "/ask echo approved-$((6*7))");
  await answers(page).getByText(/Approval needed/).waitFor();
  await say(page, "no");
  await answers(page).getByText("not approved").last().waitFor();
}));

test("calls for titles, tags and follow-up questions run no tools", limit, () => withChat("ann", async (page) => {
  const name = randomUUID();
  const sessions = async () => (await ours("/api/sessions?limit=200")).data.length;
  const runs = async () => (await ours("/v1/runs?limit=100")).data.length;
  const before = { sessions: await sessions(), runs: await runs(), requests: await requests() };
  await say(page, `/ask mktemp ${name}.XXXXXX`);
  await answers(page).getByText(/Approval needed/).waitFor();
  await say(page, "yes");
  await answers(page).last().getByText(`${name}.`).last().waitFor();
  // Two turns, and a title, tags and follow-up questions at least once.
  await eventually(async () => (await requests()) >= before.requests + 5);
  await idle();
  assert.equal((await readdir(WORKSPACE)).filter((file) => file.startsWith(name)).length, 1, "the tool ran once");
  assert.equal(await sessions(), before.sessions + 1, "one chat, one session");
  assert.equal(await runs(), before.runs + 1, "the question and its answer are one run");
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
  for (const [name, choice] of [["ann", "session"], ["bob", "no"]]) {
    await withChat(name, async (page) => {
      await say(page, "/ask echo secret-$((6*7))");
      await answers(page).getByText(/Approval needed/).waitFor();
      await say(page, choice);
      await answers(page).getByText(choice === "no" ? "not approved" : "secret-42").last().waitFor();
    });
  }
});
