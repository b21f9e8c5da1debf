// The frame around the views: signing in, navigation, theme, keys.

import { health, ORIGIN, reachable, replacement, session, signIn, signOut } from "./api.js";
import { Icon, Problem } from "./bits.js";
import { useCell } from "./cell.js";
import { Chat } from "./chat.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "./lib.js";
import { live, useLive } from "./live.js";
import { loadModels } from "./models.js";
import { Notes } from "./notes.js";
import { theme } from "./plot.js";
import { drawer, go, route } from "./route.js";
import { RunDetail } from "./run_detail.js";
import { Runs } from "./runs.js";
import { Server } from "./server.js";
import { Sessions, SideList } from "./sessions.js";
import { loadSuggestions } from "./suggestions.js";

const PLACES = [["", "New chat", "plus", "n"], ["sessions", "Sessions", "sessions", "s"], ["runs", "Runs", "runs", "r"], ["server", "Server", "server", "v"]];
const THEME = "hermes-trio-theme";

export function App() {
  const { state } = useCell(session);
  return state === "in" ? html`<${Frame} />` : html`<${SignIn} />`;
}

function SignIn() {
  const [text, setText] = useState("");
  const [isRemembered, setRemembered] = useState(false);
  const { state, problem } = useCell(session);
  const isBusy = state === "signing-in";
  const submit = (event) => {
    event.preventDefault();
    void signIn(text.trim(), isRemembered);
  };
  if (isBusy && !text) return html`<main class="sign-in"><p role="status">Signing in…</p></main>`; // by the printed link
  return html`<main class="sign-in"><form onSubmit=${submit}><${Icon} name="mark" more="mark" /><h1>Sign in to hermes-trio</h1>
    <p>Run <code>hermes-trio open</code> on the server's machine, or paste the key that <code>hermes-trio key</code> prints.</p>
    <label>Key <input type="password" autocomplete="off" value=${text} onInput=${(event) => setText(event.target.value)} /></label>
    ${problem && html`<${Problem} text=${problem} />`}
    <button type="submit" class="main" disabled=${isBusy || !text.trim()}>Sign in</button>
    <label class="checkbox"><input type="checkbox" checked=${isRemembered} onChange=${(event) => setRemembered(event.target.checked)} />Stay signed in on this device</label>
    <p class="faint">The page does not keep the key. The browser gets a cookie that scripts cannot read, until you sign out or, unless you
      stay signed in, close it.</p></form></main>`;
}

function Frame() {
  const { name, argument } = useCell(route);
  const { problem } = useCell(session);
  const view = useRef(null);
  const isFirst = useRef(true);
  const [isHelp, setHelp] = useState(false);
  const isDrawer = useCell(drawer);
  useEffect(() => {
    void loadModels().catch(() => {});
    void loadSuggestions().catch(() => {});
    void health().catch(() => {});
  }, []);
  useLive();
  useTitle(name);
  useLayoutEffect(() => { // before the view is painted, so that whoever sees it can go on from its heading
    if (!isFirst.current && name !== "" && name !== "s") view.current?.querySelector("h1")?.focus();
    isFirst.current = false;
    drawer.set(false);
  }, [name, argument]);
  useLayoutEffect(() => {
    const keys = (event) => shortcut(event, setHelp);
    document.addEventListener("keydown", keys);
    return () => document.removeEventListener("keydown", keys);
  }, []);
  const closeDrawer = () => drawer.set(false);
  const wasDrawer = useRef(false);
  useLayoutEffect(() => { // the focus follows into the side, and returns if it closes without leading elsewhere
    const side = document.getElementById("side");
    if (isDrawer) side.querySelector("a").focus();
    else if (wasDrawer.current && side.contains(document.activeElement)) view.current.querySelector(".menu")?.focus();
    wasDrawer.current = isDrawer;
  }, [isDrawer]);
  return html`<a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); view.current.focus(); }}>Skip to content</a>
    <div class="frame ${isDrawer ? "drawer" : ""}" onKeyDown=${(event) => isDrawer && event.key === "Escape" && closeDrawer()}
      onClick=${(event) => isDrawer && event.target === event.currentTarget && closeDrawer()}>
      <header class="side" id="side">
        <a class="brand" href="#/"><${Icon} name="mark" />hermes-trio</a>
        <nav aria-label="Views"><ul>${PLACES.map((place) => html`<${Place} key=${place[0]} place=${place} current=${name} />`)}</ul></nav>
        <${SideList} current=${name === "s" ? argument : ""} />
        ${problem && html`<${Problem} text=${problem} />`}
        <div class="row tools"><${Connection} /><${ThemeButton} />
          <button type="button" class="quiet icon-button" onClick=${() => setHelp(true)} aria-label="Keyboard shortcuts" title="Keyboard shortcuts (?)">?</button>
          <button type="button" class="quiet icon-button" onClick=${signOut} aria-label="Sign out" title="Sign out"><${Icon} name="out" /></button></div>
      </header>
      <main id="main" ref=${view} tabindex="-1" inert=${isDrawer}><${View} name=${name} argument=${argument} /></main>
    </div>
    ${isHelp && html`<${Help} close=${() => setHelp(false)} />`}
    <${Replacement} />
    <${Notes} />`;
}

function Place({ place: [place, label, icon, key], current }) {
  const runs = useCell(live);
  const isRuns = place === "runs" && runs.length > 0;
  return html`<li><a href=${`#/${place}`} aria-current=${place === current ? "page" : undefined}><${Icon} name=${icon} />${label}
    ${isRuns ? html`<span class="badge">${runs.length} live</span>` : html`<kbd aria-hidden="true">${key.toUpperCase()}</kbd>`}</a></li>`;
}

const CONNECTIONS = { "": ["on", "Connected"], offline: ["off", "Offline"], gone: ["off", "Server not reachable"] };

function Connection() {
  const [sign, text] = CONNECTIONS[useCell(reachable)];
  return html`<span class="connection" title=${ORIGIN}><span class="dot ${sign}" aria-hidden="true"></span><span class="clip">${text}</span></span>`;
}

// The title and the icon of the tab say whether a run works or waits for an answer.
function useTitle(name) {
  const runs = useCell(live);
  const asking = runs.filter((run) => run.status === "waiting_for_approval").length;
  useLayoutEffect(() => {
    const label = PLACES.find(([place]) => place === name)?.[1] ?? "Chat";
    const sign = asking ? `(${asking}) Approval – ` : runs.length ? "● " : "";
    document.title = `${sign}${name === "" ? "Chat" : label} – hermes-trio`;
    const icon = asking ? "icon_waiting" : runs.length ? "icon_working" : "icon";
    document.querySelector("link[rel=icon]").href = new URL(`../${icon}.svg`, import.meta.url).href;
  }, [name, asking, runs.length]);
}

function View({ name, argument }) {
  if (name === "sessions") return html`<${Sessions} />`;
  if (name === "runs") return argument ? html`<${RunDetail} runId=${argument} />` : html`<${Runs} />`;
  if (name === "server") return html`<${Server} />`;
  return html`<${Chat} sessionId=${name === "s" ? argument : ""} />`;
}

const SHORTCUTS = [
  ["Enter", "send the message"], ["Shift Enter", "new line"], ["Esc", "stop the turn, from the message field"],
  ["/", "write a message"], ["n", "new chat"], ["s", "sessions"], ["r", "runs"], ["v", "server"], ["?", "this list"],
];
const GOES = { n: "/", s: "/sessions", r: "/runs", v: "/server" };

function shortcut(event, setHelp) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, dialog")) return;
  if (event.key in GOES) go(GOES[event.key]);
  else if (event.key === "?") setHelp(true);
  else if (event.key === "/") document.querySelector("#message, #search")?.focus();
  else return;
  event.preventDefault();
}

function Help({ close }) {
  const show = (dialog) => dialog && !dialog.open && dialog.showModal();
  return html`<dialog ref=${show} onClose=${close} aria-labelledby="keys-title"><h2 id="keys-title">Keys</h2>
    <dl class="keys">${SHORTCUTS.map(([name, text]) => html`<div key=${name}><dt><kbd>${name}</kbd></dt><dd>${text}</dd></div>`)}</dl>
    <form method="dialog"><button class="main">Close</button></form></dialog>`;
}

// Asks before a link replaces the principal that is signed in. Escape means no.
function Replacement() {
  const asked = useCell(replacement);
  if (!asked) return null;
  const { current, offered, answer } = asked;
  const show = (dialog) => dialog && !dialog.open && dialog.showModal();
  const close = (event) => answer(event.target.returnValue === "replace");
  return html`<dialog ref=${show} onClose=${close} aria-labelledby="replace-title" aria-describedby="replace-text">
    <h2 id="replace-title">Sign in as ${offered}?</h2>
    <p id="replace-text">You are signed in as <strong>${current}</strong>. The link that you opened has a key of <strong>${offered}</strong>,
      who can see everything that is written with it. Accept it only if you know who sent it.</p>
    <form method="dialog" class="row"><button class="main" value="keep">Stay signed in as ${current}</button>
      <button value="replace">Sign in as ${offered}</button></form></dialog>`;
}

// -- light and dark --

const THEMES = ["system", "light", "dark"];

export function applyTheme(name = localStorage.getItem(THEME) ?? "system") {
  if (name === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  theme.set(theme.value + 1);
  return name;
}

function ThemeButton() {
  const [name, setName] = useState(() => localStorage.getItem(THEME) ?? "system");
  const next = () => {
    const chosen = THEMES[(THEMES.indexOf(name) + 1) % THEMES.length];
    localStorage.setItem(THEME, chosen);
    setName(applyTheme(chosen));
  };
  return html`<button type="button" class="quiet icon-button" onClick=${next} aria-label=${`Theme: ${name}`} title=${`Theme: ${name}. Light, dark, or as the system`}><${Icon} name="sun" /></button>`;
}
