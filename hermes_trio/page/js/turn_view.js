// A turn on the screen: question, reasoning, text, tool cards, questions of the agent, and how it ended.

import { ansiPieces } from "./ansi.js";
import { now, ORIGIN } from "./api.js";
import { CopyButton, Icon, Sign, Status, Wing } from "./bits.js";
import { useCell, useTicks } from "./cell.js";
import { counted, moment, pretty, running, seconds } from "./format.js";
import { Component, html, useState } from "./lib.js";
import { Markdown } from "./markdown_view.js";
import { iconOf } from "./tool_icons.js";
import { askWithCurl, askWithPython } from "./snippets.js";
import { imagesOf, plainText } from "./transcript.js";
import { answerText, isOver, pending } from "./turn.js";
import { reasonOf, statusOf } from "./words.js";

const STILL = { watch: () => () => {}, value: null, version: 0 }; // of a turn that cannot change

// `versions`: the sessions with versions of this turn, as versionsOf tells them.
export function TurnView({ turn, actions, isBusy, versions }) {
  useCell(turn.cell ?? STILL);
  const [isEditing, setEditing] = useState(false);
  return html`<article class="turn" aria-label="Turn" data-run=${turn.runId}>
    ${turn.question !== null && html`<${Question} turn=${turn} isEditing=${isEditing} setEditing=${setEditing} actions=${actions} isBusy=${isBusy} versions=${versions} />`}
    <div class="answer" aria-busy=${!isOver(turn)}>
      ${grouped(turn.parts).map(({ number, steps }) => steps
        ? html`<div class="steps" key=${number}>${steps.map((part, n) => html`<${Part} key=${n} part=${part} turn=${turn} actions=${actions} />`)}</div>`
        : html`<${Part} key=${number} part=${turn.parts[number]} turn=${turn} actions=${actions} />`)}
      ${!isOver(turn) && html`<${Waiting} turn=${turn} />`}
      ${turn.error && html`<p class="problem" role="alert">${turn.error}</p>`}
    </div>
    ${isOver(turn) && html`<${Foot} turn=${turn} actions=${actions} isBusy=${isBusy} edit=${() => setEditing(true)} />`}
  </article>`;
}

// Reasoning and tools that follow each other share a frame: { number } of a part by itself, or { number, steps }.
function grouped(parts) {
  const groups = [];
  parts.forEach((part, number) => {
    if (part.type !== "tool" && part.type !== "reasoning") groups.push({ number });
    else if (groups.at(-1)?.steps) groups.at(-1).steps.push(part);
    else groups.push({ number, steps: [part] });
  });
  return groups;
}

function Question({ turn, isEditing, setEditing, actions, isBusy, versions }) {
  const images = imagesOf(turn.question);
  const text = plainText(turn.question);
  if (isEditing) return html`<${Editor} text=${text} cancel=${() => setEditing(false)} done=${(changed) => { setEditing(false); actions.edit(turn, changed); }} />`;
  return html`<div class="question" role="group" aria-label="Your message">
    ${images.map((url) => html`<img src=${/^data:image\//.test(url) ? url : ""} alt="Attached image" />`)}
    <div class="words">${text}</div>
    ${actions && html`<div class="under">
      ${versions && html`<${Versions} ...${versions} />`}
      ${isOver(turn) && !isBusy && html`<button type="button" class="quiet edit" onClick=${() => setEditing(true)} title="Edit and ask again, as another version"><${Icon} name="edit" />Edit</button>`}</div>`}
  </div>`;
}

function Versions({ ids, at }) {
  const link = (id, icon, label) => id && html`<a class="button quiet icon-button" href=${`#/s/${encodeURIComponent(id)}`} aria-label=${label} title=${label}><${Icon} name=${icon} /></a>`;
  return html`<span class="versions" role="group" aria-label="Versions of this message">${link(ids[at - 1], "left", "Previous version")}
    <span>${at + 1}/${ids.length}</span>${link(ids[at + 1], "right", "Next version")}</span>`;
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
    <div class="row"><button type="submit" class="main">Ask again</button><button type="button" onClick=${cancel}>Cancel</button></div>
  </form>`;
}

function Part({ part, turn, actions }) {
  switch (part.type) {
    case "text": return html`<${Markdown} doc=${part.doc} />`;
    case "reasoning": return html`<${Reasoning} part=${part} isLast=${turn.parts.at(-1) === part && !isOver(turn)} />`;
    case "tool": return html`<${ToolCard} call=${part} isAsked=${pending(turn).some((asked) => asked.callId === part.id)} />`;
    default: return html`<${Approval} part=${part} turn=${turn} actions=${actions} />`;
  }
}

function Reasoning({ part, isLast }) {
  const [isOpen, setOpen] = useState(false);
  return html`<div class="reasoning">
    <button type="button" class="fold" aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}>
      <${Icon} name="think" more="kind" />${isLast ? "Thinking…" : "Reasoning"}<span class="spring"></span><${Icon} name="right" more="arrow" /></button>
    ${isOpen && html`<${Markdown} doc=${part.doc} />`}
  </div>`;
}

// `isAsked`: the call waits for an approval, whose request stands below it.
export function ToolCard({ call, isAsked = false }) {
  const isRunning = call.status === "running";
  const [isOpen, setOpen] = useState(null); // null: as the call goes
  const shows = isOpen ?? ((isRunning && !isAsked) || call.status === "failed");
  useTicks(isRunning);
  return html`<section class="tool ${call.status.replace(" ", "-")} ${isAsked ? "asked" : ""}" aria-label=${`Tool ${call.name}, ${call.status}`}>
    <button type="button" class="tool-head" aria-expanded=${shows} onClick=${() => setOpen(!shows)}>
      <${Icon} name=${iconOf(call.name)} more="kind" />
      <span class="name">${call.name}</span>
      <span class="label">${call.label}</span>
      <span class="status"><${Sign} status=${isAsked ? "waiting_for_approval" : call.status} /><span class="state">${isAsked ? "asks" : call.status}</span></span>
      <span class="time">${isRunning ? running(now() - call.began) : seconds(call.duration)}</span>
      <${Icon} name="right" more="arrow" />
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

// Colours of a terminal. Most texts have none, and stay one node.
function shown(text) {
  if (!/[\x1b\r]/.test(text)) return text;
  return ansiPieces(text).map(({ text: piece, classes }) => (classes ? html`<span class=${classes}>${piece}</span>` : piece));
}

class Piece extends Component {
  componentDidUpdate() {
    if (this.props.isLive && this.field) this.field.scrollTop = this.field.scrollHeight;
  }

  render({ name, text }) {
    return html`<div class="piece"><div class="piece-head"><span>${name}</span><${CopyButton} text=${text} title=${`Copy: ${name}`} /></div>
      <pre tabindex="0" role="group" aria-label=${name} ref=${(field) => { this.field = field; }}>${shown(text)}</pre></div>`;
  }
}

const CHOICES = { once: "Allow once", session: "Allow in this session", always: "Always allow", deny: "Deny" };
const BY = { client: "", timeout: " (nobody answered)", nobody: " (nobody could be asked)", run_ended: " (the run ended)", deferred: " (asked in the next response)" };

function Approval({ part, turn, actions }) {
  const isOpen = !part.choice && !isOver(turn);
  useTicks(isOpen);
  const left = Math.max(0, part.asked + part.timeout - now());
  return html`<section class="approval ${isOpen ? "open" : ""}" role="group" aria-label="The agent asks for approval">
    <div class="approval-head"><${Icon} name="shield" /><strong>${isOpen ? "May I run this?" : "Asked for approval"}</strong>
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
  offline: "You are offline. The answer continues when the network is back, if the server runs.",
  reconnecting: "The server is not reachable. Trying again…",
  draining: "The server is shutting down. The message is sent when it is back.",
  busy: "The server is busy. The message is sent as soon as it has room.",
  trouble: "The server has a problem. Trying again…",
  "events are not kept": "Another client follows this turn; it is shown here when it has ended.",
};

function Waiting({ turn }) {
  useTicks(true);
  const word = turn.status === "stopping" ? "Stopping" : turn.status === "waiting_for_approval" ? "Waiting for you" : "Working";
  return html`<div class="waiting ${turn.connection ? "lost" : ""}">${turn.connection ? html`<${Icon} name="unplug" />` : html`<${Wing} />`}
    ${CONNECTION[turn.connection] ?? word} <span class="time">${running(now() - turn.began)}</span></div>`;
}

function Foot({ turn, actions, isBusy }) {
  const tokens = turn.usage?.output_tokens;
  return html`<footer class="foot">
    ${statusOf(turn) !== "completed" && html`<${Status} status=${statusOf(turn)} />`}
    ${turn.reason && html`<span>${turn.reason === "stop_requested" ? "stopped by you" : reasonOf(turn.reason)}</span>`}
    ${turn.model && html`<span>${turn.model}</span>`}
    ${turn.ended > 0 && html`<span title=${moment(turn.began)}>${seconds(turn.ended - turn.began)}</span>`}
    ${tokens > 0 && html`<span>${counted(tokens, "token")}</span>`}
    ${turn.runId && html`<a href=${`#/runs/${encodeURIComponent(turn.runId)}`}>run</a>`}
    <span class="spring"></span>
    <${CopyButton} text=${() => answerText(turn)} title="Copy the answer as Markdown" />
    ${turn.question !== null && html`<${CopyButton} label="curl" title="Copy the request as curl" text=${() => askWithCurl(ORIGIN, turn.model, turn.question)} />
      <${CopyButton} label="Python" title="Copy the request as Python" text=${() => askWithPython(ORIGIN, turn.model, turn.question)} />`}
    ${actions && turn.question !== null && !isBusy && html`<button type="button" class="quiet" onClick=${() => actions.retry(turn)} title="Ask again, as another version"><${Icon} name="retry" />Retry</button>`}
  </footer>`;
}
