// One run: how it stands, what it did when, and its events as they came.

import { get, now, ORIGIN, part, send } from "./api.js";
import { Bar } from "./bar.js";
import { CopyButton, Icon, Problem, Status } from "./bits.js";
import { Cell, useCell, useTicks } from "./cell.js";
import { isLive } from "./events.js";
import { count, moment, running, seconds } from "./format.js";
import { html, useEffect, useMemo, useState } from "./lib.js";
import { announce } from "./notes.js";
import { followRun } from "./run_stream.js";
import { followWithCurl, followWithPython } from "./snippets.js";
import { spans, ticks } from "./timeline.js";
import { iconOf } from "./tool_icons.js";
import { isOver, newTurn, take } from "./turn.js";
import { TurnView } from "./turn_view.js";
import { reasonOf, statusOf } from "./words.js";

const SHOWN = 200; // events on the screen; all can be copied

class Watched {
  constructor(runId) {
    this.runId = runId;
    this.cell = new Cell(this);
    this.run = null;
    this.problem = "";
    this.isUnknown = false;
    this.events = [];
    this.turn = newTurn({ key: runId, runId, cell: new Cell(null) });
    this.leaving = new AbortController();
  }

  async watch() {
    try {
      await this.refresh();
      await followRun(this.runId, {
        after: () => this.turn.seq,
        take: (event) => this.#take(event),
        state: (text) => { this.turn.connection = text; this.cell.poke(); },
        signal: this.leaving.signal,
      });
      await this.refresh();
    } catch (error) {
      this.problem = error.message;
      this.isUnknown = error.status === 404 && this.run === null;
    }
    this.cell.poke();
  }

  #take(event) {
    if (event.seq <= this.turn.seq) return;
    this.events.push(event);
    take(this.turn, event);
    this.turn.cell.poke();
    this.cell.poke();
  }

  async refresh() {
    this.run = await get(`/v1/runs/${part(this.runId)}`);
    this.turn.model = this.run.model;
    this.cell.poke();
  }

  answer = async (turn, approval, choice) => {
    await send("POST", `/v1/runs/${part(this.runId)}/approval`, { choice, approval_id: approval.id })
      .catch((error) => { approval.failure = error.message; });
    turn.cell.poke();
  };
}

export function RunDetail({ runId }) {
  const watched = useMemo(() => new Watched(runId), [runId]);
  useEffect(() => {
    void watched.watch();
    return () => watched.leaving.abort();
  }, [watched]);
  return html`<${Detail} key=${runId} watched=${watched} />`;
}

function Detail({ watched }) {
  useCell(watched.cell);
  const { run, turn, events, problem, isUnknown, runId } = watched;
  const status = isOver(turn) ? turn.status : run?.status ?? "queued";
  const stop = () => send("POST", `/v1/runs/${part(runId)}/stop`).then(() => announce("Stopping."), (error) => announce(error.message));
  if (isUnknown) return html`<${Bar} title="Run" /><div class="view"><${Problem} text=${problem} /><a class="button" href="#/runs">Back to runs</a></div>`;
  return html`<${Bar} title="Run"><${Status} status=${turn.status === "waiting_for_approval" ? turn.status : statusOf(isOver(turn) ? turn : run ?? turn)} />
      <span class="spring"></span>
      <${CopyButton} label="curl" title="Copy as curl" text=${() => followWithCurl(ORIGIN, runId)} /><${CopyButton} label="Python" title="Copy as Python" text=${() => followWithPython(ORIGIN, runId)} />
      ${isLive(status) && html`<button type="button" class="danger" onClick=${stop}>Stop</button>`}</${Bar}>
    <div class="view run">
    ${run && html`<${Facts} run=${run} turn=${turn} />`}
    ${problem && html`<${Problem} text=${problem} />`}
    ${events.length > 0 && html`<h2>Timeline</h2><${Timeline} turn=${turn} />
      <h2>What it did</h2><div class="column"><${TurnView} turn=${turn} actions=${{ answer: watched.answer }} isBusy=${true} /></div>
      <${RawEvents} events=${events} />`}
  </div>`;
}

function Facts({ run, turn }) {
  const facts = [
    ["Id", run.run_id], ["Kind", run.kind], ["Client", run.client], ["Model", run.model],
    ["Session", html`<a href=${`#/s/${part(run.session_id)}`}>${run.session_id}</a>`],
    ["Began", moment(run.created_at)],
    ["Took", isLive(run.status) && !isOver(turn) ? "under way" : seconds((turn.ended || run.updated_at) - run.created_at)],
    ["Reason", run.reason && reasonOf(run.reason)], ["Error", run.error],
    ["Tokens", run.usage && `${count(run.usage.input_tokens)} in, ${count(run.usage.output_tokens)} out`],
  ];
  return html`<dl class="facts">${facts.filter(([, value]) => value).map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

const LANE_HEIGHT = 32; // pixels, as in the style sheet
const THIN = { text: 6, reasoning: 6 }; // pixels; other bars are thicker

function Timeline({ turn }) {
  useTicks(!isOver(turn), 500);
  const { length, bars } = spans(turn, now());
  const marks = ticks(length).map((at) => ({ at, x: `${(100 * at) / length}%` }));
  return html`<div class="timeline" role="img" aria-label=${`Timeline of ${seconds(length)}: ${bars.length} parts`}>
    <div class="lane axis"><span class="lane-name"></span>
      <svg class="track">${marks.map(({ at, x }) => html`<text key=${at} x=${x} y="21" text-anchor=${at === 0 ? "start" : "middle"}>${at === 0 ? "0" : seconds(at)}</text>`)}</svg><span class="lane-time"></span></div>
    ${bars.map((bar, number) => html`<${Lane} key=${number} bar=${bar} marks=${marks} />`)}
  </div>`;
}

function Lane({ bar, marks }) {
  const height = THIN[bar.kind] ?? 14;
  return html`<div class="lane" title=${`${bar.name} ${bar.label}: ${seconds(bar.seconds)}`}>
    <span class="lane-name"><${Icon} name=${LANE_ICONS[bar.kind] ?? iconOf(bar.name)} />${bar.name} <span class="faint clip">${bar.label}</span></span>
    <svg class="track" aria-hidden="true">${marks.map(({ at, x }) => html`<line key=${at} x1=${x} x2=${x} y1="0" y2="100%" />`)}
      <rect class=${`bar-${bar.kind}`} x=${`${bar.left * 100}%`} y=${(LANE_HEIGHT - height) / 2} width=${`${Math.max(0.4, bar.width * 100)}%`} height=${height} rx="2" /></svg>
    <span class="lane-time time">${seconds(bar.seconds)}</span></div>`;
}

const LANE_ICONS = { text: "text", reasoning: "think", approval: "shield" };

function RawEvents({ events }) {
  const [isOpen, setOpen] = useState(false);
  const all = () => events.map((event) => JSON.stringify(event)).join("\n");
  return html`<div class="raw"><div class="row"><button type="button" class="fold" aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}>
      <${Icon} name="right" more="arrow" />Events (${count(events.length)})</button><span class="spring"></span><${CopyButton} label="Copy events" text=${all} /></div>
    ${isOpen && html`<div class="events" tabindex="0" role="group" aria-label="Events">
      ${events.length > SHOWN && html`<p class="faint">The last ${SHOWN}; "Copy events" has all.</p>`}
      ${events.slice(-SHOWN).map((event) => html`<${RawEvent} key=${event.seq} event=${event} />`)}</div>`}
  </div>`;
}

function RawEvent({ event: { event, seq, timestamp, run_id: _, ...rest } }) {
  return html`<div class="event"><span class="time">${seq}</span> <span class="kind">${event}</span> <code>${JSON.stringify(rest)}</code></div>`;
}
