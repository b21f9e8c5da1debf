// A turn on the screen: question, reasoning, text, tool cards, questions of the agent, and how it ended.

import { now, ORIGIN } from "./api.js";
import { CopyButton, Status } from "./bits.js";
import { useCell, useTicks } from "./cell.js";
import { count, moment, pretty, running, seconds } from "./format.js";
import { Component, html, useState } from "./lib.js";
import { Markdown } from "./markdown_view.js";
import { askWithCurl, askWithPython } from "./snippets.js";
import { imagesOf, plainText } from "./transcript.js";
import { answerText, isOver } from "./turn.js";

const STILL = { watch: () => () => {}, value: null, version: 0 }; // of a turn that cannot change

export function TurnView({ turn, actions, isBusy }) {
  useCell(turn.cell ?? STILL);
  const [isEditing, setEditing] = useState(false);
  return html`<article class="turn" aria-label="Turn" data-run=${turn.runId}>
    ${turn.question !== null && html`<${Question} turn=${turn} isEditing=${isEditing} setEditing=${setEditing} actions=${actions} isBusy=${isBusy} />`}
    <div class="answer" aria-busy=${!isOver(turn)}>
      ${turn.parts.map((part, number) => html`<${Part} key=${number} part=${part} turn=${turn} actions=${actions} />`)}
      ${!isOver(turn) && html`<${Waiting} turn=${turn} />`}
      ${turn.error && html`<p class="problem" role="alert">${turn.error}</p>`}
    </div>
    ${isOver(turn) && html`<${Foot} turn=${turn} actions=${actions} isBusy=${isBusy} edit=${() => setEditing(true)} />`}
  </article>`;
}

function Question({ turn, isEditing, setEditing, actions, isBusy }) {
  const images = imagesOf(turn.question);
  const text = plainText(turn.question);
  if (isEditing) return html`<${Editor} text=${text} cancel=${() => setEditing(false)} done=${(changed) => { setEditing(false); actions.edit(turn, changed); }} />`;
  return html`<div class="question" role="group" aria-label="Your message">
    ${images.map((url) => html`<img src=${/^data:image\//.test(url) ? url : ""} alt="Attached image" />`)}
    <div class="words">${text}</div>
    ${actions && isOver(turn) && !isBusy && html`<button type="button" class="quiet edit" onClick=${() => setEditing(true)} title="Edit and ask again in a branch">Edit</button>`}
  </div>`;
}

function Editor({ text, cancel, done }) {
  const [changed, setChanged] = useState(text);
  const submit = (event) => {
    event.preventDefault();
    if (changed.trim()) done(changed);
  };
  const keys = (event) => {
    if (event.key === "Escape") cancel();
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) submit(event);
  };
  const focus = (field) => field && document.activeElement !== field && !field.dataset.seen && (field.dataset.seen = "1", field.focus());
  return html`<form class="question editing" onSubmit=${submit}>
    <textarea ref=${focus} aria-label="Edit your message" rows=${Math.min(12, changed.split("\n").length + 1)} value=${changed}
      onInput=${(event) => setChanged(event.target.value)} onKeyDown=${keys}></textarea>
    <div class="row"><button type="submit" class="main">Ask in a branch</button><button type="button" onClick=${cancel}>Cancel</button></div>
  </form>`;
}

function Part({ part, turn, actions }) {
  switch (part.type) {
    case "text": return html`<${Markdown} doc=${part.doc} />`;
    case "reasoning": return html`<${Reasoning} part=${part} isLast=${turn.parts.at(-1) === part && !isOver(turn)} />`;
    case "tool": return html`<${ToolCard} call=${part} />`;
    default: return html`<${Approval} part=${part} turn=${turn} actions=${actions} />`;
  }
}

function Reasoning({ part, isLast }) {
  const [isOpen, setOpen] = useState(false);
  return html`<div class="reasoning">
    <button type="button" class="fold" aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}>
      <span class="arrow" aria-hidden="true"></span>${isLast ? "Thinking…" : "Reasoning"}</button>
    ${isOpen && html`<${Markdown} doc=${part.doc} />`}
  </div>`;
}

export function ToolCard({ call }) {
  const isRunning = call.status === "running";
  const [isOpen, setOpen] = useState(null); // null: as the call goes
  const shows = isOpen ?? (isRunning || call.status === "failed");
  useTicks(isRunning);
  return html`<section class="tool ${call.status.replace(" ", "-")}" aria-label=${`Tool ${call.name}, ${call.status}`}>
    <button type="button" class="tool-head" aria-expanded=${shows} onClick=${() => setOpen(!shows)}>
      <span class="dot" aria-hidden="true"></span>
      <span class="name">${call.name}</span>
      <span class="label">${call.label}</span>
      <span class="time">${isRunning ? running(now() - call.began) : seconds(call.duration)}</span>
      <span class="state">${call.status}</span>
    </button>
    ${shows && html`<${ToolBody} call=${call} />`}
  </section>`;
}

function ToolBody({ call }) {
  const shown = call.status === "running" ? call.output : call.result || call.output;
  return html`<div class="tool-body">
    ${call.args != null && html`<${Piece} name="Arguments" text=${pretty(call.args)} />`}
    ${(shown || call.status === "running") && html`<${Piece} name=${call.status === "running" ? "Output" : call.status === "failed" ? "Error" : "Result"} text=${pretty(shown)} isLive=${call.status === "running"} />`}
  </div>`;
}

class Piece extends Component {
  componentDidUpdate() {
    if (this.props.isLive && this.field) this.field.scrollTop = this.field.scrollHeight;
  }

  render({ name, text }) {
    return html`<div class="piece"><div class="piece-head"><span>${name}</span><${CopyButton} text=${text} title=${`Copy: ${name}`} /></div>
      <pre tabindex="0" role="group" aria-label=${name} ref=${(field) => { this.field = field; }}>${text}</pre></div>`;
  }
}

const CHOICES = { once: "Allow once", session: "Allow in this session", always: "Always allow", deny: "Deny" };
const BY = { client: "", timeout: " (nobody answered)", nobody: " (nobody could be asked)", run_ended: " (the run ended)", deferred: " (asked in the next response)" };

function Approval({ part, turn, actions }) {
  const isOpen = !part.choice && !isOver(turn);
  useTicks(isOpen);
  const left = Math.max(0, part.asked + part.timeout - now());
  return html`<section class="approval ${isOpen ? "open" : ""}" role="group" aria-label="The agent asks for approval">
    <div class="approval-head"><strong>${isOpen ? "May I run this?" : "Asked for approval"}</strong>
      ${isOpen && html`<span class="time" title="Time to answer">${running(left)} left</span>`}</div>
    <pre tabindex="0" role="group" aria-label="Command">${part.command}</pre>
    ${part.description && html`<p>${part.description}</p>`}
    ${part.patterns.length > 0 && html`<p class="faint">Remembered by: ${part.patterns.join(", ")}</p>`}
    ${isOpen
      ? html`<div class="row">${part.choices.map((choice) => html`<button type="button" key=${choice}
          class=${choice === "deny" ? "danger" : choice === "once" ? "main" : ""} onClick=${() => actions.answer(turn, part, choice)}>${CHOICES[choice] ?? choice}</button>`)}</div>`
      : html`<p class="decision">${(CHOICES[part.choice] ?? part.choice) + (BY[part.by] ?? "")}</p>`}
    ${part.failure && html`<p class="problem" role="alert">${part.failure}</p>`}
  </section>`;
}

const CONNECTION = {
  offline: "Offline. The agent goes on; the answer is taken up when the network is back.",
  reconnecting: "Connection lost. The agent goes on; trying again…",
  "events are not kept": "Another client follows this turn; it is shown here when it has ended.",
};

function Waiting({ turn }) {
  useTicks(true);
  const word = turn.status === "stopping" ? "Stopping" : turn.status === "waiting_for_approval" ? "Waiting for you" : "Working";
  return html`<div class="waiting ${turn.connection ? "lost" : ""}"><span class="dot" aria-hidden="true"></span>
    ${CONNECTION[turn.connection] ?? word} <span class="time">${running(now() - turn.began)}</span></div>`;
}

const REASONS = {
  stop_requested: "stopped by you", client_disconnected: "the client left", timeout: "time limit",
  max_output_tokens: "ran out of tokens", agent_incomplete: "the agent gave up", agent_error: "the agent failed",
  process_died: "the server died", server_shutdown: "the server stopped", stalled_reader: "nobody read on",
  server_error: "a mistake of the server",
};

function Foot({ turn, actions, isBusy }) {
  const tokens = turn.usage?.output_tokens;
  return html`<footer class="foot">
    ${turn.status !== "completed" && html`<${Status} status=${turn.status} />`}
    ${turn.reason && html`<span>${REASONS[turn.reason] ?? turn.reason}</span>`}
    ${turn.model && html`<span>${turn.model}</span>`}
    ${turn.ended > 0 && html`<span title=${moment(turn.began)}>${seconds(turn.ended - turn.began)}</span>`}
    ${tokens > 0 && html`<span>${count(tokens)} tokens</span>`}
    ${turn.runId && html`<a href=${`#/runs/${encodeURIComponent(turn.runId)}`}>run</a>`}
    <span class="spring"></span>
    <${CopyButton} text=${() => answerText(turn)} title="Copy the answer as Markdown" />
    ${turn.question !== null && html`<${CopyButton} label="curl" title="Copy the request as curl" text=${() => askWithCurl(ORIGIN, turn.model, turn.question)} />
      <${CopyButton} label="Python" title="Copy the request as Python" text=${() => askWithPython(ORIGIN, turn.model, turn.question)} />`}
    ${actions && turn.question !== null && !isBusy && html`<button type="button" class="quiet" onClick=${() => actions.retry(turn)} title="Ask again in a branch">Retry</button>`}
  </footer>`;
}
