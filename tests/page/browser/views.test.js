import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { ownServer } from "./own_server.js";
import { accessible, api, BASE, becomes, CLIPBOARD, copied, ended, eventually, KEY, say, tells, withPage } from "./setup.js";

async function open(page, name) {
  await page.click(`nav >> text=${name}`);
  await page.getByRole("heading", { name, level: 1 }).waitFor();
}

test("sessions: find, rename, open, fork, delete", () => withPage(async ({ page }) => {
  await page.waitForSelector("#message");
  for (const text of ["about apples", "about pears"]) {
    await say(page, text);
    await ended(page);
    await page.click("text=New chat");
    await page.getByRole("heading", { name: "New chat" }).waitFor();
  }
  await open(page, "Sessions");
  await page.fill("#search", "apples");
  const rows = page.locator(".sessions li");
  await becomes(() => rows.count(), 1);
  await page.getByRole("button", { name: "Rename" }).click();
  await becomes(() => page.inputValue("input[aria-label=Title]"), "about apples");
  await page.keyboard.type("Fruit"); // in the place of the old title, which is selected
  await page.click("button:has-text('Save')");
  await page.fill("#search", "fruit");
  await page.locator(".sessions .title", { hasText: "Fruit" }).waitFor();
  await tells(rows.first(), /2 messages/);
  await page.getByRole("button", { name: "Fork" }).click();
  await page.locator(".question .words", { hasText: "about apples" }).waitFor();
  await open(page, "Sessions");
  await page.fill("#search", "fruit #2");
  await becomes(() => rows.count(), 1);
  await page.getByRole("button", { name: "Delete" }).click();
  await page.locator(".sessions button.danger").click();
  await becomes(() => rows.count(), 0);
  await page.fill("#search", "fruit");
  await page.locator(".sessions .title", { hasText: "Fruit" }).click();
  await page.locator(".question .words", { hasText: "about apples" }).waitFor();
  assert.match(await page.locator(".foot a").getAttribute("href"), /^#\/runs\/run_/); // each message with its run
}));

test("sessions are pinned, and found by what was said in them", () => withPage(async ({ page }) => {
  const { session } = await api("POST", "/api/sessions", { title: "Kept at the top" });
  await api("POST", `/api/sessions/${session.id}/chat`, { message: "Where do the <b>quinces</b> grow?" });
  await open(page, "Sessions");
  await page.fill("#search", "kept at the top");
  await page.getByRole("button", { name: "Pin" }).click();
  await page.locator(".side-list section[aria-label=Pinned]").getByText("Kept at the top").waitFor();
  await page.fill("#search", "QUINCES grow");
  const found = page.locator(".found a", { hasText: "Kept at the top" }).first();
  await tells(found, /<b>quinces<\/b> grow/);
  assert.deepEqual(await found.locator("mark").allTextContents(), ["quinces", "grow"]);
  await accessible(page, "search");
  await found.click();
  await page.locator(".question .words", { hasText: "quinces" }).waitFor();
  await open(page, "Sessions");
  await page.fill("#search", "kept at the top");
  await page.getByRole("button", { name: "Pin" }).click();
  await becomes(() => page.locator(".side-list section[aria-label=Pinned]").count(), 0);
  await page.fill("#search", "nobody ever said this");
  await page.getByText("Nothing was said with these words.").waitFor();
}));

test("a session is saved as Markdown and as JSON", () => withPage(async ({ page }) => {
  const { session } = await api("POST", "/api/sessions", { title: "To keep: 1/2" });
  await api("POST", `/api/sessions/${session.id}/chat`, { message: "/terminal echo ```kept```" });
  await open(page, "Sessions");
  await page.fill("#search", "to keep");
  const saved = async (kind) => {
    await page.getByRole("button", { name: "Export" }).click();
    const [file] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: kind }).click()]);
    return [file.suggestedFilename(), await readFile(await file.path(), "utf-8")];
  };
  const [name, text] = await saved("Markdown");
  assert.equal(name, "to-keep-1-2.md");
  assert.match(text, /^# To keep: 1\/2\n\n## You\n\n\/terminal echo ```kept```\n\n## Agent\n\n/);
  assert.match(text, /Calls \*\*terminal\*\*:\n\n````json\n.*kept.*\n````\n\nResult of \*\*terminal\*\*:/);
  const [, json] = await saved("JSON");
  const { session: stored, messages } = JSON.parse(json);
  assert.deepEqual([stored.id, messages[0].role, messages.at(-1).role], [session.id, "user", "assistant"]);
}));

test("a title that is taken is refused with its reason", () => withPage(async ({ page }) => {
  await api("POST", "/api/sessions", { title: "Taken" });
  await api("POST", "/api/sessions", { title: "Free" });
  await open(page, "Sessions");
  await page.fill("#search", "free");
  await page.getByRole("button", { name: "Rename" }).click();
  await page.fill("input[aria-label=Title]", "Taken");
  await page.click("button:has-text('Save')");
  await page.getByText("Another session has this title.").waitFor();
}, { expected: /400/ }));

test("runs: a live list, stop, filters", () => withPage(async ({ page }) => {
  await open(page, "Runs");
  const { run_id: id } = await api("POST", "/v1/runs", { input: "/sleep 60" });
  const row = page.locator("table.runs tbody tr", { has: page.locator(`a[title="${id}"]`) });
  await row.getByText("running").waitFor();
  await tells(row, /\/sleep 60.*node runs/s); // what was said, and by which program
  await page.getByRole("button", { name: "live" }).click();
  await row.getByRole("button", { name: /^Stop/ }).click();
  await becomes(() => row.count(), 0);
  await page.getByRole("button", { name: "stopped" }).click();
  await row.getByText("stopped on request").waitFor();
}));

test("one run: facts, timeline, events, copies", () => withPage(async ({ page }) => {
  const { run_id: id } = await api("POST", "/v1/runs", { input: "/think x\n/sleep 2\n/read none\n/terminal echo end" });
  await page.goto(`${BASE}/#/runs/${id}`);
  await page.locator(".bar-tool").first().waitFor(); // while it runs
  await page.locator(".status.completed").waitFor();
  await becomes(() => page.locator(".bar-tool").count(), 2);
  await becomes(() => page.locator(".bar-failed").count(), 1);
  await tells(page.locator(".facts"), /Kindruns.*out/s);
  await page.click("text=/^Events/");
  await tells(page.locator(".events"), /0 run\.started.*run\.completed/s);
  const lines = (await copied(page, page.getByRole("button", { name: "Copy events" }))).split("\n").map((line) => JSON.parse(line));
  assert.deepEqual(lines.map((line) => line.seq), lines.map((_, n) => n));
  assert.equal(lines.at(-1).event, "run.completed");
  const parts = await page.locator(".bar-tool").evaluateAll((bars) => bars.map((bar) => bar.getBoundingClientRect().width / bar.parentElement.getBoundingClientRect().width));
  const all = lines.at(-1).timestamp - lines[0].timestamp;
  const took = lines.filter((line) => line.event === "tool.completed" && !line.error).map((line) => line.duration / all);
  assert.ok(parts.every((part, n) => Math.abs(part - took[n]) < 0.03), `${parts} for ${took}`); // as long as they took
  assert.ok((await copied(page, page.getByTitle("Copy as curl"))).includes(`${BASE}/v1/runs/${id}/events`));
  assert.ok(!(await copied(page, page.getByTitle("Copy as Python"))).includes(KEY));
}, CLIPBOARD));

test("an approval is answered where the run is looked at", () => withPage(async ({ page }) => {
  const { run_id: id } = await api("POST", "/v1/runs", { input: "/terminal rm -rf ./nothing-here" });
  await page.goto(`${BASE}/#/runs/${id}`);
  await page.locator(".approval.open").getByRole("button", { name: "Always allow" }).click();
  await page.locator(".status.completed").waitFor();
  await becomes(() => page.locator(".bar-approval").count(), 1);
  await open(page, "Server");
  const grants = page.locator(".sessions li");
  await grants.first().waitFor();
  const count = await grants.count();
  await grants.first().getByRole("button", { name: "Forget" }).click();
  await becomes(() => grants.count(), count - 1);
}));

test("a run that is not there says so", () => withPage(async ({ page }) => {
  for (const name of ["nothing", "none", "never", "nowhere", "nobody"]) { // the answer may come sooner than the view watches for it
    await page.goto(`${BASE}/#/runs/run_${name}`);
    await page.getByText(`There is no run 'run_${name}'`).waitFor();
  }
}, { expected: /404/ }));

test("the server: plots, routes, checks, settings, version", () => withPage(async ({ page }) => {
  const { run_id: id } = await api("POST", "/v1/runs", { input: "/long 100000" }); // goes on for as long as somebody looks
  await eventually(async () => (await api("GET", "/api/metrics/history")).data.at(-1)?.events_per_second > 0);
  await open(page, "Server");
  await becomes(() => page.locator(".plot canvas").count(), 9);
  const shown = (name) => page.locator(".plot", { hasText: name }).locator(".now");
  for (const [name, pattern] of [["Memory", /MiB/], ["Events per second", /[1-9]/], ["Store latency", /p50 .*ms.*p99 .*ms/], ["Time to first text", /p50 \d/], ["Request latency", /p99 \d/]]) {
    await tells(shown(name), pattern); // from the past: nothing of it was seen by this page
  }
  await api("POST", `/v1/runs/${id}/stop`, {});
  await tells(page.locator(".facts").first(), /storeok.*Up for\d.*Version\d+\.\d+/s);
  await tells(page.getByRole("region", { name: "Routes" }), /\/v1\/runs\d+/);
  const settings = page.getByRole("region", { name: "Settings" });
  await settings.getByText("model_name").waitFor();
  assert.ok(!(await page.content()).includes(KEY));
  await page.getByRole("button", { name: "15 min" }).click();
  await page.locator("[aria-pressed=true]", { hasText: "15 min" }).waitFor();
  const [metrics] = await Promise.all([page.context().waitForEvent("page"), page.getByRole("link", { name: "Metrics" }).click()]);
  await tells(metrics.locator("body"), /hermes_trio_ready 1/);
}));

test("the server: no caption is cut off", () => withPage(async ({ page }) => {
  await eventually(async () => (await api("GET", "/api/metrics/history")).data.length);
  await page.waitForSelector("#message");
  for (const colorScheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
    for (const width of [375, 1280]) {
      await page.setViewportSize({ width, height: 800 });
      await page.goto(`${BASE}/#/server`);
      await page.getByRole("region", { name: "Settings" }).waitFor();
      const cut = await page.locator(".plot").evaluateAll((plots) => plots.flatMap((plot) => {
        const edge = plot.getBoundingClientRect();
        return [...plot.querySelectorAll("figcaption, figcaption *")].filter((part) => part.scrollWidth > part.clientWidth + 1 && part.clientWidth > 0 || part.getBoundingClientRect().right > edge.right).map((part) => part.textContent);
      }));
      assert.deepEqual(cut, [], `at ${width} px`);
      assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), width);
      await accessible(page, `server at ${width} px, ${colorScheme}`);
      if (process.env.SHOTS) await page.screenshot({ path: `${process.env.SHOTS}/server-${width}-${colorScheme}.png` });
    }
  }
}));

test("the server: its workers, and how long it drains", () => withPage(async ({ page }) => {
  await page.waitForSelector("#message");
  const answer = (path, change) => page.route(`**${path}`, async (route) => {
    const response = await route.fetch();
    const found = await response.json();
    change(found);
    await route.fulfill({ response, json: found });
  });
  const worker = (number, more) => ({ number, is_this: number === 1, not_ready: "", live_runs: 3, memory_bytes: 52_428_800, ...more });
  await answer("/health/detailed", (found) => { found.drain_remaining_seconds = 12.4; });
  await answer("/api/status", (found) => {
    found.server.workers = [worker(1), worker(2, { not_ready: "does not answer", live_runs: null, memory_bytes: null })];
    found.server.nodes = [{ name: "a", address: "host-a:8642", is_alive: true, live_runs: 4, silent_seconds: 2.2, is_this: true }];
  });
  await open(page, "Server");
  await tells(page.locator(".facts").first(), /Stops in12 s/);
  await tells(page.getByRole("region", { name: "Workers" }), /1 this oneready350\.0 MiB2does not answer––/);
  await tells(page.getByRole("region", { name: "Nodes" }), /host-a:8642 this onealive42 s ago/);
  await accessible(page, "workers");
  if (process.env.SHOTS) await page.screenshot({ path: `${process.env.SHOTS}/workers.png` });
}));

test("the server: its log, for administrators", () => withPage(async ({ page }) => {
  await open(page, "Server");
  const log = page.getByRole("region", { name: "Log lines" });
  const mark = `marked-${Date.now()}`;
  await tells(log, /GET/);
  const ask = (id) => fetch(`${BASE}/v1/models`, { headers: { Authorization: `Bearer ${KEY}`, "X-Request-Id": id } });
  await ask(mark);
  await tells(log, new RegExp(mark));
  await page.getByRole("button", { name: "Pause" }).click();
  await page.getByText("paused").waitFor();
  await ask(`second-${mark}`);
  assert.ok(!(await log.textContent()).includes(`second-${mark}`));
  await page.getByRole("button", { name: "Pause" }).click();
  await tells(log, new RegExp(`second-${mark}`));
  assert.ok(!(await log.textContent()).includes(KEY));
  await page.getByRole("button", { name: "Warnings" }).click();
  await becomes(async () => (await log.textContent()).includes(mark), false);
  await accessible(page, "log");
  await page.getByRole("button", { name: "Warnings" }).click();
  await log.scrollIntoViewIfNeeded();
  if (process.env.SHOTS) await page.screenshot({ path: `${process.env.SHOTS}/log.png` });
}));

test("the server: a key that is no administrator's sees no log", () => withPage(async ({ page }) => {
  const server = await ownServer({ ann: "a-key-of-ann-0123456789abcdef", bob: "a-key-of-bob-0123456789abcdef" });
  try {
    await page.goto("about:blank");
    await page.goto(`${server.link}#key=a-key-of-bob-0123456789abcdef`);
    await page.waitForSelector("#message");
    await open(page, "Server");
    await page.getByRole("region", { name: "Settings" }).waitFor();
    await becomes(() => page.getByRole("region", { name: "Log lines" }).count(), 0);
  } finally {
    await server.close();
  }
}, { expected: /.*/ }));

test("the server: another gateway that it watches", () => withPage(async ({ page }) => {
  for (const [address, state, reason] of [[`${BASE}/v1`, "up", /needs a key/], ["127.0.0.1:1", "down", /cannot be reached/]]) {
    const server = await ownServer({}, { GATEWAY_HEALTH_URL: address });
    try {
      await page.goto("about:blank");
      await page.goto(server.link);
      await page.waitForSelector("#message");
      await open(page, "Server");
      await page.getByRole("heading", { name: `Gateway at ${address.startsWith("http") ? BASE : `http://${address}`}` }).waitFor();
      await tells(page.locator(".facts.gateway"), new RegExp(`State${state}`));
      await page.getByText(reason).waitFor();
    } finally {
      await server.close();
    }
  }
}, { expected: /.*/ }));

test("the page below the prefix of a profile is for that profile", () => withPage(async ({ page }) => {
  await page.waitForSelector("#message");
  await page.waitForURL(`${BASE}/p/second/#/`);
  await say(page, "below the prefix");
  await ended(page);
  assert.match(await page.locator(".foot").textContent(), /second-agent/);
  await page.goto(`${BASE}/#/sessions`); // elsewhere its records are not to be seen
  await page.locator("[role=status]", { hasText: "of" }).first().waitFor();
  await page.fill("#search", "below the prefix");
  await page.getByText(/^0 of/).waitFor();
}, { path: `/p/second#key=${KEY}` }));
