// Links with a key, opened where somebody is signed in.

import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { after, before, test } from "node:test";
import { ownServer } from "./own_server.js";
import { accessible, becomes, say, tells, withPage } from "./setup.js";

const KEYS = Object.fromEntries(["ann", "bob"].map((name) => [name, randomBytes(16).toString("hex")]));
let server;
before(async () => { server = await ownServer(KEYS); });
after(() => server.close());

const principal = (page) => page.evaluate(() => localStorage.getItem("hermes-trio-signed-in"));
const pending = (page) => page.evaluate(() => Object.keys(sessionStorage).filter((name) => name.includes("pending")));
const OWN = /^fetched http:\/\/127\.0\.0\.1/; // the server of these tests is not that of the others

// Whose records the cookie opens: the mark in the storage is only what the page believes.
async function owner(page) {
  const title = `of ${await principal(page)}`;
  return page.evaluate(async (wanted) => {
    const { data } = await (await fetch("/api/sessions")).json();
    return data.map((each) => each.title).includes(wanted) ? wanted : data.map((each) => each.title).join();
  }, title);
}

async function signedInAsAnn(work, options = {}) {
  for (const [name, key] of Object.entries(KEYS)) {
    const headers = { Authorization: `Bearer ${key}`, "Content-Type": "application/json" };
    await fetch(`${server.link}api/sessions`, { method: "POST", headers, body: JSON.stringify({ title: `of ${name}` }) });
  }
  await withPage(async ({ page, ...rest }) => {
    await page.goto(`${server.link}#key=${KEYS.ann}`);
    await page.waitForSelector("#message");
    await becomes(() => principal(page), "ann");
    await work({ page, ...rest });
  }, { path: "/", expected: OWN, ...options });
}

test("a link of another principal asks first; Escape keeps the current one", () => signedInAsAnn(async ({ page }) => {
  await page.fill("#message", "a draft");
  await page.goto(`${server.link}#key=${KEYS.bob}`);
  const dialog = page.getByRole("dialog", { name: "Sign in as bob?" });
  await dialog.waitFor();
  await tells(dialog, /signed in as ann.*has a key of bob,\s+who can/);
  assert.ok(!page.url().includes("key="));
  await becomes(() => page.evaluate(() => document.activeElement.textContent), "Stay signed in as ann");
  await accessible(page, "replacing a key");
  assert.equal(await owner(page), "of ann");
  await page.keyboard.press("Escape");
  await becomes(() => dialog.count(), 0);
  await becomes(() => pending(page), []);
  assert.equal(await principal(page), "ann");
  assert.equal(await owner(page), "of ann");
  assert.equal(await page.inputValue("#message"), "a draft");
}));

test("the answer no", () => signedInAsAnn(async ({ page }) => {
  await page.goto(`${server.link}#key=${KEYS.bob}`);
  await page.getByRole("button", { name: "Stay signed in as ann" }).click();
  await becomes(() => pending(page), []);
  await page.reload();
  await page.waitForSelector("#message");
  assert.equal(await page.getByRole("dialog").count(), 0);
  assert.equal(await owner(page), "of ann");
}));

test("the answer yes, after a reload", () => signedInAsAnn(async ({ page }) => {
  await page.goto(`${server.link}#key=${KEYS.bob}`);
  await page.getByRole("dialog").waitFor();
  await page.reload();
  const loaded = page.waitForEvent("load"); // nothing can be asked of a page that is being loaded again
  await page.getByRole("button", { name: "Sign in as bob" }).click();
  await loaded;
  await becomes(() => principal(page), "bob");
  await page.waitForSelector("#message");
  await becomes(() => owner(page), "of bob");
  assert.deepEqual(await pending(page), []);
}));

test("in a new tab, too", () => signedInAsAnn(async ({ page, context }) => {
  const second = await context.newPage();
  await second.goto(`${server.link}#key=${KEYS.bob}`);
  await second.getByRole("dialog", { name: "Sign in as bob?" }).waitFor();
  assert.equal(await owner(page), "of ann");
}));

test("a link of the same principal does not ask", () => signedInAsAnn(async ({ page }) => {
  await page.goto(`${server.link}#key=${KEYS.ann}`);
  await becomes(() => pending(page), []);
  await page.waitForSelector("#message");
  assert.equal(await page.getByRole("dialog").count(), 0);
  await say(page, "/terminal echo hello");
  await page.waitForSelector(".tool");
}));

test("a link with a wrong key changes nothing", () => signedInAsAnn(async ({ page }) => {
  await page.goto(`${server.link}#key=no-key-at-all-0123456789`);
  await page.getByText("This key is not valid.").waitFor();
  assert.equal(await page.getByRole("dialog").count(), 0);
  assert.equal(await owner(page), "of ann");
}, { expected: new RegExp(`${OWN.source}|401`) }));

test("a session that has ended needs no question", () => signedInAsAnn(async ({ page, context }) => {
  await context.clearCookies();
  await page.goto(`${server.link}#key=${KEYS.bob}`);
  await page.getByRole("dialog").waitFor();
  await page.reload();
  await becomes(() => principal(page), "bob");
  await page.waitForSelector("#message");
}, { expected: new RegExp(`${OWN.source}|401`) }));
