// A session as a file: Markdown to read, JSON with everything that the server has.

import { imagesOf, plainText } from "./transcript.js";

export function asJson(session, messages) {
  return `${JSON.stringify({ session, messages }, null, 2)}\n`;
}

export function asMarkdown(title, messages) {
  const names = new Map(); // of the tools, by call id
  const parts = [`# ${title}`];
  for (const message of messages) {
    if (message.role === "user") parts.push("## You", ...spoken(message));
    else if (message.role === "tool") parts.push(`Result of **${names.get(message.tool_call_id) ?? message.tool_name ?? "tool"}**:`, fenced(plainText(message.content)));
    else parts.push("## Agent", ...reasoned(message), ...spoken(message), ...calls(message, names));
  }
  return `${parts.filter(Boolean).join("\n\n")}\n`;
}

function spoken({ content }) {
  const images = imagesOf(content).map((url) => (url.startsWith("data:") ? "(an image)" : `![image](<${url}>)`));
  return [plainText(content), ...images];
}

function reasoned({ reasoning }) {
  return reasoning ? [reasoning.split("\n").map((line) => `> ${line}`).join("\n")] : [];
}

function calls({ tool_calls: list }, names) {
  return (list ?? []).flatMap(({ id, function: { name, arguments: text } }) => {
    names.set(id, name);
    return [`Calls **${name}**:`, fenced(text, "json")];
  });
}

// The fence is longer than any in the text.
function fenced(text, language = "") {
  const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map(([ticks]) => ticks.length));
  const fence = "`".repeat(longest + 1);
  return `${fence}${language}\n${text}\n${fence}`;
}

export function fileName(title, ending) {
  const name = title.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-+|-+$/g, "").slice(0, 60);
  return `${name || "session"}.${ending}`;
}

export function download(name, type, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000); // a slow browser may still read it
}
