// What a run did when: pure figures for bars. Text has no time of its own on the wire: it lies between what has.

import { isOver } from "./turn.js";

export function spans(turn, now) {
  const end = isOver(turn) && turn.ended ? turn.ended : Math.max(now, turn.began);
  const length = Math.max(0.001, end - turn.began);
  const bars = turn.parts.map((part, number) => bar(turn, part, number, end));
  return { length, bars: bars.map((each) => placed(each, turn.began, length)) };
}

// Marks for an axis of some seconds: four to six, a round number of milliseconds or seconds apart.
export function ticks(length) {
  const rough = length / 5;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max(0.001, [1, 2, 5, 10].map((factor) => factor * power).find((each) => length / each <= 6));
  return Array.from({ length: Math.floor(length / step + 1e-9) + 1 }, (_, n) => n * step);
}

const KINDS = { running: "running", failed: "failed", cancelled: "cancelled" };

function bar(turn, part, number, end) {
  if (part.type === "tool") {
    const last = part.duration == null ? (part.status === "completed" ? part.began : end) : part.began + part.duration;
    return { kind: KINDS[part.status] ?? "tool", name: part.name, label: part.label, from: part.began, to: last };
  }
  if (part.type === "approval") {
    return { kind: "approval", name: "approval", label: part.choice || "waiting", from: part.asked, to: part.answered ?? end };
  }
  const next = turn.parts.slice(number + 1).map((each) => each.began ?? each.asked).find((time) => time > part.began);
  return { kind: part.type, name: part.type, label: `${part.doc.text.length} characters`, from: part.began, to: next ?? end };
}

function placed(bar, began, length) {
  const left = clamp((bar.from - began) / length);
  return { ...bar, left, width: clamp((bar.to - bar.from) / length, 1 - left), seconds: Math.max(0, bar.to - bar.from) };
}

function clamp(value, most = 1) {
  return Math.min(most, Math.max(0, value || 0));
}
