// Two dialects of the same events. All views know that of the Runs API; turns of a session speak another one.

const RENAMED = { "assistant.delta": "message.delta", "tool.progress": "reasoning.delta" };

// An event of a session's stream as the Runs API would tell it; null for those that it does not have.
export function fromSession(kind, data) {
  const base = { event: RENAMED[kind] ?? kind, run_id: data.run_id, timestamp: data.ts, seq: data.seq };
  switch (kind) {
    case "message.started":
      return { ...base, event: "none" };
    case "assistant.completed":
      return { ...base, event: "none" };
    case "run.completed":
      return { ...data, ...base, event: data.interrupted ? "run.cancelled" : "run.completed", incomplete: data.partial };
    case "error":
      return { ...base, event: "run.failed", error: data.message, reason: data.reason };
    case "done":
      return { ...base, event: "stream.done" };
    default:
      return { ...data, ...base, tool: data.tool_name };
  }
}

export const ENDS = new Set(["run.completed", "run.failed", "run.cancelled"]);
export const LIVE = ["queued", "running", "waiting_for_approval", "stopping"];

export function isLive(status) {
  return LIVE.includes(status);
}
