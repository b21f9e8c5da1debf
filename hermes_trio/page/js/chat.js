// The chat: one session, or a new one.

import { Bar } from "./bar.js";
import { Icon, Problem } from "./bits.js";
import { Cell, useCell } from "./cell.js";
import { Composer, fillComposer } from "./composer.js";
import { branch, conversation, newConversation } from "./conversation.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "./lib.js";
import { defaultModel, models } from "./models.js";
import { usePolling } from "./polling.js";
import { suggestions } from "./suggestions.js";
import { go } from "./route.js";
import { contentOf, imagesOf, plainText } from "./transcript.js";
import { TurnView } from "./turn_view.js";

const CATCH_UP_EVERY = 4000; // milliseconds
const chosen = new Cell(""); // of the picker, for turns to come

export function Chat({ sessionId }) {
  return sessionId ? html`<${Opened} key=${sessionId} sessionId=${sessionId} />` : html`<${Fresh} />`;
}

function Fresh() {
  const [problem, setProblem] = useState("");
  const ask = async (content) => {
    try {
      const made = await newConversation(chosen.value || defaultModel());
      void made.ask(content);
      go(`/s/${encodeURIComponent(made.id)}`, true);
      return true;
    } catch (error) {
      setProblem(error.message);
      return false;
    }
  };
  return html`<${Bar} title="New chat" /><div class="chat">
    <div class="scroll"><div class="column welcome">
      <${Icon} name="mark" />
      <h1 tabindex="-1">What should the agent do?</h1>
      <p>You see what it does as it happens: text, reasoning, tools and their output. If you close the page or lose the network, the
        agent continues, and the page shows the rest when you return.</p>
      <${Suggestions} choose=${(text) => fillComposer("new", text)} />
      ${problem && html`<${Problem} text=${problem} />`}
    </div></div>
    <${Composer} place="new" onSend=${ask} tools=${html`<${ModelPicker} />`} />
  </div>`;
}

function Suggestions({ choose }) {
  const list = useCell(suggestions);
  return html`<ul class="chips" aria-label="Suggestions">${list.map(({ icon, label, text }) => html`<li key=${label}><button type="button" onClick=${() => choose(text)}><${Icon} name=${icon} /><span class="clip">${label}</span></button></li>`)}</ul>`;
}

function ModelPicker({ current = "" }) {
  const all = useCell(models);
  const picked = useCell(chosen) || current || all[0] || "";
  const names = all.includes(picked) || !picked ? all : [picked, ...all];
  return html`<label class="picker"><span class="unseen">Model</span><select aria-label="Model" value=${picked} onChange=${(event) => chosen.set(event.target.value)}>
    ${names.map((name) => html`<option key=${name} value=${name} selected=${name === picked}>${name}</option>`)}
  </select></label>`;
}

function Opened({ sessionId }) {
  const talk = conversation(sessionId);
  useCell(talk.cell);
  const [problem, setProblem] = useState("");
  useLayoutEffect(() => chosen.set(""), [talk]); // before anybody can choose
  useEffect(() => {
    if (talk.state === "new" || talk.state === "failed") void talk.load();
    else if (talk.state === "ready") void talk.findVersions(); // they may have come since
  }, [talk]);
  usePolling(() => talk.catchUp(), CATCH_UP_EVERY, talk);
  const current = talk.session?.model || talk.turns.findLast((turn) => turn.model)?.model || defaultModel();
  const inBranch = async (turn, content, model) => {
    try {
      const made = await branch(talk, turn, content, model);
      go(`/s/${encodeURIComponent(made.id)}`);
      return true;
    } catch (error) {
      setProblem(error.message);
      return false;
    }
  };
  const ask = (content) => {
    const model = chosen.value;
    // A session keeps its model, so another one goes on in a branch.
    if (model && model !== current) return inBranch({ messageId: 0, runId: "" }, content, model);
    return talk.ask(content);
  };
  const actions = {
    answer: (turn, part, choice) => talk.answer(turn, part, choice),
    edit: (turn, text) => inBranch(turn, contentOf(text, imagesOf(turn.question)), chosen.value || turn.model || current),
    retry: (turn) => inBranch(turn, turn.question, chosen.value || turn.model || current),
  };
  const live = talk.live;
  return html`<${Bar} title=${talk.session?.title || talk.session?.preview || "Chat"} /><div class="chat">
    <${Scroller} turns=${talk.turns}>
      ${talk.state === "loading" && html`<p class="faint">Loading…</p>`}
      ${talk.state === "failed" && html`<${Problem} text=${talk.failure} retry=${() => talk.load()} />`}
      ${talk.turns.map((turn) => html`<${TurnView} key=${turn.key} turn=${turn} actions=${actions} isBusy=${Boolean(live)} versions=${talk.versions.get(turn.messageId)} />`)}
      ${problem && html`<${Problem} text=${problem} />`}
    </${Scroller}>
    <${Composer} place=${sessionId} isBusy=${Boolean(live)} canStop=${Boolean(live?.runId) && live.status !== "stopping"} onSend=${ask} onStop=${() => talk.stop()}
      queue=${queueOf(talk)}
      tools=${html`<${ModelPicker} current=${current} />`} />
  </div>`;
}

function queueOf(talk) {
  if (talk.queued === null) return null;
  const { live } = talk;
  const canStop = live?.runId && live.status !== "stopping";
  const send = live ? canStop && (() => talk.stop()) : () => talk.sendQueued();
  return { text: plainText(talk.queued), drop: () => talk.setQueued(null), send };
}

// Stays at the end while the reader is there, and nowhere else.
function Scroller({ turns, children }) {
  const area = useRef(null);
  const column = useRef(null);
  const isAtEnd = useRef(true);
  const [shows, setShows] = useState(false);
  const look = () => {
    const { scrollTop, scrollHeight, clientHeight } = area.current;
    isAtEnd.current = scrollHeight - scrollTop - clientHeight < 60;
    setShows(!isAtEnd.current);
  };
  const toEnd = () => { area.current.scrollTop = area.current.scrollHeight; };
  useLayoutEffect(() => {
    const watcher = new ResizeObserver(() => isAtEnd.current && toEnd());
    watcher.observe(column.current);
    watcher.observe(area.current);
    return () => watcher.disconnect();
  }, []);
  useLayoutEffect(() => { isAtEnd.current = true; toEnd(); }, [turns.length]);
  return html`<div class="scroll" ref=${area} onScroll=${look} role="log" aria-live="off" aria-label="Conversation" tabindex="0">
    <div class="column" ref=${column}>${children}</div>
    ${shows && html`<button type="button" class="latest" onClick=${toEnd}>Latest ↓</button>`}
  </div>`;
}
