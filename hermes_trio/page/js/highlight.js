// Colours for code, by highlight.js once it is loaded. Its result is text with spans, of which elements are made here.

import { html, useEffect, useState } from "./lib.js";

const MOST = 50_000; // characters
const PART = /<span class="([^"]*)">|<\/span>|&(amp|lt|gt|quot|#x27);|([^<&]+)/g;
const ENTITIES = { amp: "&", lt: "<", gt: ">", quot: '"', "#x27": "'" };

let loading = null;

function library() {
  loading ??= import("../vendor/highlight.js").then((module) => module.default);
  return loading;
}

// The text, coloured as soon as that is possible. One that still grows is left alone.
export function Code({ text, language, isOpen }) {
  const [tree, setTree] = useState(null);
  useEffect(() => {
    if (isOpen || !language || text.length > MOST) return undefined;
    let isGone = false;
    void library().then((highlighter) => {
      if (!isGone && highlighter.getLanguage(language)) setTree(parseHighlighted(highlighter.highlight(text, { language, ignoreIllegals: true }).value));
    }).catch(() => {}); // then it stays plain
    return () => { isGone = true; };
  }, [text, language, isOpen]);
  return html`<code>${tree === null ? text : nodes(tree)}</code>`;
}

// What highlight.js returns, as a tree of strings and { name, children }.
export function parseHighlighted(source) {
  const root = [];
  const stack = [root];
  for (const [whole, name, entity, text] of source.matchAll(PART)) {
    if (whole === "</span>") stack.pop();
    else if (name !== undefined) {
      const children = [];
      stack.at(-1).push({ name, children });
      stack.push(children);
    } else stack.at(-1).push(text ?? ENTITIES[entity]);
  }
  return root;
}

function nodes(tree) {
  return tree.map((part) => (typeof part === "string" ? part : html`<span class=${part.name}>${nodes(part.children)}</span>`));
}
