// The list of runs, of all APIs, as they stand.

import { get, now, part, send } from "./api.js";
import { Bar } from "./bar.js";
import { Problem, Status } from "./bits.js";
import { isLive, LIVE } from "./events.js";
import { ago, compact, moment, running, seconds } from "./format.js";
import { reasonOf, statusOf } from "./words.js";
import { html, useRef, useState } from "./lib.js";
import { announce } from "./notes.js";
import { usePolling } from "./polling.js";

const FILTERS = { all: "", live: LIVE.join(","), completed: "completed", failed: "failed", stopped: "cancelled" };

export function Runs() {
  const [filter, setFilter] = useState("all");
  const [runs, setRuns] = useState([]);
  const [more, setMore] = useState({ limit: 50, has: false });
  const [problem, setProblem] = useState("");
  const latest = useRef(0);
  const load = async () => {
    const number = (latest.current += 1);
    const status = FILTERS[filter] ? `&status=${FILTERS[filter]}` : "";
    try {
      const page = await get(`/v1/runs?limit=${more.limit}${status}`);
      if (number !== latest.current) return; // something else was asked for in the meantime
      setRuns(page.data);
      setMore((before) => ({ ...before, has: page.has_more }));
      setProblem("");
    } catch (error) {
      setProblem(error.message);
    }
  };
  usePolling(load, 1500, filter, more.limit);
  const choose = (name) => {
    latest.current += 1;
    setRuns([]);
    setFilter(name);
  };
  const stop = async (run) => {
    await send("POST", `/v1/runs/${part(run.run_id)}/stop`).then(() => announce("Stopping."), (error) => setProblem(error.message));
    await load();
  };
  return html`<${Bar} title="Runs"><div class="tabs" role="group" aria-label="Filter">${Object.keys(FILTERS).map((name) => html`<button type="button" key=${name} aria-pressed=${name === filter}
        onClick=${() => choose(name)}>${name}</button>`)}</div></${Bar}>
    <div class="view">
    ${problem && html`<${Problem} text=${problem} />`}
    <div class="table" tabindex="0" role="region" aria-label="Runs"><table class="runs">
      <thead><tr><th scope="col">Status</th><th scope="col">Prompt</th><th scope="col" class="right">Took</th><th scope="col">Client</th><th scope="col">Model</th><th scope="col" class="right">Tokens</th><th scope="col" class="right">Began</th><th scope="col"><span class="unseen">Actions</span></th></tr></thead>
      <tbody>${runs.map((run) => html`<${Row} key=${run.run_id} run=${run} stop=${stop} />`)}</tbody></table></div>
    ${!runs.length && html`<p class="faint">No runs.</p>`}
    ${more.has && more.limit < 100 && html`<button type="button" onClick=${() => setMore({ ...more, limit: 100 })}>Show more</button>`}
  </div>`;
}

function Row({ run, stop }) {
  const live = isLive(run.status);
  return html`<tr>
    <td><${Status} status=${statusOf(run)} reason=${run.reason && reasonOf(run.reason)} /></td>
    <td class="prompt"><a href=${`#/runs/${part(run.run_id)}`} title=${run.run_id}>${run.preview ?? shortId(run.run_id)}</a></td>
    <td class="right time">${live ? running(now() - run.created_at) : seconds(run.updated_at - run.created_at)}</td>
    <td>${run.client} <span class="faint">${run.kind}</span></td>
    <td>${run.model}</td>
    <td class="right">${run.usage && compact(run.usage.total_tokens)}</td>
    <td class="right faint" title=${moment(run.created_at)}>${ago(run.created_at, now())}</td>
    <td>${live && html`<button type="button" class="danger" disabled=${run.status === "stopping"} aria-label=${`Stop ${shortId(run.run_id)}`} onClick=${() => stop(run)}>Stop</button>`}</td>
  </tr>`;
}

export function shortId(id) {
  return id.length > 18 ? `${id.slice(0, 15)}…` : id;
}
