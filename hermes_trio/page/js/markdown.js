// Markdown as trees of nodes, by markdown-it. The view makes elements of them; nothing here makes HTML, and HTML in the text
// stays text. A document that grows parses only its last block again.

import MarkdownIt from "../vendor/markdown-it.js";
import footnotes from "../vendor/markdown-it-footnote.js";
import { math } from "./math.js";

const parser = new MarkdownIt({ html: false, linkify: true }).use(footnotes).use(math);
parser.validateLink = isSafe;
parser.linkify.set({ fuzzyLink: false, fuzzyEmail: false });

// Links that can run something are none. Pictures that came with the text are shown; those from elsewhere become links, as
// they would tell others who reads what.
export function isSafe(url) {
  return isLink(url) || isImage(url);
}

export function isLink(url) {
  return /^(https?:\/\/|mailto:)/i.test(url) && !/[\u0000-\u0020]/.test(url);
}

export function isImage(url) {
  return /^data:image\/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+$/.test(url);
}

// The blocks of a text: { type, tag, attrs, text, info, children, line }, with the line that each begins at.
export function parseBlocks(text) {
  return blocksOf(parser.parse(text, {}));
}

function blocksOf(tokens) {
  const root = { children: [] };
  const stack = [root];
  for (const token of tokens) {
    if (token.nesting < 0) stack.pop();
    else {
      const node = nodeOf(token);
      stack.at(-1).children.push(node);
      if (token.nesting > 0) stack.push(node);
    }
  }
  return root.children;
}

function nodeOf(token) {
  const children = token.type === "inline" || token.type === "image" ? blocksOf(token.children ?? []) : [];
  return {
    type: token.type.replace(/_open$/, ""), tag: token.tag, attrs: Object.fromEntries(token.attrs ?? []), text: token.content,
    info: token.info, meta: token.meta, isHidden: token.hidden, children, line: token.map?.[0] ?? 0,
  };
}

export function csvOf(table) {
  const rows = table.children.flatMap((group) => group.children);
  const cell = (node) => {
    const text = textOf(node);
    return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return rows.map((row) => row.children.map(cell).join(",")).join("\n");
}

function textOf({ type, text, children }) {
  if (type === "inline" || !text) return children.map(textOf).join("");
  return text;
}

// A text that only grows. Blocks that are behind the last one do not change again, nor do the objects that stand for them,
// until `finish`: then definitions of links and footnotes reach what stands before them.
export class Doc {
  #done = [];
  #rest = "";
  #last = [];
  #isParsed = true;
  #isFinished = false;
  text = "";

  append(text) {
    this.text += text;
    this.#rest += text;
    this.#isParsed = false;
    return this;
  }

  get isFinished() {
    return this.#isFinished;
  }

  finish() {
    if (this.#isFinished) return this;
    this.#isFinished = true;
    if (/^ {0,3}\[[^\]]+\]:/m.test(this.text)) {
      this.#done = [];
      this.#last = parseBlocks(this.text);
      this.#isParsed = true;
    }
    return this;
  }

  get blocks() {
    if (!this.#isParsed) this.#parse();
    return [...this.#done, ...this.#last];
  }

  #parse() {
    this.#isParsed = true;
    this.#last = parseBlocks(this.#rest);
    if (this.#last.length < 2) return;
    this.#done.push(...this.#last.slice(0, -1));
    this.#last = this.#last.slice(-1);
    this.#rest = this.#rest.split("\n").slice(this.#last[0].line).join("\n");
    this.#last[0].line = 0;
  }
}
