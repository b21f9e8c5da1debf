// The server. The page is signed in by a cookie that no script can read; the key is exchanged for it and not kept.

import { Cell } from "./cell.js";

const MARK = "hermes-trio-signed-in"; // in localStorage: the principal. Tabs share the cookie, so they share this too.
const PENDING = "hermes-trio-pending-key";

// "/" or "/p/NAME/": every path of the API is below it.
export const BASE = location.pathname.replace(/[^/]*$/, "");
export const ORIGIN = location.origin + BASE.replace(/\/$/, "");

// state: "in", "out" or "signing-in". A mark without a cookie is found out by the first request.
export const session = new Cell(marked());

function marked(problem = "") {
  return { state: localStorage.getItem(MARK) === null ? "out" : "in", problem };
}

// A link with the key of another principal than the current one: { current, offered, answer }, until answer(true or false)
// is called. Else null.
export const replacement = new Cell(null);

// Resolves to whether the server answered. `isRemembered`: the cookie outlives the browser.
export async function signIn(key, isRemembered = false) {
  const before = localStorage.getItem(MARK);
  session.set({ state: "signing-in", problem: "" });
  try {
    const principal = await exchange(key, "same-origin", isRemembered);
    localStorage.setItem(MARK, principal);
    if (before !== null && before !== principal) location.reload(); // nothing on the screen is valid
    else session.set(marked());
    return true;
  } catch (error) {
    session.set(marked(refusal(error)));
    return error instanceof ApiFailure;
  }
}

// The owner of a key. Unless credentials are omitted, the browser gets its cookie.
async function exchange(key, credentials = "same-origin", isRemembered = false) {
  const headers = { Authorization: `Bearer ${key}` };
  const path = isRemembered ? "/api/sign-in?remember=true" : "/api/sign-in";
  return (await (await ask("POST", path, { headers, credentials })).json()).principal;
}

function refusal(error) {
  return error.status === 401 ? "This key is not valid. Run hermes-trio key on the server's machine to see the current one." : reason(error);
}

export async function signOut() {
  try {
    await ask("POST", "/api/sign-out");
  } catch (error) {
    if (error.status !== 401) {
      session.set(marked(`Still signed in: ${reason(error)}`));
      return;
    }
  }
  leave();
}

function leave() {
  localStorage.removeItem(MARK);
  sessionStorage.clear();
  session.set(marked());
  replacement.value?.answer(true); // nobody is signed in any more
}

function reason(error) {
  return error instanceof ApiFailure ? error.message : "The server cannot be reached.";
}

// Another tab signed in or out.
window.addEventListener("storage", (event) => {
  if (event.key !== MARK) return;
  if (event.newValue && event.oldValue) location.reload(); // as another principal: nothing on the screen is valid
  else session.set(marked());
});

// The link that the server prints has the key behind the #, which browsers send to nobody. It does not stay there. Until
// it is exchanged it is in the tab's storage, in case the page is loaded again meanwhile.
function takeKey() {
  const given = /^#key=(.+)$/.exec(location.hash);
  if (!given) return false;
  sessionStorage.setItem(PENDING, decodeURIComponent(given[1]));
  history.replaceState(null, "", `${location.pathname}${location.search}#/`);
  return true;
}

async function exchangeKey() {
  const key = sessionStorage.getItem(PENDING);
  if (!key) return;
  if (!(await mayReplace(key)) || (await signIn(key))) sessionStorage.removeItem(PENDING);
}

// A link must not make the browser work for another principal unasked: the sender could read all that is written then.
async function mayReplace(key) {
  const current = localStorage.getItem(MARK);
  if (current === null) return true;
  try {
    const offered = await exchange(key, "omit"); // which leaves the cookie as it is
    if (offered === current || localStorage.getItem(MARK) === null) return true;
    const isWanted = await new Promise((answer) => { replacement.set({ current, offered, answer }); });
    replacement.set(null);
    if (isWanted) sessionStorage.clear(); // of the current principal
    return isWanted;
  } catch (error) {
    session.set(marked(refusal(error)));
    return false;
  }
}

export class ApiFailure extends Error {
  constructor(status, { message, code } = {}, retryAfter = 0) {
    super(message ?? `The server answered ${status}.`);
    this.status = status;
    this.code = code ?? "";
    this.retryAfter = retryAfter; // seconds; 0 if the server does not say
  }
}

// The link may be opened in a tab that has the page already. This listener is the first one: the route never sees the key.
window.addEventListener("hashchange", () => takeKey() && void exchangeKey());
takeKey();
void exchangeKey();

async function ask(method, path, { body, headers = {}, signal, credentials = "same-origin" } = {}) {
  const response = await fetch(BASE + path.slice(1), {
    method,
    signal,
    credentials,
    cache: "no-store",
    headers: { "X-Title": "hermes-trio page", ...(body ? { "Content-Type": "application/json" } : {}), ...headers },
    body: body ? JSON.stringify(body) : undefined,
  });
  if (response.ok) return response;
  const retryAfter = Number(response.headers.get("Retry-After")) || 0;
  throw new ApiFailure(response.status, (await response.json().catch(() => ({}))).error, retryAfter);
}

// "" if the server answered the last request, "offline" without a network, "gone" otherwise.
export const reachable = new Cell("");

function noteReachable(error) {
  const found = !error || error instanceof ApiFailure ? "" : navigator.onLine ? "gone" : "offline";
  if (found !== reachable.value) reachable.set(found);
}

export async function request(method, path, options) {
  try {
    const response = await ask(method, path, options);
    noteReachable(null);
    return response;
  } catch (error) {
    if (error.name !== "AbortError") noteReachable(error);
    if (error.status === 401 && session.value.state === "in") leave();
    throw error;
  }
}

export async function get(path, options) {
  return (await request("GET", path, options)).json();
}

export async function send(method, path, body = {}, options = {}) {
  return (await request(method, path, { body, ...options })).json();
}

export function part(text) {
  return encodeURIComponent(text);
}

// -- the server's clock: timers of running tools count from what it says --

let ahead = 0; // seconds

export function now() {
  return Date.now() / 1000 + ahead;
}

export function noteTime(serverTime, asked, answered) {
  const here = (asked + answered) / 2000;
  // A clock that may be the same needs no correction that would only be the way there and back.
  ahead = Math.abs(serverTime - here) > Math.max(0.5, (answered - asked) / 2000) ? serverTime - here : 0;
}

export async function health() {
  const asked = Date.now();
  const found = await get("/health/detailed");
  if (found.updated_at) noteTime(found.updated_at, asked, Date.now());
  return found;
}

export function randomId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16)); // randomUUID is for https only
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
