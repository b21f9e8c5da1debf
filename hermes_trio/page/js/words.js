// What the server's words mean to a person.

const REASONS = {
  stop_requested: "stopped on request", client_disconnected: "the client left", timeout: "time limit",
  max_output_tokens: "ran out of tokens", agent_incomplete: "the agent did not finish", agent_error: "the agent failed",
  process_died: "the server was killed", server_shutdown: "the server was shut down", stalled_reader: "the client stopped reading",
  server_error: "an error of the server",
};

// These cut a run short from outside: what it did so far is kept, and nothing of it failed.
const CUT = new Set(["client_disconnected", "process_died", "server_shutdown", "stalled_reader", "timeout"]);

// The status to show for a run or a turn.
export function statusOf({ status, incomplete, reason }) {
  return incomplete || (status === "failed" && CUT.has(reason)) ? "incomplete" : status;
}

export function reasonOf(reason) {
  return REASONS[reason] ?? reason;
}
