// What an answer may hold: Markdown, code, formulas, pictures, and whatever somebody hopes will be run.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { test } from "node:test";
import { api, BASE, becomes, CLIPBOARD, copied, ended, eventually, say, withPage } from "./setup.js";

const NAUGHTY = JSON.parse(await readFile(createRequire(import.meta.url).resolve("big-list-of-naughty-strings/blns.json"), "utf-8"));
const ROUND = 60; // strings in one message

// Shows a text as the answer of an agent: the demo agent repeats what it is told.
async function shows(page, text) {
  const { session } = await api("POST", "/api/sessions", {});
  await api("POST", `/api/sessions/${session.id}/chat`, { message: text });
  await page.goto(`${BASE}/#/s/${session.id}`);
  await page.locator(".foot").last().waitFor();
  return page.locator(".answer").last();
}

test("nothing of a corpus of hostile strings is run or becomes more than text", () => withPage(async ({ page }) => {
  const dialogs = [];
  page.on("dialog", (dialog) => { dialogs.push(dialog.message()); void dialog.dismiss(); });
  await page.waitForSelector("#message");
  for (let at = 0; at < NAUGHTY.length; at += ROUND) {
    const answer = await shows(page, `corpus\n\n${NAUGHTY.slice(at, at + ROUND).join("\n\n")}`);
    const found = await answer.evaluate((element) => {
      const allowed = new Set(["A", "BLOCKQUOTE", "BR", "BUTTON", "CODE", "DEL", "DIV", "EM", "HR", "IMG", "INPUT", "LI", "OL", "P", "PRE", "SECTION", "SPAN", "STRONG", "SUP", "TABLE", "TBODY", "TD", "TH", "THEAD", "TR", "UL", "svg", "use"]);
      const isMath = (each) => each.closest(".formula");
      const all = [...element.querySelectorAll("*")].filter((each) => !isMath(each));
      return [
        ...all.filter((each) => !allowed.has(each.tagName)).map((each) => each.outerHTML),
        ...all.flatMap((each) => [...each.attributes].filter(({ name, value }) => /^on|^style$|^srcdoc$/.test(name) || /^\s*(javascript|vbscript|data:text)/i.test(value)).map(({ name, value }) => `${name}=${value}`)),
        ...[...element.querySelectorAll("a[href]")].filter((link) => !/^(https?|mailto):/.test(link.protocol) && !link.hash.startsWith("#/")).map((link) => link.href),
      ];
    });
    assert.deepEqual(found, []);
  }
  assert.deepEqual(dialogs, []);
}));

test("code has colours, formulas are MathML, tables can be copied, pictures enlarged", () => withPage(async ({ page }) => {
  await page.waitForSelector("#message");
  const pixel = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
  const source = `look:\n\n\`\`\`python\ndef f(x):\n    return "x" # none\n\`\`\`\n\nso $x^2$ and\n\n$$\n\\frac{a}{b}\n$$\n\n| a | b |\n|---|--:|\n| 1, 2 | 3 |\n\n![dot](${pixel})\n\n- [x] done\n- [ ] open`;
  const answer = await shows(page, source);
  await becomes(() => answer.locator(".hljs-keyword").allTextContents(), ["def", "return"]);
  await becomes(() => answer.locator("math").count(), 2);
  await answer.locator("mfrac").waitFor();
  assert.equal(await copied(page, answer.getByTitle("Copy the table as CSV")), 'a,b\n"1, 2",3');
  await becomes(() => answer.locator("input[type=checkbox]").evaluateAll((boxes) => boxes.map((box) => box.checked)), [true, false]);
  await answer.getByRole("button", { name: "Enlarge: dot" }).click();
  await page.getByRole("dialog", { name: "dot" }).waitFor();
  await page.keyboard.press("Escape");
  await becomes(() => page.getByRole("dialog").count(), 0);
}, CLIPBOARD));

test("libraries for code and formulas are fetched only when they are needed", () => withPage(async ({ page }) => {
  const fetched = () => page.evaluate(() => performance.getEntriesByType("resource").map((entry) => entry.name.split("/").at(-1)).filter((name) => /katex|highlight\.js/.test(name)));
  await page.waitForSelector("#message");
  await say(page, "plain words");
  await ended(page);
  const vendored = async () => (await fetched()).filter((name, n, all) => all.indexOf(name) === n);
  assert.deepEqual((await vendored()).filter((name) => name === "katex.js"), []);
  const answer = await shows(page, "so $x$");
  await answer.locator("math").waitFor();
  await eventually(async () => (await vendored()).includes("katex.js"));
}));

test("the output of a tool has the colours of a terminal", () => withPage(async ({ page }) => {
  await page.waitForSelector("#message");
  await say(page, "/terminal printf '\\033[31mred\\033[0m plain\\n'");
  await ended(page);
  await page.locator(".tool-head").click();
  await becomes(() => page.locator(".tool .ansi-red").textContent(), "red");
}));
