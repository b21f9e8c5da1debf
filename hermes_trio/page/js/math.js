// Formulas in Markdown, as models write them: $x$, $$x$$, \(x\) and \[x\]. A rule for markdown-it, and the view that KaTeX
// draws as MathML once it is loaded.

import { html, useLayoutEffect, useRef } from "./lib.js";

const DELIMITERS = [["$$", "$$", true], ["\\[", "\\]", true], ["\\(", "\\)", false], ["$", "$", false]];
const MOST = 5000; // characters of a formula; what is longer is no formula

export function math(parser) {
  parser.inline.ruler.before("escape", "math", inlineMath);
  parser.block.ruler.before("fence", "math_block", blockMath, { alt: ["paragraph", "blockquote", "list"] });
}

function inlineMath(state, isSilent) {
  const code = state.src.charCodeAt(state.pos);
  if (code !== 0x24 /* $ */ && code !== 0x5c /* \ */) return false;
  for (const [open, close, isDisplay] of DELIMITERS) {
    if (!state.src.startsWith(open, state.pos)) continue;
    const from = state.pos + open.length;
    const to = closing(state.src.slice(0, Math.min(state.posMax, from + MOST)), from, close);
    if (to < 0) return false;
    if (!isSilent) add(state, "math_inline", state.src.slice(from, to), isDisplay);
    state.pos = to + close.length;
    return true;
  }
  return false;
}

// Where a formula ends; -1 if it does not. Prices are no formulas: "$5 and $6" has a space before its second sign.
function closing(text, from, close) {
  const to = text.indexOf(close, from);
  if (to <= from) return -1;
  if (close !== "$") return to;
  const isPrice = /\s/.test(text[from]) || /\s/.test(text[to - 1]) || /\d/.test(text[to + 1] ?? "") || text.slice(from, to).includes("\n");
  return isPrice ? -1 : to;
}

// A formula that stands in lines of its own.
function blockMath(state, first, last, isSilent) {
  const begin = state.bMarks[first] + state.tShift[first];
  const found = DELIMITERS.find(([open, , isDisplay]) => isDisplay && state.src.startsWith(open, begin));
  if (!found) return false;
  const [open, close] = found;
  let line = first;
  for (; line < last; line += 1) {
    const from = line === first ? begin + open.length : state.bMarks[line];
    const text = state.src.slice(from, state.eMarks[line]).trimEnd();
    if (text.endsWith(close)) break;
    if (line > first && text === "") return false;
  }
  if (line >= last) return false;
  const content = state.src.slice(begin + open.length, state.eMarks[line]).trimEnd().slice(0, -close.length);
  if (!content.trim() || content.length > MOST || content.includes(close)) return false;
  if (!isSilent) {
    add(state, "math_block", content.trim(), true).map = [first, line + 1];
    state.line = line + 1;
  }
  return true;
}

function add(state, type, content, isDisplay) {
  const token = state.push(type, "math", 0);
  token.content = content;
  token.meta = { isDisplay };
  return token;
}

let loading = null;

function katex() {
  loading ??= import("../vendor/katex.js").then(() => window.katex);
  return loading;
}

export function Formula({ text, isDisplay }) {
  const place = useRef(null);
  useLayoutEffect(() => {
    let isGone = false;
    void katex().then((library) => {
      if (!isGone) library.render(text, place.current, { displayMode: isDisplay, output: "mathml", throwOnError: false, trust: false, maxExpand: 200, maxSize: 20 });
    }).catch(() => {}); // the source stays
    return () => { isGone = true; };
  }, [text, isDisplay]);
  return html`<span class=${isDisplay ? "formula display" : "formula"} ref=${place}>${text}</span>`;
}
