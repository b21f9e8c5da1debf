// One session on the screen: its turns, and the one that is under way. It goes on while other views are open.

import { ApiFailure, get, now, part, randomId, request, send } from "./api.js";
import { Cell } from "./cell.js";
import { isLive } from "./events.js";
import { defaultModel } from "./models.js";
import { announce } from "./notes.js";
import { followRun, followTurn } from "./run_stream.js";
import { messageOf, turnsOf } from "./transcript.js";
import { isOver, newTurn, take } from "./turn.js";
import { ownerOf, versionsOf } from "./versions.js";

const RECALLED = 10; // turns
const RECALL_PATIENCE = 5000; // milliseconds

const open = new Map(); // of this tab, by session id
export const changed = new Cell(0); // sessions came, went or were used

// Tells the other tabs of this browser which session has a new turn. Other clients are found by polling.
const tabs = new BroadcastChannel("hermes-trio-turns");
tabs.onmessage = ({ data: sessionId }) => {
  changed.set(changed.value + 1);
  void open.get(sessionId)?.catchUp();
};

export function conversation(sessionId) {
  if (!open.has(sessionId)) open.set(sessionId, new Conversation(sessionId));
  return open.get(sessionId);
}

export function forget(sessionId) {
  open.get(sessionId)?.close();
  open.delete(sessionId);
  changed.set(changed.value + 1);
}

export async function allMessages(sessionId) {
  const messages = [];
  for (let more = true; more;) {
    const after = messages.at(-1)?.id ?? 0;
    const page = await get(`/api/sessions/${part(sessionId)}/messages?after=${after}`);
    messages.push(...page.data);
    more = page.has_more && page.data.length > 0;
  }
  return messages;
}

export class Conversation {
  #leaving = new AbortController();
  #loading = null;
  #catchingUp = null;
  #known = new Set(); // the runs that are on the screen, or have left no message

  constructor(id) {
    this.id = id;
    this.cell = new Cell(this);
    this.state = "new";
    this.failure = "";
    this.session = null;
    this.turns = [];
    this.versions = new Map(); // by the id of the message that has several: { ids, at }
    this.stored = 0; // messages
    this.queued = null; // the message to send when the turn has ended
  }

  get live() {
    const last = this.turns.at(-1);
    return last && !isOver(last) ? last : null;
  }

  close() {
    this.#leaving.abort();
  }

  load() {
    this.#loading ??= this.#load();
    return this.#loading;
  }

  async #load() {
    this.state = "loading";
    this.cell.poke();
    try {
      await this.#read();
      this.state = "ready";
    } catch (error) {
      this.state = "failed";
      this.failure = error.message;
      this.#loading = null;
    }
    this.cell.poke();
  }

  async #read() {
    const path = `/api/sessions/${part(this.id)}`;
    const runs = await get(`/v1/runs?session_id=${part(this.id)}&limit=100`);
    // A session whose first turn is one of Chat Completions is there when that has ended.
    const isLater = runs.data.some((run) => isLive(run.status));
    const [found, messages] = await Promise.all([get(path), allMessages(this.id)]).catch((error) => {
      if (!isLater || error.status !== 404) throw error;
      return [{ session: null }, []];
    });
    this.session = found.session;
    this.stored = messages.length;
    void this.findVersions();
    const byId = new Map(runs.data.map((run) => [run.run_id, run]));
    this.turns = turnsOf(messages, byId);
    await Promise.all(latestWithTools(this.turns).map(recall));
    const told = new Set(messages.map((message) => message.run_id));
    const missing = runs.data.filter((run) => !told.has(run.run_id)).reverse();
    for (const run of runs.data) this.#known.add(run.run_id);
    for (const run of missing.filter((each) => isLive(each.status))) this.#resume(run);
  }

  // Show the turns that others have begun in this session since it was loaded. One of this tab has their place in order.
  catchUp() {
    this.#catchingUp ??= this.#addNewTurns().finally(() => { this.#catchingUp = null; });
    return this.#catchingUp;
  }

  async #addNewTurns() {
    if (this.state !== "ready" || this.live) return;
    const page = await get(`/v1/runs?session_id=${part(this.id)}&limit=20`).catch(() => ({ data: [] }));
    const runs = page.data.filter((run) => !this.#known.has(run.run_id)).reverse();
    if (!runs.length) return;
    const messages = await allMessages(this.id).catch(() => null);
    if (messages === null || this.live) return;
    this.stored = messages.length;
    for (const run of runs) this.#known.add(run.run_id);
    const ended = new Map(runs.filter((run) => !isLive(run.status)).map((run) => [run.run_id, run]));
    const turns = turnsOf(messages.filter((message) => ended.has(message.run_id)), ended);
    await Promise.all(latestWithTools(turns).map(recall));
    this.turns = [...this.turns, ...turns];
    this.cell.poke();
    for (const run of runs.filter((each) => !ended.has(each.run_id))) this.#resume(run);
  }

  #resume(run) {
    const turn = this.#add({ runId: run.run_id, model: run.model, began: run.created_at });
    this.#follow(turn, run.kind === "sessions" ? {} : { isRun: true });
  }

  #add(fields) {
    const turn = newTurn({ key: randomId(), began: now(), cell: new Cell(null), ...fields });
    this.turns = [...this.turns, turn];
    this.cell.poke();
    return turn;
  }

  // Ask something. Nothing that was asked is asked twice: the key makes a repeated request the same one.
  // While a turn is under way, the message is queued. Returns false where neither is possible.
  async ask(content) {
    if (this.state !== "ready") await this.load(); // it puts other turns in the place of these
    if (this.state !== "ready") return false;
    if (this.live) return this.#enqueue(content);
    const turn = this.#add({ question: content, model: this.session?.model || defaultModel(), messageId: this.stored + 1 });
    const headers = { "Idempotency-Key": randomId(), "X-Hermes-On-Disconnect": "detach" };
    const start = (path, signal) => request("POST", path, { body: { message: content }, headers, signal });
    return this.#follow(turn, { start });
  }

  #enqueue(content) {
    if (this.queued !== null) return false;
    this.setQueued(content);
    announce("The message is sent when this turn has ended.");
    return true;
  }

  setQueued(content) {
    this.queued = content;
    this.cell.poke();
  }

  async sendQueued() {
    const content = this.queued;
    if (content === null || this.live) return;
    this.setQueued(null);
    await this.ask(content);
  }

  async #follow(turn, { start, isRun }) {
    const options = {
      after: () => turn.seq,
      run: () => turn.runId,
      take: (event) => this.#take(turn, event),
      state: (text) => this.#connection(turn, text),
      signal: this.#leaving.signal,
      start,
    };
    changed.set(changed.value + 1);
    try {
      await (isRun ? followRun(turn.runId, options) : followTurn(this.id, options));
    } catch (error) {
      await this.#lost(turn, error);
    }
    if (this.#leaving.signal.aborted) return;
    await this.#settle(turn);
  }

  #take(turn, event) {
    const before = turn.status;
    take(turn, event);
    if (event.event === "run.started" && !this.#known.has(turn.runId)) {
      this.#known.add(turn.runId);
      tabs.postMessage(this.id);
    }
    turn.cell.poke();
    if (turn.status !== before) this.cell.poke();
    tell(turn, event, before);
  }

  #connection(turn, text) {
    if (turn.connection === text) return;
    turn.connection = text;
    if (text) announce(["busy", "draining"].includes(text) ? "The server cannot take the message yet. Trying again." : "Connection lost. Trying again.");
    turn.cell.poke();
  }

  // Its events cannot be had. It may still run: then its record tells when it has ended.
  async #lost(turn, error) {
    const isHidden = turn.runId && error instanceof ApiFailure && error.code === "events_expired";
    if (!isHidden) {
      this.#fail(turn, error);
      return;
    }
    turn.connection = "events are not kept";
    turn.cell.poke();
    for (let run = { status: "running" }; isLive(run.status) && !this.#leaving.signal.aborted;) {
      await new Promise((resolve) => { setTimeout(resolve, 2000); });
      run = await get(`/v1/runs/${part(turn.runId)}`).catch(() => run);
    }
    this.#loading = null;
    await this.load();
  }

  #fail(turn, error) {
    Object.assign(turn, { status: "failed", error: error.message, ended: now(), connection: "" });
    announce(`The turn failed: ${error.message}`);
    turn.cell.poke();
    this.cell.poke();
  }

  async #settle(turn) {
    const found = await get(`/api/sessions/${part(this.id)}`).catch(() => null);
    if (found) this.session = found.session;
    this.stored = found?.session.message_count ?? this.stored;
    if (turn.question === null) { // another client asked: only the transcript knows what
      const messages = await allMessages(this.id).catch(() => []);
      turn.question = turnsOf(messages.filter((message) => message.run_id === turn.runId))[0]?.question ?? null;
      turn.cell.poke();
    }
    this.cell.poke();
    changed.set(changed.value + 1);
    if (turn.status !== "failed") void this.sendQueued();
  }

  async findVersions() {
    this.versions = await versionsOf(this.session).catch(() => new Map());
    this.cell.poke();
  }

  async stop() {
    const turn = this.live;
    if (!turn?.runId) return;
    turn.status = "stopping";
    turn.cell.poke();
    await send("POST", `/v1/runs/${part(turn.runId)}/stop`).catch((error) => announce(error.message));
  }

  // Answer a question of the agent's. The stream tells what became of it.
  async answer(turn, approval, choice) {
    approval.failure = "";
    try {
      await send("POST", `/v1/runs/${part(turn.runId)}/approval`, { choice, approval_id: approval.id });
    } catch (error) {
      approval.failure = error.message;
    }
    turn.cell.poke();
  }
}

function latestWithTools(turns) {
  const lastOf = new Map(turns.filter((turn) => turn.runId).map((turn) => [turn.runId, turn]));
  return [...lastOf.values()].filter((turn) => turn.parts.some((part) => part.type === "tool")).slice(-RECALLED);
}

// A transcript has no durations and does not say which tools failed. The events do, for as long as they are kept.
async function recall(turn) {
  const told = newTurn({ key: turn.key });
  const note = (event) => take(told, event);
  try {
    await followRun(turn.runId, { after: () => told.seq, take: note, state: () => {}, signal: AbortSignal.timeout(RECALL_PATIENCE) });
  } catch {
    return; // then it is shown as the transcript has it
  }
  if (isOver(told)) turn.parts = told.parts;
}

function tell(turn, event, before) {
  if (event.event === "tool.started") announce(`Tool ${event.tool} is running.`);
  if (event.event === "approval.request") announce("The agent asks for approval.");
  if (isOver(turn) && before !== turn.status) announce(turn.status === "completed" ? "The answer is complete." : `The turn ended: ${turn.status}.`);
}

// -- making sessions --

export async function newConversation(model) {
  const { session } = await send("POST", "/api/sessions", model ? { model } : {});
  const made = conversation(session.id);
  Object.assign(made, { session, state: "ready" });
  changed.set(changed.value + 1);
  return made;
}

// Ask something else, or the same again, instead of what a turn asked: in a fork of what was said before, so nothing is
// lost.
export async function branch(source, turn, content, model) {
  const messages = await allMessages(source.id);
  if (!messages.length) {
    const made = await newConversation(model);
    void made.ask(content);
    return made;
  }
  const before = messageOf(messages, turn);
  const owner = before ? await ownerOf(source.session, before) : source;
  const { session } = await send("POST", `/api/sessions/${part(owner.id)}/fork`, before ? { before, model } : { model });
  const made = conversation(session.id);
  await made.load();
  void made.ask(content);
  return made;
}
