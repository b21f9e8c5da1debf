// Another gateway that the server was told to watch, and the nodes that share the server's store.

import { get } from "./api.js";
import { Cell, useCell } from "./cell.js";
import { running } from "./format.js";
import { html } from "./lib.js";
import { usePolling } from "./polling.js";

const EVERY = 10_000; // milliseconds: the server asks the gateway each time
const DOTS = { up: "on", degraded: "wait", down: "off" };

const report = new Cell(null);

async function load() {
  try {
    report.set(await get("/api/status"));
  } catch {
    // The view says why the server does not answer; what is shown here stays.
  }
}

export function Gateway() {
  const found = useCell(report);
  usePolling(load, EVERY);
  if (!found) return null;
  return html`${found.gateway_health_url && html`<${Watched} found=${found} />`}${found.server.nodes.length > 0 && html`<${Nodes} nodes=${found.server.nodes} />`}`;
}

function Watched({ found }) {
  const facts = {
    Version: found.gateway_version,
    Activity: found.gateway_state,
    "Live runs": found.active_agents,
    ...found.gateway_platforms,
    "Exit reason": found.gateway_exit_reason,
  };
  return html`<h2>Gateway at ${found.gateway_health_url}</h2><dl class="facts tiles gateway">
    <div><dt>State</dt><dd class=${found.state === "up" ? "good" : "bad"}><span class=${`dot ${DOTS[found.state]}`} aria-hidden="true"></span>${found.state}</dd></div>
    ${Object.entries(facts).map(([name, value]) => value != null && html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>
    ${found.reason && html`<p class="faint">${found.reason}</p>`}`;
}

function Nodes({ nodes }) {
  return html`<h2>Nodes</h2><dl class="facts tiles nodes">${nodes.map((node) => html`<div key=${node.name}>
    <dt>${node.address}${node.is_this && ", this one"}</dt><dd class=${node.is_alive ? "good" : "bad"}><span class=${`dot ${node.is_alive ? "on" : "off"}`} aria-hidden="true"></span>${node.is_alive ? `${node.live_runs} live` : `silent for ${running(node.silent_seconds)}`}</dd></div>`)}</dl>`;
}
