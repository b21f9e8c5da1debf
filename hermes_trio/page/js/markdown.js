// Markdown as blocks: text to plain objects, line by line. A document that grows parses only its last block again.

const FENCE = /^( {0,3})(`{3,}|~{3,})\s*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:\s+(.*?))?(?:\s+#+)?\s*$/;
const RULE = /^ {0,3}(?:(?:\*\s*){3,}|(?:-\s*){3,}|(?:_\s*){3,})$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])(?:( {1,4})(?! )|( )(?= )|$)/;
const TABLE_RULE = /^ {0,3}\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$/;
const DEEPEST = 8;

export function parseBlocks(text, depth = 0) {
  const lines = text.split("\n");
  const blocks = [];
  let at = 0;
  while (at < lines.length) {
    if (isBlank(lines[at])) {
      at += 1;
      continue;
    }
    const [block, next] = blockAt(lines, at, depth);
    blocks.push({ ...block, line: at });
    at = next;
  }
  return blocks;
}

function blockAt(lines, at, depth) {
  const line = lines[at];
  const fence = FENCE.exec(line);
  if (fence) return code(lines, at, fence);
  const heading = HEADING.exec(line);
  if (heading) return [{ type: "heading", level: heading[1].length, text: heading[2] ?? "" }, at + 1];
  if (RULE.test(line)) return [{ type: "rule" }, at + 1];
  if (depth < DEEPEST && QUOTE.test(line)) return quote(lines, at, depth);
  if (depth < DEEPEST && ITEM.test(line)) return list(lines, at, depth);
  if (isTable(lines, at)) return table(lines, at);
  return paragraph(lines, at);
}

function isBlank(line) {
  return line.trim() === "";
}

function code(lines, at, [, indent, mark, info]) {
  const closing = new RegExp(`^ {0,3}${mark[0]}{${mark.length},}\\s*$`);
  const dedent = new RegExp(`^ {0,${indent.length}}`);
  let end = at + 1;
  while (end < lines.length && !closing.test(lines[end])) end += 1;
  const inside = lines.slice(at + 1, end);
  const text = (indent ? inside.map((line) => line.replace(dedent, "")) : inside).join("\n");
  return [{ type: "code", language: info.trim().split(/\s+/)[0], text, isOpen: end >= lines.length }, end + 1];
}

function quote(lines, at, depth) {
  let end = at;
  while (end < lines.length && (QUOTE.test(lines[end]) || (!isBlank(lines[end]) && !startsBlock(lines[end])))) end += 1;
  const inside = lines.slice(at, end).map((line) => line.replace(QUOTE, "")).join("\n");
  return [{ type: "quote", blocks: parseBlocks(inside, depth + 1) }, end];
}

function startsBlock(line) {
  return FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line) || ITEM.test(line);
}

function list(lines, at, depth) {
  const first = ITEM.exec(lines[at]);
  const ordered = /\d/.test(first[2]);
  const kind = first[2].slice(-1);
  const items = [];
  while (at < lines.length) {
    const found = ITEM.exec(lines[at]);
    if (!found || found[2].slice(-1) !== kind || RULE.test(lines[at])) break;
    const [item, next] = listItem(lines, at, found, depth);
    items.push(item);
    at = next;
    const beyond = skipBlank(lines, at);
    if (beyond > at && beyond < lines.length && ITEM.test(lines[beyond])) at = beyond;
  }
  return [{ type: "list", ordered, start: ordered ? parseInt(first[2], 10) : 1, items }, at];
}

function skipBlank(lines, at) {
  while (at < lines.length && isBlank(lines[at])) at += 1;
  return at;
}

function listItem(lines, at, found, depth) {
  const width = found[0].length || found[1].length + found[2].length + 1;
  const inside = [lines[at].slice(found[0].length)];
  let end = at + 1;
  for (; end < lines.length; end += 1) {
    const line = lines[end];
    const isInside = /^ */.exec(line)[0].length >= Math.min(width, 4) || (isBlank(line) && continues(lines, end, width));
    const isLazy = !isBlank(line) && !startsBlock(line) && !isBlank(lines[end - 1]);
    if (!isInside && !isLazy) break;
    inside.push(line.replace(new RegExp(`^ {0,${width}}`), ""));
  }
  const task = /^\[([ xX])\]\s+/.exec(inside[0]);
  if (task) inside[0] = inside[0].slice(task[0].length);
  const blocks = parseBlocks(inside.join("\n"), depth + 1);
  return [{ blocks, task: task ? task[1] !== " " : null }, end];
}

function continues(lines, at, width) {
  const beyond = skipBlank(lines, at);
  return beyond < lines.length && /^ */.exec(lines[beyond])[0].length >= Math.min(width, 4) && beyond - at < 3;
}

function isTable(lines, at) {
  return lines[at].includes("|") && at + 1 < lines.length && lines[at + 1].includes("-") && TABLE_RULE.test(lines[at + 1])
    && cells(lines[at]).length === cells(lines[at + 1]).length;
}

function cells(line) {
  const inside = line.trim().replace(/^\||(?<!\\)\|$/g, "");
  return inside.split(/(?<!\\)\|/).map((cell) => cell.trim().replace(/\\\|/g, "|"));
}

function table(lines, at) {
  const head = cells(lines[at]);
  const align = cells(lines[at + 1]).map((cell) => `${cell.startsWith(":") ? "l" : ""}${cell.endsWith(":") ? "r" : ""}`);
  let end = at + 2;
  while (end < lines.length && !isBlank(lines[end]) && lines[end].includes("|")) end += 1;
  const rows = lines.slice(at + 2, end).map(cells).map((row) => head.map((_, n) => row[n] ?? ""));
  return [{ type: "table", head, align, rows }, end];
}

function paragraph(lines, at) {
  let end = at + 1;
  while (end < lines.length && !isBlank(lines[end]) && !interrupts(lines, end)) end += 1;
  return [{ type: "paragraph", text: lines.slice(at, end).map((line) => line.trimStart()).join("\n") }, end];
}

function interrupts(lines, at) {
  const line = lines[at];
  const item = ITEM.exec(line);
  if (item) return !/\d/.test(item[2]) || /^1[.)]$/.test(item[2]);
  return startsBlock(line) || isTable(lines, at);
}

// A text that only grows. Blocks that are behind the last one never change again, nor do the objects that stand for them.
export class Doc {
  #done = [];
  #rest = "";
  #last = [];
  #isParsed = true;
  text = "";

  append(text) {
    this.text += text;
    this.#rest += text;
    this.#isParsed = false;
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
