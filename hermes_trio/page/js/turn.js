// One turn: what was asked, and what the agent did. Events go in one by one, in order; parts come out.
// A turn is changed in place and its version counts up: an answer of ten thousand tokens must not be copied for each.

import { Doc } from "./markdown.js";
import { ENDS } from "./events.js";

export const MOST_OUTPUT = 20_000; // characters of a tool's live output that are kept

export function newTurn(fields = {}) {
  return {
    key: "", runId: "", question: null, model: "", parts: [], seq: -1, version: 0, status: "queued", began: 0, ended: 0,
    usage: null, error: "", reason: "", connection: "", messageId: 0, incomplete: false, ...fields,
  };
}

// Take one event. Those that are there already are left alone, so a stream may be read again from any point.
export function take(turn, event) {
  if (event.seq <= turn.seq) return turn;
  turn.seq = event.seq;
  turn.version += 1;
  TAKERS[event.event]?.(turn, event);
  if (ENDS.has(event.event)) end(turn, event);
  return turn;
}

const TAKERS = {
  "run.started": (turn, event) => {
    turn.status = "running";
    turn.began = event.timestamp;
    turn.runId = event.run_id;
    turn.question ??= event.user_message?.content ?? null;
  },
  "message.delta": (turn, event) => said(turn, "text", event).doc.append(event.delta),
  "reasoning.delta": (turn, event) => said(turn, "reasoning", event).doc.append(event.delta),
  "tool.started": (turn, event) => {
    turn.parts.push(newCall({
      id: event.toolCallId, name: event.tool, label: event.preview ?? "", args: event.args, began: event.timestamp,
    }));
  },
  "tool.output": (turn, event) => {
    const call = findCall(turn, event.toolCallId);
    if (call) call.output = (call.output + event.delta).slice(-MOST_OUTPUT);
  },
  "tool.completed": (turn, event) => {
    const call = findCall(turn, event.toolCallId);
    if (!call) return;
    call.status = event.status === "cancelled" ? "cancelled" : event.error ? "failed" : "completed";
    call.result = event.result ?? "";
    call.duration = event.duration;
  },
  "tool.handed_over": (turn, event) => {
    turn.parts.push(newCall({
      id: event.toolCallId, name: event.tool, args: event.arguments, status: "handed over", began: event.timestamp,
    }));
  },
  "approval.request": (turn, event) => {
    turn.status = "waiting_for_approval";
    turn.parts.push({
      type: "approval", id: event.approval_id, callId: event.toolCallId, command: event.command,
      description: event.description, choices: event.choices, patterns: event.pattern_keys ?? [], asked: event.timestamp,
      timeout: event.timeout, choice: "", by: "", failure: "",
    });
  },
  "approval.responded": (turn, event) => {
    const question = turn.parts.find((part) => part.type === "approval" && part.id === event.approval_id);
    if (question) Object.assign(question, { choice: event.choice, by: event.by, answered: event.timestamp });
    if (!pending(turn).length) turn.status = "running";
  },
};

export function newCall(fields) {
  return {
    type: "tool", id: "", name: "", label: "", args: null, status: "running", began: 0, output: "", result: "",
    duration: null, ...fields,
  };
}

export function pending(turn) {
  return turn.parts.filter((part) => part.type === "approval" && !part.choice);
}

function said(turn, type, event) {
  const last = turn.parts.at(-1);
  if (last?.type === type) return last;
  const part = { type, doc: new Doc(), began: event.timestamp };
  turn.parts.push(part);
  return part;
}

// From the end: what still runs is among the last.
function findCall(turn, id) {
  return turn.parts.findLast((part) => part.type === "tool" && part.id === id);
}

function end(turn, event) {
  turn.status = event.event.slice("run.".length);
  turn.ended = event.timestamp;
  turn.usage = event.usage ?? null;
  turn.reason = event.reason ?? "";
  turn.incomplete = Boolean(event.incomplete);
  turn.error = typeof event.error === "string" ? event.error : event.error?.message ?? "";
  turn.connection = "";
  for (const part of turn.parts) {
    part.doc?.finish();
    if (part.type === "tool" && part.status === "running") part.status = "cancelled";
    if (part.type === "approval" && !part.choice) Object.assign(part, { choice: "deny", by: "run_ended" });
  }
}

export function isOver(turn) {
  return ["completed", "failed", "cancelled"].includes(turn.status);
}

export function answerText(turn) {
  return turn.parts.filter((part) => part.type === "text").map((part) => part.doc.text).join("\n\n");
}
