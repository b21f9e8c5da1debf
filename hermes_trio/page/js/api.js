// The server. The key is kept for as long as the tab lives, and nowhere else.

import { Cell } from "./cell.js";

const KEY = "hermes-trio-key";

// "/" or "/p/NAME/": every path of the API is below it.
export const BASE = location.pathname.replace(/[^/]*$/, "");
export const ORIGIN = location.origin + BASE.replace(/\/$/, "");

export const key = new Cell(takeKey());

// The link that the server prints has the key behind the #, which browsers send to nobody. It does not stay there.
function takeKey() {
  const given = /^#key=(.+)$/.exec(location.hash);
  if (given) {
    sessionStorage.setItem(KEY, decodeURIComponent(given[1]));
    history.replaceState(null, "", `${location.pathname}${location.search}#/`);
  }
  return sessionStorage.getItem(KEY) ?? "";
}

// The link may be opened in a tab that has the page already. This listener is the first one: the route never sees the key.
window.addEventListener("hashchange", () => {
  if (location.hash.startsWith("#key=")) key.set(takeKey());
});

export function signIn(text) {
  sessionStorage.setItem(KEY, text);
  key.set(text);
}

export function signOut() {
  sessionStorage.clear();
  key.set("");
}

export class ApiFailure extends Error {
  constructor(status, { message, code } = {}) {
    super(message ?? `The server answered ${status}.`);
    this.status = status;
    this.code = code ?? "";
  }
}

export async function request(method, path, { body, headers = {}, signal } = {}) {
  const response = await fetch(BASE + path.slice(1), {
    method,
    signal,
    cache: "no-store",
    headers: { Authorization: `Bearer ${key.value}`, ...(body ? { "Content-Type": "application/json" } : {}), ...headers },
    body: body ? JSON.stringify(body) : undefined,
  });
  if (response.ok) return response;
  const failure = new ApiFailure(response.status, (await response.json().catch(() => ({}))).error);
  if (response.status === 401) signOut();
  throw failure;
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
