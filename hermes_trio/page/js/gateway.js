// Another gateway that the server was told to watch, the workers of the server, and the nodes that share its store.

import { get } from "./api.js";
import { Cell, useCell } from "./cell.js";
import { bytes, running } from "./format.js";
import { html } from "./lib.js";
import { usePolling } from "./polling.js";

const EVERY = 10_000; // milliseconds: the server asks the gateway each time
const DOTS = { up: "on", degraded: "wait", down: "off" };

export const report = new Cell(null);

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
  return html`${found.gateway_health_url && html`<${Watched} found=${found} />`}${found.server.workers.length > 0 && html`<${Workers} workers=${found.server.workers} />`}${found.server.nodes.length > 0 && html`<${Nodes} nodes=${found.server.nodes} />`}`;
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

const alive = (good) => html`<span class=${`dot ${good ? "on" : "off"}`} aria-hidden="true"></span>`;

function Workers({ workers }) {
  return html`<h2>Workers</h2><div class="table" tabindex="0" role="region" aria-label="Workers"><table class="figures"><thead><tr><th scope="col">Worker</th><th scope="col">State</th><th scope="col" class="right">Runs</th><th scope="col" class="right">Memory</th></tr></thead>
    <tbody>${workers.map((each) => html`<tr key=${each.number}><th scope="row">${each.number}${each.is_this && html` <span class="pill">this one</span>`}</th>
      <td class=${each.not_ready ? "bad" : ""}>${alive(!each.not_ready)}${each.not_ready || "ready"}</td><td class="right">${each.live_runs ?? "–"}</td><td class="right">${each.memory_bytes == null ? "–" : bytes(each.memory_bytes)}</td></tr>`)}</tbody></table></div>`;
}

function Nodes({ nodes }) {
  return html`<h2>Nodes</h2><div class="table" tabindex="0" role="region" aria-label="Nodes"><table class="figures"><thead><tr><th scope="col">Node</th><th scope="col">State</th><th scope="col" class="right">Runs</th><th scope="col" class="right">Seen</th></tr></thead>
    <tbody>${nodes.map((node) => html`<tr key=${node.name}><th scope="row">${node.address}${node.is_this && html` <span class="pill">this one</span>`}</th>
      <td class=${node.is_alive ? "" : "bad"}>${alive(node.is_alive)}${node.is_alive ? "alive" : "silent"}</td><td class="right">${node.live_runs}</td><td class="right">${running(node.silent_seconds)} ago</td></tr>`)}</tbody></table></div>`;
}
