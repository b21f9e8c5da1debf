// The list of sessions: find, open, rename, fork, delete.

import { get, now, part, send } from "./api.js";
import { Bar } from "./bar.js";
import { Icon, Problem, Sign } from "./bits.js";
import { Cell, useCell } from "./cell.js";
import { allMessages, changed, forget } from "./conversation.js";
import { asJson, asMarkdown, download, fileName } from "./export.js";
import { ago, byDay, counted, moment, oneLine } from "./format.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "./lib.js";
import { live, liveIn } from "./live.js";
import { announce } from "./notes.js";
import { go } from "./route.js";
import { families } from "./versions.js";

const PAGE = 200;
const MOST = 2000;

export const sessions = new Cell({ list: [], failure: "", isLoaded: false });
let latest = 0;

export async function loadSessions() {
  const number = (latest += 1);
  try {
    const list = [];
    for (let more = true; more && list.length < MOST;) {
      const page = await get(`/api/sessions?limit=${PAGE}&offset=${list.length}`);
      list.push(...page.data);
      more = page.has_more && page.data.length > 0;
    }
    if (number === latest) sessions.set({ list, failure: "", isLoaded: true });
  } catch (error) {
    if (number === latest) sessions.set({ ...sessions.value, failure: error.message, isLoaded: true });
  }
}

export function useSessions() {
  const version = useCell(changed);
  useEffect(() => { void loadSessions(); }, [version]);
  return useCell(sessions);
}

export function titleOf(session) {
  return session.title || oneLine(session.preview ?? "", 60) || "New session";
}

export function matches(session, words) {
  const text = `${session.title ?? ""} ${session.preview ?? ""} ${session.id} ${session.model ?? ""}`.toLowerCase();
  return words.toLowerCase().split(/\s+/).every((word) => text.includes(word));
}

const RECENT = 60; // sessions in the side

export function SideList({ current }) {
  const { list } = useSessions();
  const runs = useCell(live);
  const all = families(list);
  const pinned = all.filter((session) => session.pinned);
  const groups = byDay(all.filter((session) => !session.pinned).slice(0, RECENT), now());
  if (pinned.length) groups.unshift(["Pinned", pinned]);
  return html`<div class="side-list" role="group" aria-label="Recent sessions">${groups.map(([day, group]) => html`<section key=${day} aria-label=${day}>
    <h2>${day}</h2><ul>${group.map((session) => html`<li key=${session.originId}><a href=${`#/s/${part(session.id)}`} aria-current=${session.members.includes(current) ? "page" : undefined} title=${titleOf(session)}>
      <span class="clip">${titleOf(session)}</span>${liveSign(liveIn(runs, session.members))}</a></li>`)}</ul></section>`)}</div>`;
}

function liveSign(run) {
  if (!run) return null;
  const isAsking = run.status === "waiting_for_approval";
  return html`<span class="status ${run.status}" title=${isAsking ? "The agent asks for approval" : "A run is under way"}><${Sign} status=${run.status} /><span class="unseen">${isAsking ? "asks" : "running"}</span></span>`;
}

export function Sessions() {
  const { list, failure, isLoaded } = useSessions();
  const [words, setWords] = useState("");
  const [problem, setProblem] = useState("");
  const all = families(list);
  const found = all.filter((session) => matches(session, words)).sort((a, b) => Number(b.pinned) - Number(a.pinned));
  const attempt = async (work, told) => {
    setProblem("");
    try {
      await work();
      announce(told);
    } catch (error) {
      setProblem(error.message);
    }
    changed.set(changed.value + 1);
  };
  return html`<${Bar} title="Sessions"><span class="spring"></span>
      <span class="search"><${Icon} name="search" /><input type="search" id="search" aria-label="Search sessions" placeholder="Search" value=${words} onInput=${(event) => setWords(event.target.value)} /></span></${Bar}>
    <div class="view">
    ${(failure || problem) && html`<${Problem} text=${failure || problem} />`}
    <p class="faint" role="status">${isLoaded ? `${found.length} of ${all.length}` : "Loading…"}</p>
    <ul class="sessions">${found.slice(0, 300).map((session) => html`<${Row} key=${session.originId} session=${session} attempt=${attempt} />`)}</ul>
    <${Found} words=${words.trim()} />
  </div>`;
}

const PATIENCE = 300; // milliseconds without a key before the messages are searched

// What was said that has the words, below the sessions whose titles have them.
function Found({ words }) {
  const [page, setPage] = useState(null);
  useEffect(() => {
    setPage(null);
    const leaving = new AbortController();
    const look = () => get(`/api/messages/search?q=${part(words)}`, { signal: leaving.signal }).then(setPage, () => {});
    const timer = words.length > 1 ? setTimeout(look, PATIENCE) : 0;
    return () => {
      clearTimeout(timer);
      leaving.abort();
    };
  }, [words]);
  if (!page) return null;
  const more = async () => {
    const next = await get(`/api/messages/search?q=${part(words)}&offset=${page.next_offset}`);
    setPage({ ...next, data: [...page.data, ...next.data] });
  };
  return html`<section aria-label="Messages"><h2>In messages</h2>
    ${!page.data.length && !page.has_more && html`<p class="faint">Nothing was said with these words.</p>`}
    <ul class="found">${page.data.map((match) => html`<li key=${`${match.session_id} ${match.message_id}`}><a href=${`#/s/${part(match.session_id)}`}>
      <span class="title">${match.title || "New session"}</span> <span class="faint">${match.role}, ${ago(match.timestamp, now())}</span>
      <span class="excerpt">${marked(match.excerpt, words)}</span></a></li>`)}</ul>
    ${page.has_more && html`<button type="button" onClick=${more}>Search older sessions</button>`}</section>`;
}

function marked(text, words) {
  const parts = words.toLowerCase().split(/\s+/).map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  return text.split(new RegExp(`(${parts.join("|")})`, "gi")).map((piece, number) => (number % 2 ? html`<mark>${piece}</mark>` : piece));
}

function Row({ session, attempt }) {
  const [mode, setMode] = useState("");
  const path = `/api/sessions/${part(session.id)}`;
  const first = `/api/sessions/${part(session.originId)}`;
  const rename = (title) => attempt(() => send("PATCH", first, { title: title || null }), "Renamed.");
  const pin = () => attempt(() => send("PATCH", first, { pinned: !session.pinned }), session.pinned ? "No longer pinned." : "Pinned.");
  const fork = () => attempt(async () => {
    const made = await send("POST", `${path}/fork`);
    go(`/s/${part(made.session.id)}`);
  }, "Forked.");
  const remove = () => attempt(async () => {
    await send("DELETE", path);
    forget(session.id);
  }, "Deleted.");
  const save = (kind) => attempt(async () => {
    setMode("");
    const messages = await allMessages(session.id);
    const title = titleOf(session);
    if (kind === "json") download(fileName(title, "json"), "application/json", asJson(session, messages));
    else download(fileName(title, "md"), "text/markdown", asMarkdown(title, messages));
  }, "Saved as a file.");
  return html`<li>
    <div class="about">
      ${mode === "rename"
        ? html`<${Rename} title=${session.title || titleOf(session)} done=${(title) => { setMode(""); if (title !== null) void rename(title); }} />`
        : html`<a class="title" href=${`#/s/${part(session.id)}`}>${titleOf(session)}</a>`}
      <div class="faint"><span title=${moment(session.last_active)}>${ago(session.last_active, now())}</span>
        <span>${counted(session.message_count, "message")}</span>${session.tool_call_count > 0 && html`<span>${counted(session.tool_call_count, "tool call")}</span>`}
        <span>${session.kind}</span>${session.model && html`<span>${session.model}</span>`}${session.end_reason && html`<span>${session.end_reason}</span>`}</div>
    </div>
    ${mode === "delete" && html`<div class="row"><span>Delete it and its runs?</span><button type="button" class="danger" onClick=${remove}>Delete</button><button type="button" onClick=${() => setMode("")}>Keep</button></div>`}
    ${mode === "export" && html`<div class="row"><span>Save as</span><button type="button" onClick=${() => save("md")}>Markdown</button><button type="button" onClick=${() => save("json")}>JSON</button><button type="button" onClick=${() => setMode("")}>Cancel</button></div>`}
    ${(mode === "" || mode === "rename") && html`<div class="row"><button type="button" class="quiet" aria-pressed=${session.pinned} onClick=${pin}><${Icon} name="pin" />Pin</button>
      <button type="button" class="quiet" onClick=${() => setMode("rename")}><${Icon} name="edit" />Rename</button>
      <button type="button" class="quiet" onClick=${fork}><${Icon} name="branch" />Fork</button>
      <button type="button" class="quiet" onClick=${() => setMode("export")}><${Icon} name="export" />Export</button>
      <button type="button" class="quiet" onClick=${() => setMode("delete")}><${Icon} name="trash" />Delete</button></div>`}
  </li>`;
}

function Rename({ title, done }) {
  const [text, setText] = useState(title);
  const field = useRef(null);
  useLayoutEffect(() => field.current.select(), []);
  const keys = (event) => event.key === "Escape" && done(null);
  return html`<form class="row" onSubmit=${(event) => { event.preventDefault(); done(text.trim()); }}>
    <input type="text" aria-label="Title" maxlength="100" value=${text} ref=${field}
      onInput=${(event) => setText(event.target.value)} onKeyDown=${keys} />
    <button type="submit" class="main">Save</button><button type="button" onClick=${() => done(null)}>Cancel</button></form>`;
}
