// How the server is doing: live plots, checks, settings, remembered approvals.

import { get, health, part, request } from "./api.js";
import { Bar } from "./bar.js";
import { CopyButton, Problem } from "./bits.js";
import { Cell, useCell } from "./cell.js";
import { mean, parseFigures, rate } from "./figures.js";
import { bytes, moment } from "./format.js";
import { Gateway } from "./gateway.js";
import { html, useEffect, useState } from "./lib.js";
import { announce } from "./notes.js";
import { Plot } from "./plot.js";
import { usePolling } from "./polling.js";

const EVERY = 2000; // milliseconds
const KEPT = 150; // samples: five minutes

const PLOTS = [
  { name: "Runs and streams", series: { runs: (s) => s.get("hermes_trio_runs_active"), streams: (s) => s.get("hermes_trio_streams_open") } },
  { name: "Events per second", note: "about one for each token", series: { events: (s, b, t) => rate("hermes_trio_run_events_total", b, s, t) } },
  { name: "Output tokens per second", note: "counted when runs end", series: { tokens: (s, b, t) => rate("hermes_trio_output_tokens_total", b, s, t) } },
  { name: "Time to first text", unit: "ms", series: { mean: (s, b) => times(1000, mean("hermes_trio_first_text_seconds", b, s)) } },
  { name: "Loop lag", unit: "ms", series: { lag: (s) => times(1000, s.get("hermes_trio_loop_lag_seconds")) } },
  { name: "Memory", unit: "MiB", series: { resident: (s) => times(1 / 1048576, s.get("process_resident_memory_bytes")) } },
  { name: "Store commits per second", series: { commits: (s, b, t) => rate("hermes_trio_store_commits_total", b, s, t) } },
  { name: "Requests per second", series: { requests: (s, b, t) => rate("hermes_trio_http_requests_total", b, s, t) } },
];

function times(factor, value) {
  return value == null ? null : value * factor;
}

// Samples outlive the view, so that coming back shows where it was.
const samples = { at: [], before: null, columns: PLOTS.map((plot) => Object.keys(plot.series).map(() => [])) };
const state = new Cell({ health: null, figures: null, problem: "" });

async function sample() {
  try {
    const [found, response] = await Promise.all([health(), request("GET", "/metrics")]);
    const figures = parseFigures(await response.text());
    add(figures, Date.now() / 1000);
    state.set({ health: found, figures, problem: "" });
  } catch (error) {
    state.set({ ...state.value, problem: error.message });
  }
}

function add(figures, at) {
  const elapsed = at - (samples.at.at(-1) ?? at);
  samples.at = [...samples.at, at].slice(-KEPT);
  PLOTS.forEach((plot, n) => Object.values(plot.series).forEach((value, m) => {
    const column = samples.columns[n][m];
    samples.columns[n][m] = [...column, value(figures, samples.before, elapsed) ?? null].slice(-KEPT);
  }));
  samples.before = figures;
}

export function Server() {
  const { health: found, figures, problem } = useCell(state);
  usePolling(sample, EVERY);
  return html`<${Bar} title="Server">${found && html`<span class="faint">version ${found.version}</span>`}</${Bar}><div class="view server">
    ${problem && html`<${Problem} text=${problem} />`}
    ${found && html`<${Checks} found=${found} figures=${figures} />`}
    <${Gateway} />
    <h2>Now</h2>
    <div class="plots">${PLOTS.map((plot, n) => html`<${Plot} key=${plot.name} plot=${plot} at=${samples.at} columns=${samples.columns[n]} />`)}</div>
    <${Approvals} />
    <${Settings} />
  </div>`;
}

function Checks({ found, figures }) {
  const checks = Object.entries(found.readiness.checks);
  const limit = found.slots.limit || "any number";
  const memory = figures?.get("process_resident_memory_bytes");
  return html`<dl class="facts tiles">
    ${checks.map(([name, check]) => html`<div key=${name}><dt>${name}</dt><dd class=${check.status === "ok" ? "good" : "bad"}><span class=${`dot ${check.status === "ok" ? "on" : "off"}`} aria-hidden="true"></span>${check.status}${check.detail ? `: ${check.detail}` : ""}${check.state ? `, ${check.state}` : ""}</dd></div>`)}
    <div><dt>Live runs</dt><dd>${found.active_agents}</dd></div>
    <div><dt>Slots</dt><dd>${found.slots.in_use} of ${limit}</dd></div>
    ${memory && html`<div><dt>Memory</dt><dd>${bytes(memory)}</dd></div>`}
    <div><dt>Process</dt><dd>${found.pid}</dd></div></dl>`;
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
