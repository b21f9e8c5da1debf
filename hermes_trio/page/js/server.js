// How the server is doing: its state, the last hour in plots, who serves, its log, remembered approvals, settings.

import { BASE, get, health, part, request } from "./api.js";
import { Bar } from "./bar.js";
import { CopyButton, Icon, Problem } from "./bits.js";
import { Cell, useCell } from "./cell.js";
import { brief, bytes, compact, count, moment, running } from "./format.js";
import { Gateway, report } from "./gateway.js";
import { history, loadHistory } from "./history.js";
import { html, useEffect, useState } from "./lib.js";
import { Log } from "./log_view.js";
import { announce } from "./notes.js";
import { Plot } from "./plot.js";
import { usePolling } from "./polling.js";

const EVERY = 5000; // milliseconds
const SPANS = { "15 min": 900, "1 h": 3600 };
const DOCS = "https://github.com/hermes-trio/hermes-trio/tree/main/docs";

const SHARES = (name) => ({ p50: `${name}_p50`, p99: `${name}_p99` });
const PLOTS = [
  { name: "Runs and streams", show: number, least: 4, series: { runs: "live_runs", streams: "open_streams" } },
  { name: "Events per second", note: "about one per token", show: number, least: 1, series: { events: "events_per_second" } },
  { name: "Output tokens per second", note: "as runs end", show: number, least: 1, series: { tokens: "output_tokens_per_second" } },
  { name: "Requests per second", show: number, least: 1, series: { requests: "requests_per_second" } },
  { name: "Request latency", note: "to the end of a stream", show: brief, least: 0.01, series: SHARES("latency") },
  { name: "Time to first text", show: brief, least: 0.01, series: SHARES("first_text") },
  { name: "Store latency", show: brief, least: 0.001, series: SHARES("store") },
  { name: "Memory", show: bytes, least: 64 * 1048576, binary: true, series: { memory: "memory_bytes" } },
  { name: "Processor", note: "1 is one busy core", show: number, least: 0.1, series: { cores: "cpu_cores" } },
];

function number(value) {
  return value >= 1000 ? compact(value) : String(Number(value.toPrecision(value >= 100 ? 3 : 2)));
}

const state = new Cell({ health: null, problem: "" });

async function load() {
  try {
    const [found] = await Promise.all([health(), loadHistory()]);
    state.set({ health: found, problem: "" });
  } catch (error) {
    state.set({ ...state.value, problem: error.message });
  }
}

export function Server() {
  const { health: found, problem } = useCell(state);
  const { samples, routes, problem: noHistory } = useCell(history);
  const [span, setSpan] = useState("1 h");
  usePolling(load, EVERY);
  return html`<${Bar} title="Server"><span class="spring"></span><div class="tabs" role="group" aria-label="Time shown">${Object.keys(SPANS).map((name) => html`<button type="button" key=${name} aria-pressed=${name === span} onClick=${() => setSpan(name)}>${name}</button>`)}</div></${Bar}><div class="view server">
    ${[...new Set([problem, noHistory])].filter(Boolean).map((text) => html`<${Problem} key=${text} text=${text} />`)}
    ${found && html`<${Checks} found=${found} />`}
    <div class="plots">${PLOTS.map((plot) => html`<${Plot} key=${plot.name} plot=${plot} samples=${samples} span=${SPANS[span]} />`)}</div>
    ${!samples.length && !noHistory && html`<p class="faint">The server takes a sample every 10 seconds.</p>`}
    <p class="links"><a href=${`${BASE}metrics`} target="_blank" rel="noreferrer"><${Icon} name="gauge" />Metrics</a>
      <a href=${`${BASE}openapi.json`} target="_blank" rel="noreferrer"><${Icon} name="code" />OpenAPI</a>
      <a href=${DOCS} target="_blank" rel="noreferrer"><${Icon} name="out" />Documentation</a></p>
    <${Gateway} />
    <${Routes} routes=${routes} />
    <${Log} />
    <${Approvals} />
    <${Settings} />
  </div>`;
}

function Checks({ found }) {
  const server = useCell(report)?.server;
  const checks = Object.entries(found.readiness.checks);
  const limit = found.slots.limit || "any number";
  const left = found.drain_remaining_seconds;
  return html`<dl class="facts tiles">
    ${checks.map(([name, check]) => html`<div key=${name}><dt>${name}</dt><dd class=${check.status === "ok" ? "good" : "bad"}><span class=${`dot ${check.status === "ok" ? "on" : "off"}`} aria-hidden="true"></span>${check.status}${check.detail ? `: ${check.detail}` : ""}${check.state ? `, ${check.state}` : ""}</dd></div>`)}
    ${left != null && html`<div><dt>Stops in</dt><dd>${running(left)}</dd></div>`}
    ${server && html`<div title=${`process ${found.pid}`}><dt>Up for</dt><dd>${running(server.uptime_seconds)}</dd></div>`}
    <div><dt>Live runs</dt><dd>${found.active_agents}</dd></div>
    <div><dt>Slots</dt><dd>${found.slots.in_use} of ${limit}</dd></div>
    <div><dt>Version</dt><dd>${found.version}</dd></div></dl>`;
}

function Routes({ routes }) {
  if (!routes.length) return null;
  return html`<h2>Routes <span class="faint">last hour</span></h2><div class="table" tabindex="0" role="region" aria-label="Routes"><table class="figures">
    <thead><tr><th scope="col">Route</th>${["Requests", "p50", "p99", "Errors"].map((name) => html`<th scope="col" class="right" key=${name}>${name}</th>`)}</tr></thead>
    <tbody>${routes.map((each) => html`<tr key=${each.route}><th scope="row"><code>${each.route}</code></th><td class="right">${count(each.requests)}</td>
      <td class="right">${brief(each.latency_p50)}</td><td class="right">${brief(each.latency_p99)}</td><td class=${`right ${each.errors ? "bad" : ""}`}>${count(each.errors)}</td></tr>`)}</tbody></table></div>`;
}

function Approvals() {
  const [list, setList] = useState([]);
  const load = () => get("/v1/approvals").then((page) => setList(page.data), () => {});
  useEffect(() => { void load(); }, []);
  const forget = async (grant) => {
    const session = grant.session_id ? `&session_id=${part(grant.session_id)}` : "";
    const who = `&end_user=${part(grant.end_user ?? "")}`;
    await request("DELETE", `/v1/approvals?pattern=${part(grant.pattern)}${session}${who}`).then(() => announce("Forgotten."), (error) => announce(error.message));
    await load();
  };
  if (!list.length) return null;
  return html`<h2>Remembered approvals</h2><ul class="sessions">${list.map((grant) => html`<li key=${[grant.pattern, grant.session_id, grant.end_user].join()}><div class="about">
    <code>${grant.pattern}</code><div class="faint"><span>${grant.session_id ?? "all sessions"}</span>${grant.end_user && html`<span>${grant.end_user}</span>`}<span>${moment(grant.created_at)}</span></div></div>
    <button type="button" class="quiet" onClick=${() => forget(grant)}>Forget</button></li>`)}</ul>`;
}

function Settings() {
  const [list, setList] = useState([]);
  useEffect(() => { get("/v1/settings").then((page) => setList(page.data), () => {}); }, []);
  if (!list.length) return null;
  const text = () => list.map(({ name, value }) => `${name} = ${value}`).join("\n");
  return html`<div class="head"><h2>Settings</h2><span class="spring"></span><${CopyButton} text=${text} title="Copy the settings" /></div>
    <div class="table" tabindex="0" role="region" aria-label="Settings"><table><thead><tr><th scope="col">Option</th><th scope="col">Value</th><th scope="col">Meaning</th></tr></thead>
    <tbody>${list.map(({ name, value, help }) => html`<tr key=${name}><th scope="row"><code>${name}</code></th><td><code>${value}</code></td><td class="faint">${help}</td></tr>`)}</tbody></table></div>`;
}
