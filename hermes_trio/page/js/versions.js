// The versions of a turn: sessions that were forked before the same message, and the one that they were forked from.

import { get, part } from "./api.js";

// For a session that is shown: { ids, at } by the id of the message that has several versions. `at` is the place of the
// session itself among the ids, which are in the order in which the versions were made.
export async function versionsOf(session) {
  const found = new Map();
  let via = null; // the session through which this one comes from the node
  for (let node = session; node && node.id !== via?.id;) {
    for (const [count, forks] of await forksOf(node.id)) {
      const shared = via?.forked_messages ?? Infinity;
      if (count > shared) continue; // versions of what this session does not have
      const first = count === shared ? node.id : session.id;
      const ids = [first, ...forks.map((fork) => (fork.id === via?.id ? session.id : fork.id))];
      found.set(count + 1, { ids, at: ids.indexOf(session.id) });
    }
    via = node;
    node = await parentOf(node);
  }
  return found;
}

// The session that had a message first: forks before it are made from that one, so that all its versions are together.
export async function ownerOf(session, messageId) {
  let owner = session;
  while (owner.forked_messages !== null && messageId - 1 <= owner.forked_messages) {
    const parent = await parentOf(owner);
    if (!parent) break;
    owner = parent;
  }
  return owner;
}

// null if there is none, or none any more.
async function parentOf({ forked_messages: count, parent_session_id: id }) {
  if (count === null || !id) return null;
  return (await get(`/api/sessions/${part(id)}`).catch(() => ({ session: null }))).session;
}

// [number of messages that they took, forks in the order in which they were made]
async function forksOf(id) {
  const { data } = await get(`/api/sessions?limit=200&include_children=true&parent=${part(id)}`);
  const groups = new Map();
  for (const fork of data.filter((each) => each.forked_messages !== null).sort((a, b) => a.started_at - b.started_at)) {
    groups.set(fork.forked_messages, [...(groups.get(fork.forked_messages) ?? []), fork]);
  }
  return groups;
}

// Sessions that are versions of each other are one entry of a list: the one that was used last, with the title and the pin
// of the first (`originId`), and the ids of all (`members`).
export function families(sessions) {
  const byId = new Map(sessions.map((session) => [session.id, session]));
  const entries = new Map(); // by the id of the first
  for (const session of sessions) {
    const first = origin(session, byId);
    const entry = entries.get(first.id);
    if (entry) entry.members.push(session.id);
    else entries.set(first.id, { ...session, title: first.title, pinned: first.pinned, preview: first.preview || session.preview, originId: first.id, members: [session.id] });
  }
  return [...entries.values()];
}

function origin(session, byId) {
  let first = session;
  while (first.forked_messages !== null && byId.has(first.parent_session_id)) first = byId.get(first.parent_session_id);
  return first;
}
