// The stored messages of a session as turns, and back.

import { Doc } from "./markdown.js";
import { newCall, newTurn } from "./turn.js";

// A user message begins a turn. Runs tell how each of them ended; those that are forgotten simply have.
export function turnsOf(messages, runs = new Map()) {
  const turns = [];
  for (const message of messages) {
    if (message.role === "user" || !turns.length) turns.push(begin(message));
    if (message.role !== "user") add(turns.at(-1), message);
  }
  const lastOf = new Map(turns.map((turn) => [turn.runId, turn]));
  for (const [runId, turn] of lastOf) if (runs.has(runId)) Object.assign(turn, ending(runs.get(runId)));
  return turns;
}

function begin(message) {
  return newTurn({
    key: `m${message.id}`, runId: message.run_id ?? "", messageId: message.id, began: message.timestamp,
    question: message.role === "user" ? message.content : null, status: "completed",
  });
}

export function ending(run) {
  return {
    status: run.status, model: run.model, reason: run.reason ?? "", error: run.error ?? "", usage: run.usage ?? null,
    began: run.created_at, ended: run.updated_at,
  };
}

function add(turn, message) {
  if (message.role === "tool") {
    const call = turn.parts.findLast((part) => part.type === "tool" && part.id === message.tool_call_id);
    if (call) call.result = plainText(message.content);
    return;
  }
  if (message.reasoning) turn.parts.push({ type: "reasoning", doc: new Doc().append(message.reasoning).finish() });
  const text = plainText(message.content);
  if (text) turn.parts.push({ type: "text", doc: new Doc().append(text).finish() });
  for (const call of message.tool_calls ?? []) turn.parts.push(storedCall(call));
}

function storedCall({ id, function: { name, arguments: text } }) {
  return newCall({ id, name, args: parsed(text), label: labelOf(parsed(text)), status: "completed" });
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

function labelOf(args) {
  const first = args && typeof args === "object" ? Object.values(args)[0] : args;
  return typeof first === "string" || typeof first === "number" ? String(first).split("\n")[0].slice(0, 200) : "";
}

export function plainText(content) {
  if (typeof content === "string") return content;
  return (content ?? []).map((part) => part.text ?? "").filter(Boolean).join("\n");
}

export function imagesOf(content) {
  if (!Array.isArray(content)) return [];
  return content.map((part) => part.image_url?.url ?? part.image_url).filter((url) => typeof url === "string");
}

export function contentOf(text, images) {
  if (!images.length) return text;
  const pictures = images.map((url) => ({ type: "image_url", image_url: { url } }));
  return text.trim() ? [{ type: "text", text }, ...pictures] : pictures;
}

// The id of the message that a turn began with; 0 if it is not stored.
export function messageOf(messages, turn) {
  const isQuestion = (message) => message.role === "user" && (turn.runId ? message.run_id === turn.runId : message.id === turn.messageId);
  return messages.findLast((message) => isQuestion(message) && message.id === turn.messageId)?.id ?? messages.findLast(isQuestion)?.id ?? 0;
}
