// Markdown inside a paragraph: text to a tree of plain objects. Nothing here makes HTML; the view makes nodes.
// One pass; a delimiter that is not closed is looked for once, so no text takes more than linear time per delimiter.

const SPECIAL = /[\\`*_~[!<\n]|https?:\/\//g;
const ESCAPABLE = /[!-/:-@[-`{-~]/;
const BARE_LINK = /https?:\/\/[^\s<>"'`]+/y;
const ANGLE_LINK = /<((?:https?:\/\/|mailto:)[^\s<>]+)>/y;
const LINK = /(!?)\[((?:[^[\]\\]|\\.|\[[^[\]]{0,500}\]){0,1000})\]\(\s*<?([^\s()<>]*(?:\([^\s()]*\)[^\s()<>]*)*)>?(?:\s+"[^"]{0,300}")?\s*\)/y;
const WORD = /[\p{L}\p{N}]/u;
const DEEPEST = 8;
const MARKS = { "**": "strong", __: "strong", "~~": "del", "*": "em", _: "em" };

export function parseInline(text, depth = 0) {
  return new Inline(text, depth).parse();
}

class Inline {
  constructor(text, depth) {
    this.text = text;
    this.depth = depth;
    this.nodes = [];
    this.plainFrom = 0;
    this.unclosed = new Set(); // delimiters that nothing closes any more
  }

  parse() {
    SPECIAL.lastIndex = 0;
    let at = 0;
    for (;;) {
      SPECIAL.lastIndex = at;
      const found = SPECIAL.exec(this.text);
      if (!found) break;
      at = this.special(found.index) ?? found.index + found[0].length;
    }
    this.plain(this.text.length);
    return this.nodes;
  }

  // Where to go on when something was made of the text here.
  special(at) {
    switch (this.text[at]) {
      case "\\": return this.escape(at);
      case "`": return this.code(at);
      case "\n": return this.line(at);
      case "[": case "!": return this.link(at);
      case "<": return this.pattern(ANGLE_LINK, at, (found) => [found[1], found[1].replace(/^mailto:/, "")]);
      case "h": return this.bare(at);
      default: return this.emphasis(at);
    }
  }

  plain(end) {
    if (end > this.plainFrom) this.nodes.push({ type: "text", text: this.text.slice(this.plainFrom, end) });
  }

  add(at, end, node) {
    this.plain(at);
    this.nodes.push(node);
    this.plainFrom = end;
    return end;
  }

  escape(at) {
    const next = this.text[at + 1] ?? "";
    if (next === "\n") return this.add(at, at + 2, { type: "break" });
    return ESCAPABLE.test(next) ? this.add(at, at + 2, { type: "text", text: next }) : undefined;
  }

  line(at) {
    return / {2,}$/.test(this.text.slice(Math.max(0, at - 3), at)) ? this.add(at, at + 1, { type: "break" }) : undefined;
  }

  code(at) {
    const fence = /^`+/.exec(this.text.slice(at, at + 20))[0];
    const end = this.closing(fence, at + fence.length, (found) => this.text[found + fence.length] !== "`");
    if (end < 0) return at + fence.length;
    const inside = this.text.slice(at + fence.length, end).replace(/\n/g, " ");
    const text = /^ .*[^ ].* $/.test(inside) ? inside.slice(1, -1) : inside;
    return this.add(at, end + fence.length, { type: "code", text });
  }

  closing(mark, from, fits) {
    if (this.unclosed.has(mark)) return -1;
    let found = this.text.indexOf(mark, from);
    while (found >= 0 && !fits(found)) found = this.text.indexOf(mark, found + mark.length);
    // What fits depends on its place alone, so no later delimiter will find more.
    if (found < 0) this.unclosed.add(mark);
    return found;
  }

  emphasis(at) {
    const double = this.text.slice(at, at + 2);
    const mark = double in MARKS ? double : this.text[at];
    if (!(mark in MARKS)) return undefined;
    const first = at + mark.length;
    if (this.depth >= DEEPEST || !/\S/.test(this.text[first] ?? " ") || this.isInWord(mark, at - 1)) return first;
    const end = this.closing(mark, first + 1, (found) => this.closes(mark, found));
    if (end < 0) return first;
    const children = parseInline(this.text.slice(first, end), this.depth + 1);
    return this.add(at, end + mark.length, { type: MARKS[mark], children });
  }

  closes(mark, at) {
    if (!/\S/.test(this.text[at - 1]) || this.isInWord(mark, at + mark.length)) return false;
    const twin = mark.length === 1 && (this.text[at + 1] === mark || this.text[at - 1] === mark);
    return !twin;
  }

  // snake_case is no emphasis.
  isInWord(mark, beside) {
    return mark[0] === "_" && WORD.test(this.text[beside] ?? "");
  }

  link(at) {
    if (this.depth >= DEEPEST || (this.text[at] === "!" && this.text[at + 1] !== "[")) return undefined;
    LINK.lastIndex = at;
    const found = LINK.exec(this.text);
    if (!found) return undefined;
    const [whole, bang, label, url] = found;
    const node = bang ? image(label, url) : linked(url, parseInline(label, this.depth + 1));
    return this.add(at, at + whole.length, node);
  }

  pattern(pattern, at, split) {
    pattern.lastIndex = at;
    const found = pattern.exec(this.text);
    if (!found) return undefined;
    const [url, text] = split(found);
    return this.add(at, at + found[0].length, linked(url, [{ type: "text", text }]));
  }

  bare(at) {
    if (WORD.test(this.text[at - 1] ?? "")) return undefined;
    BARE_LINK.lastIndex = at;
    const found = BARE_LINK.exec(this.text);
    if (!found) return undefined;
    let url = found[0].replace(/[.,;:!?*_~\]]+$/, "");
    if (url.endsWith(")") && !url.includes("(")) url = url.slice(0, -1);
    return this.add(at, at + url.length, linked(url, [{ type: "text", text: url }]));
  }
}

function linked(url, children) {
  return isSafe(url) ? { type: "link", url, children } : { type: "span", children };
}

// Pictures from elsewhere would tell others who reads what: they become links. Those that came with the text are shown.
function image(label, url) {
  if (/^data:image\/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+$/.test(url)) return { type: "image", url, label };
  return linked(url, [{ type: "text", text: label || url }]);
}

export function isSafe(url) {
  return /^(https?:\/\/|mailto:)/i.test(url) && !/[\u0000-\u0020]/.test(url);
}
