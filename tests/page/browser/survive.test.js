import assert from "node:assert/strict";
import { test } from "node:test";
import { ownServer } from "./own_server.js";
import { api, BASE, becomes, ended, eventually, gate, KEY, say, SECONDS, timer, withPage } from "./setup.js";

test("a reload during a long tool: the card still runs, with the right timer, and completes", () => withPage(async ({ page }) => {
  await page.waitForSelector("#message");
  const asked = Date.now();
  await say(page, `/think first\n/sleep ${SECONDS}\n/terminal echo after`);
  const card = page.locator(".tool").first();
  await page.waitForSelector(".tool.running");
  const began = Date.now();
  await eventually(() => Date.now() - began > 3500);
  await page.reload();
  await page.waitForSelector(".tool.running");
  await eventually(async () => { // whole seconds, drawn once a second
    const least = (Date.now() - began) / 1000;
    const shown = await timer(card);
    return shown > least - 2 && shown <= (Date.now() - asked) / 1000;
  });
  assert.equal(await page.locator(".question .words").textContent(), `/think first\n/sleep ${SECONDS}\n/terminal echo after`);
  await ended(page);
  assert.deepEqual(await page.locator(".tool .state").allTextContents(), ["completed", "completed"]);
  const took = await timer(card);
  assert.ok(took >= SECONDS && took < SECONDS + 15, `${took} s`);
  assert.equal(await page.locator(".turn").count(), 1);
}));

test("a reload while text streams loses no word and doubles none", () => withPage(async ({ page }) => {
  await page.waitForSelector("#message");
  await say(page, "/long 200");
  await page.getByText("word20 ").waitFor();
  await page.reload();
  await page.getByText("word40 ").waitFor();
  await page.reload();
  await ended(page);
  const words = (await page.locator(".answer").textContent()).match(/word\d+/g);
  assert.deepEqual(words, Array.from({ length: 200 }, (_, n) => `word${n + 1}`));
}));

test("the network goes and comes: the stream goes on where it was", () => withPage(async ({ page, context }) => {
  await page.waitForSelector("#message");
  await say(page, "/long 250\n/terminal echo late");
  await page.getByText("word20 ").waitFor();
  await context.setOffline(true);
  await page.locator(".waiting.lost").waitFor();
  const before = (await page.locator(".answer").textContent()).match(/word\d+/g).length;
  await new Promise((resolve) => { setTimeout(resolve, 1500); });
  assert.equal((await page.locator(".answer").textContent()).match(/word\d+/g).length, before);
  await context.setOffline(false);
  await ended(page);
  const words = (await page.locator(".answer").textContent()).match(/word\d+/g);
  assert.deepEqual(words, Array.from({ length: 250 }, (_, n) => `word${n + 1}`));
  assert.equal(await page.locator(".tool .state").textContent(), "completed");
}, { expected: /ERR_INTERNET_DISCONNECTED|ERR_NETWORK/ }));

test("a request whose answer never arrived is not asked twice", () => withPage(async ({ page }) => {
  await page.waitForSelector("#message");
  let cut = 0;
  await page.route("**/chat/stream", async (route) => {
    cut += 1;
    if (cut > 2) return route.continue();
    await fetch(route.request().url(), { method: "POST", headers: await route.request().allHeaders(), body: route.request().postData() });
    return route.abort("connectionreset");
  });
  await say(page, "only once");
  await ended(page);
  assert.equal(cut, 3);
  assert.equal(await page.locator(".turn").count(), 1);
  const id = decodeURIComponent(page.url().split("/s/")[1]);
  assert.equal((await api("GET", `/v1/runs?session_id=${id}`)).data.length, 1);
}, { expected: /ERR_CONNECTION_RESET/ }));

test("what could not be sent is not lost", () => withPage(async ({ page, context }) => {
  await page.waitForSelector("#message");
  await context.setOffline(true);
  await say(page, "a long thought");
  await page.locator(".problem").waitFor();
  assert.equal(await page.inputValue("#message"), "a long thought");
  await context.setOffline(false);
  await page.reload();
  assert.equal(await page.inputValue("#message"), "a long thought"); // drafts survive too
  await page.press("#message", "Enter");
  await ended(page);
  await page.click("text=New chat");
  await page.locator("h1", { hasText: "New chat" }).waitFor();
  assert.equal(await page.inputValue("#message"), "");
}, { expected: /ERR_INTERNET_DISCONNECTED|ERR_NETWORK/ }));

test("a message that is sent while its session still loads stays on the screen", () => withPage(async ({ page }) => {
  await page.waitForSelector("#message");
  await say(page, "before");
  await ended(page);
  let goOn;
  const held = new Promise((resolve) => { goOn = resolve; });
  await page.route("**/messages?*", async (route) => {
    await held;
    await route.continue();
  });
  await page.reload();
  await page.getByText("Loading…").waitFor();
  await say(page, "meanwhile");
  goOn();
  await page.getByText("“meanwhile”").waitFor();
  await ended(page);
  assert.deepEqual(await page.locator(".question .words").allTextContents(), ["before", "meanwhile"]);
}));

test("a turn of another client is followed, and shows what was asked when it has ended", () => withPage(async ({ page }) => {
  await page.waitForSelector("#message");
  const body = JSON.stringify({ messages: [{ role: "user", content: "/sleep 4" }], stream: true });
  const headers = { Authorization: `Bearer ${KEY}`, "X-Hermes-Session-Id": "other-client" };
  const other = await fetch(`${BASE}/v1/chat/completions`, { method: "POST", headers, body });
  const run = await eventually(async () => (await api("GET", "/v1/runs?kind=chat")).data[0]);
  void other.text();
  await new Promise((resolve) => { setTimeout(resolve, 1500); }); // its beginning is gone by now
  await page.goto(`${BASE}/#/s/${run.session_id}`);
  await page.locator(".tool.completed").waitFor();
  await becomes(() => page.locator(".question .words").allTextContents(), ["/sleep 4"]);
}, { expected: /404/ }));

test("two tabs on one session stay in step, with each other and with other clients", () => withPage(async ({ page, context }) => {
  await page.waitForSelector("#message");
  await say(page, "/sleep 3");
  await page.waitForSelector(".tool.running");
  const other = await context.newPage();
  await other.goto(page.url());
  await other.waitForSelector(".tool.running");
  await ended(page);
  await ended(other);
  await say(other, "/terminal echo from the other tab");
  await becomes(() => page.locator(".tool.completed").count(), 2); // while it is in the background
  await ended(other);
  const session = decodeURIComponent(new URL(page.url()).hash.split("/").at(-1));
  await api("POST", `/api/sessions/${session}/chat`, { message: "from a program" });
  for (const each of [page, other]) {
    await each.bringToFront(); // a tab in the background does not poll
    await becomes(() => each.locator(".question .words").allTextContents(), ["/sleep 3", "/terminal echo from the other tab", "from a program"]);
    await becomes(() => each.locator(".tool.completed").count(), 2);
  }
}));

test("the server dies and comes back: the page takes up what is left of the turn", () => withPage(async ({ page }) => {
  const server = await ownServer();
  try {
    await page.goto("about:blank");
    await page.goto(server.link);
    await page.waitForSelector("#message");
    await say(page, "/long 20\n/sleep 60");
    await page.waitForSelector(".tool.running");
    await new Promise((resolve) => { setTimeout(resolve, 1500); }); // until it is logged
    await server.kill();
    await page.locator(".waiting.lost").waitFor();
    await server.start();
    await ended(page);
    assert.match(await page.locator(".foot").textContent(), /incomplete.*the server was killed/);
    assert.equal(await page.locator(".tool .state").textContent(), "cancelled");
    assert.equal((await page.locator(".answer").textContent()).match(/word\d+/g).length, 20);
    await say(page, "are you there?");
    await page.getByText("“are you there?”").waitFor();
  } finally {
    await server.close();
  }
}, { expected: /ERR_CONNECTION_REFUSED|ERR_INCOMPLETE|ERR_CONNECTION_RESET|ERR_EMPTY|fetched/ }));

test("a question that waits is still there after a reload", () => withPage(async ({ page }) => {
  await page.waitForSelector("#message");
  await say(page, "/ask echo later");
  await page.locator(".approval.open").waitFor();
  await page.reload();
  await page.locator(".approval.open").getByRole("button", { name: "Allow once" }).click();
  await ended(page);
  assert.equal(await page.locator(".tool .state").textContent(), "completed");
}));

test("a turn goes on while another view is open", () => withPage(async ({ page }) => {
  await page.waitForSelector("#message");
  const { command, open } = gate();
  await say(page, `/terminal ${command}`);
  await page.waitForSelector(".tool.running");
  const url = page.url();
  await page.click("nav >> text=Runs");
  await page.locator("table.runs tbody tr").first().getByText("running").waitFor();
  await page.goto(url);
  await page.waitForSelector(".tool");
  await open();
  await ended(page);
}));

test("a branch that is under way survives a reload too", () => withPage(async ({ page }) => {
  await page.waitForSelector("#message");
  await say(page, "begin");
  await ended(page);
  await say(page, "to be changed");
  await ended(page);
  await page.locator(".turn").nth(1).locator(".edit").click();
  const { command, open } = gate();
  await page.fill(".editing textarea", `/terminal ${command}`);
  await page.press(".editing textarea", "Enter");
  await page.waitForSelector(".tool.running");
  await page.reload();
  await page.waitForSelector(".tool.running");
  assert.equal(await page.locator(".question .words").last().textContent(), `/terminal ${command}`);
  await open();
  await ended(page);
}));

const FRAME = 16.7; // milliseconds: sixty in a second
const SHAPES = {
  "many paragraphs": (n) => (n % 50 === 49 ? "\n\n" : n % 400 === 0 ? "\n\n```js\nlet a = 1;\n```\n\n" : `word **${n}** `),
  "one paragraph": (n) => `word${n} `,
  "one block of code": (n) => (n === 0 ? "```js\n" : n % 8 ? `word${n} ` : "\n"),
};

// What the page itself has worked, by the clock of its thread, and how many frames there were. Frames that are late may
// be so because of others on the machine; work is not.
async function clock(page) {
  await page.evaluate(() => {
    window.frames_drawn = 0;
    const look = () => { window.frames_drawn += 1; requestAnimationFrame(look); };
    requestAnimationFrame(look);
  });
  const session = await page.context().newCDPSession(page);
  await session.send("Performance.enable", { timeDomain: "threadTicks" });
  return async () => {
    const { metrics } = await session.send("Performance.getMetrics");
    const seconds = metrics.find((metric) => metric.name === "TaskDuration").value;
    return { seconds, frames: await page.evaluate(() => window.frames_drawn) };
  };
}

// How many times slower than the machine that the limit was made on this one is, at this moment: by a piece of work like
// that of an answer, text and layout.
const USUAL = 300; // milliseconds
async function slowness(page, spent) {
  const before = await spent();
  await page.evaluate(() => {
    const place = document.createElement("div");
    document.body.append(place);
    for (let n = 0; n < 600; n += 1) {
      const paragraph = document.createElement("p");
      paragraph.textContent = `word${n} `.repeat(40);
      place.append(paragraph);
      if (place.scrollHeight < 0) return;
    }
    place.remove();
  });
  return Math.max(1, 1000 * ((await spent()).seconds - before.seconds) / USUAL);
}

for (const [shape, piece] of Object.entries(SHAPES)) test(`an answer of ten thousand tokens stays smooth: ${shape}`, () => withPage(async ({ page }) => {
  await page.waitForSelector("#message");
  const spent = await clock(page);
  const slower = await slowness(page, spent);
  // The stream is made up in the page: no agent says that much so fast.
  const id = await page.evaluate(async () => {
    const headers = { "Content-Type": "application/json" };
    const { session } = await (await fetch("api/sessions", { method: "POST", headers, body: "{}" })).json();
    return session.id;
  });
  await page.goto(`${page.url().split("#")[0]}#/s/${id}`);
  const body = Array.from({ length: 10_000 }, (_, n) => {
    return `event: assistant.delta\nid: ${n + 3}\ndata: ${JSON.stringify({ run_id: "run_x", seq: n + 3, ts: 1, message_id: "m", delta: piece(n) })}\n\n`;
  });
  const head = 'event: run.started\nid: 1\ndata: {"run_id": "run_x", "seq": 1, "ts": 1, "user_message": {"content": "x"}}\n\n';
  const tail = 'event: run.completed\nid: 20000\ndata: {"run_id": "run_x", "seq": 20000, "ts": 9, "usage": {"output_tokens": 10000}}\n\nevent: done\nid: 20001\ndata: {"run_id": "run_x", "seq": 20001, "ts": 9, "status": "completed"}\n\n';
  await page.evaluate(({ head: first, body: middle, tail: last }) => {
    const real = window.fetch;
    window.fetch = (url, options) => {
      if (!String(url).endsWith("/chat/stream")) return real(url, options);
      const encoder = new TextEncoder();
      let at = 0;
      const stream = new ReadableStream({
        start: (controller) => controller.enqueue(encoder.encode(first)),
        async pull(controller) {
          await new Promise((resolve) => { setTimeout(resolve, 8); });
          if (at === middle.length * 0.75) await new Promise((resolve) => { window.goOn = resolve; });
          controller.enqueue(encoder.encode(at < middle.length ? middle.slice(at, at + 20).join("") : last));
          if (at >= middle.length) controller.close();
          at += 20;
        },
      });
      return Promise.resolve(new Response(stream, { headers: { "Content-Type": "text/event-stream" } }));
    };
  }, { head, body, tail });
  await say(page, "go");
  await eventually(() => page.evaluate(() => Boolean(window.goOn)));
  const before = await spent();
  await page.evaluate(() => window.goOn());
  await ended(page);
  const after = await spent();
  const each = 1000 * (after.seconds - before.seconds) / (after.frames - before.frames);
  assert.ok(each < FRAME * slower, `${each.toFixed(1)} ms of work for each frame of the last quarter`);
  assert.match(await page.locator(".foot").textContent(), /10,000 tokens/);
}));
