// One run: how it stands, what it did when, and its events as they came.

import { get, now, ORIGIN, part, send } from "./api.js";
import { CopyButton, Problem, Status } from "./bits.js";
import { Cell, useCell, useTicks } from "./cell.js";
import { isLive } from "./events.js";
import { count, moment, running, seconds } from "./format.js";
import { html, useEffect, useMemo, useState } from "./lib.js";
import { announce } from "./notes.js";
import { followRun } from "./run_stream.js";
import { followWithCurl, followWithPython } from "./snippets.js";
import { spans } from "./timeline.js";
import { isOver, newTurn, take } from "./turn.js";
import { TurnView } from "./turn_view.js";

const SHOWN = 200; // events on the screen; all can be copied

class Watched {
  constructor(runId) {
    this.runId = runId;
    this.cell = new Cell(this);
    this.run = null;
    this.problem = "";
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
  const { run, turn, events, problem, runId } = watched;
  const status = isOver(turn) ? turn.status : run?.status ?? "queued";
  const stop = () => send("POST", `/v1/runs/${part(runId)}/stop`).then(() => announce("Stopping."), (error) => announce(error.message));
  return html`<div class="view run"><div class="head"><h1 tabindex="-1">Run</h1><${Status} status=${turn.status === "waiting_for_approval" ? turn.status : status} />
      <span class="spring"></span>
      ${isLive(status) && html`<button type="button" class="danger" onClick=${stop}>Stop</button>`}
      <${CopyButton} label="Copy as curl" text=${() => followWithCurl(ORIGIN, runId)} /><${CopyButton} label="Copy as Python" text=${() => followWithPython(ORIGIN, runId)} /></div>
    ${run && html`<${Facts} run=${run} turn=${turn} />`}
    ${problem && html`<${Problem} text=${problem} />`}
    ${events.length > 0 && html`<h2>Timeline</h2><${Timeline} turn=${turn} />
      <h2>What it did</h2><div class="column"><${TurnView} turn=${turn} actions=${{ answer: watched.answer }} isBusy=${true} /></div>
      <${RawEvents} events=${events} />`}
  </div>`;
}

function Facts({ run, turn }) {
  const facts = [
    ["Id", run.run_id], ["Kind", run.kind], ["Model", run.model],
    ["Session", html`<a href=${`#/s/${part(run.session_id)}`}>${run.session_id}</a>`],
    ["Began", moment(run.created_at)],
    ["Took", isLive(run.status) && !isOver(turn) ? "under way" : seconds((turn.ended || run.updated_at) - run.created_at)],
    ["Reason", run.reason], ["Error", run.error],
    ["Tokens", run.usage && `${count(run.usage.input_tokens)} in, ${count(run.usage.output_tokens)} out`],
  ];
  return html`<dl class="facts">${facts.filter(([, value]) => value).map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

function Timeline({ turn }) {
  useTicks(!isOver(turn), 500);
  const { length, bars } = spans(turn, now());
  return html`<div class="timeline" role="img" aria-label=${`Timeline of ${seconds(length)}: ${bars.length} parts`}>
    ${bars.map((bar, number) => html`<div class="lane" key=${number} title=${`${bar.name} ${bar.label}: ${seconds(bar.seconds)}`}>
      <span class="lane-name">${bar.name} <span class="faint">${bar.label}</span></span>
      <span class="lane-track"><span class="bar bar-${bar.kind}" style=${{ left: `${bar.left * 100}%`, width: `max(3px, ${bar.width * 100}%)` }}></span></span>
      <span class="lane-time time">${seconds(bar.seconds)}</span></div>`)}
    <div class="lane axis"><span class="lane-name"></span><span class="lane-track"><span>0 s</span><span>${running(length)}</span></span><span class="lane-time"></span></div>
  </div>`;
}

function RawEvents({ events }) {
  const [isOpen, setOpen] = useState(false);
  const all = () => events.map((event) => JSON.stringify(event)).join("\n");
  return html`<div class="raw"><div class="row"><button type="button" class="fold" aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}>
      <span class="arrow" aria-hidden="true"></span>Events (${count(events.length)})</button><span class="spring"></span><${CopyButton} label="Copy events" text=${all} /></div>
    ${isOpen && html`<div class="events" tabindex="0" role="group" aria-label="Events">
      ${events.length > SHOWN && html`<p class="faint">The last ${SHOWN}; "Copy events" has all.</p>`}
      ${events.slice(-SHOWN).map((event) => html`<${RawEvent} key=${event.seq} event=${event} />`)}</div>`}
  </div>`;
}

function RawEvent({ event: { event, seq, timestamp, run_id: _, ...rest } }) {
  return html`<div class="event"><span class="time">${seq}</span> <span class="kind">${event}</span> <code>${JSON.stringify(rest)}</code></div>`;
}
