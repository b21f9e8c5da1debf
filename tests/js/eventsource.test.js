// The example of the how-to guide on EventSource, with a real EventSource, against the server at BASE_URL: through a proxy
// that loses connections, and past the expiry of its ticket (TICKET_SECONDS).

import assert from "node:assert/strict";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { connect, createServer } from "node:net";
import { after, test } from "node:test";

import { EventSource } from "eventsource";

const { BASE_URL, API_KEY, TICKET_SECONDS } = process.env;
assert.ok(BASE_URL && API_KEY && TICKET_SECONDS, "the environment is not set: python tests/js/run.py does that");

const limit = { timeout: 60_000 };
const guide = await readFile(new URL("../../docs/how_to/stream_to_a_browser.md", import.meta.url), "utf8");
const [, example] = /^```js\n(.*?)^```$/ms.exec(guide);
const follow = new Function("EventSource", `${example}\nreturn follow;`)(EventSource);

async function api(method, path, body) {
  const headers = { Authorization: `Bearer ${API_KEY}`, "Content-Type": "application/json" };
  return fetch(BASE_URL + path, { method, headers, body: body && JSON.stringify(body) });
}

async function started(input) {
  return (await (await api("POST", "/v1/runs", { input })).json()).run_id;
}

// What the reader's own server does.
async function getTicket(runId) {
  const response = await api("POST", `/v1/runs/${runId}/ticket`);
  assert.equal(response.status, 200);
  return (await response.json()).ticket;
}

async function eventsWithKey(runId) {
  const text = await (await api("GET", `/v1/runs/${runId}/events`)).text();
  return text.split("\n").filter((line) => line.startsWith("data: ")).map((line) => JSON.parse(line.slice(6)));
}

// A run that waits for as long as the test wants: for the answer to its approval request.
const WAITS = "/terminal rm -rf nothing";

function isWaiting(events) {
  return events.some((event) => event.event === "approval.request");
}

async function goOn(runId) {
  assert.equal((await api("POST", `/v1/runs/${runId}/approval`, { choice: "deny" })).status, 200);
}

// A network that can be cut: every connection goes through here.
async function network() {
  const state = { isUp: true, connections: 0, sockets: new Set() };
  const { hostname, port } = new URL(BASE_URL);
  const server = createServer((client) => {
    if (!state.isUp) return client.destroy();
    state.connections += 1;
    const upstream = connect(Number(port), hostname);
    for (const [from, to] of [[client, upstream], [upstream, client]]) {
      state.sockets.add(from);
      from.on("error", () => {}).on("close", () => to.destroy()).pipe(to);
    }
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  state.url = `http://127.0.0.1:${server.address().port}`;
  state.cut = () => state.sockets.forEach((socket) => socket.destroy());
  after(() => {
    state.cut();
    server.close();
  });
  return state;
}

function until(check, milliseconds = 20) {
  return new Promise((resolve) => {
    const timer = setInterval(() => check() && resolve(clearInterval(timer)), milliseconds);
  });
}

test("the example follows a run to its end", limit, async () => {
  const runId = await started("/terminal echo hello");
  const events = [];
  const last = await follow(BASE_URL, runId, getTicket, (event) => events.push(event));
  assert.equal(last.event, "run.completed");
  assert.deepEqual(events, await eventsWithKey(runId));
});

test("a lost connection is resumed with the same ticket", limit, async () => {
  const runId = await started(WAITS);
  const line = await network();
  let tickets = 0;
  const events = [];
  const counted = (id) => { tickets += 1; return getTicket(id); };
  const end = follow(line.url, runId, counted, (event) => events.push(event));
  await until(() => isWaiting(events));
  line.cut();
  await until(() => line.connections === 2);
  await goOn(runId);
  await end;
  assert.deepEqual(events, await eventsWithKey(runId)); // nothing lost, nothing twice
  assert.equal(tickets, 1);
});

test("an expired ticket is replaced, and the stream goes on after the last event", limit, async () => {
  const runId = await started(WAITS);
  const line = await network();
  const given = [];
  const events = [];
  const noted = async (id) => {
    given.push(await getTicket(id));
    return given.at(-1);
  };
  const end = follow(line.url, runId, noted, (event) => events.push(event));
  await until(() => isWaiting(events));
  line.isUp = false;
  line.cut();
  await new Promise((resolve) => { setTimeout(resolve, (Number(TICKET_SECONDS) + 1) * 1000); }); // the server's own clock
  line.isUp = true;
  await until(() => given.length === 2);
  await goOn(runId);
  await end;
  assert.deepEqual(events, await eventsWithKey(runId));
  const expired = await fetch(`${BASE_URL}/v1/runs/${runId}/events?ticket=${given[0]}`);
  assert.deepEqual([expired.status, (await expired.json()).error.code], [401, "ticket_expired"]);
});

test("EventSource stops for good when its ticket is refused", limit, async () => {
  const [runId, other] = [await started("hello"), await started("hello")];
  const ticket = await getTicket(runId);
  for (const query of ["", "?ticket=", `?ticket=${ticket}x`]) await refused(`/v1/runs/${runId}/events${query}`);
  await refused(`/v1/runs/${other}/events?ticket=${ticket}`);
  await refused(`/v1/responses/${runId}?ticket=${ticket}`);
});

async function refused(path) {
  const source = new EventSource(BASE_URL + path);
  const [event] = await once(source, "error").catch((error) => [error]);
  assert.equal(event.code, 401);
  assert.equal(source.readyState, EventSource.CLOSED);
}

test("after the end of a run the browser is told not to come again", limit, async () => {
  const runId = await started("hello");
  const source = new EventSource(`${BASE_URL}/v1/runs/${runId}/events?ticket=${await getTicket(runId)}`);
  const codes = [];
  source.addEventListener("error", (event) => codes.push(event.code));
  await until(() => source.readyState === EventSource.CLOSED);
  assert.deepEqual(codes, [undefined, 204]); // the end of the stream, then the answer to the reconnection
});

test("the stream of a response", limit, async () => {
  const { id } = await (await api("POST", "/v1/responses", { input: "hello", background: true })).json();
  const source = new EventSource(`${BASE_URL}/v1/responses/${id}?stream=true&ticket=${await getTicket(id)}`);
  const event = await new Promise((resolve) => { source.addEventListener("response.completed", resolve); });
  source.close();
  assert.equal(JSON.parse(event.data).response.id, id);
});
