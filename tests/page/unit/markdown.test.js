import assert from "node:assert/strict";
import { test } from "node:test";
import { isSafe, parseInline } from "../../../hermes_trio/page/js/inline.js";
import { Doc, parseBlocks } from "../../../hermes_trio/page/js/markdown.js";

const text = (value) => ({ type: "text", text: value });

function types(source) {
  return parseBlocks(source).map((block) => block.type);
}

// -- blocks --

test("the kinds of blocks", () => {
  const source = "# Title\n\npara\nmore\n\n- a\n- b\n\n1. x\n2. y\n\n> quote\n\n---\n\n| a | b |\n|---|--:|\n| 1 | 2 |\n\n```py\ncode\n```";
  assert.deepEqual(types(source), ["heading", "paragraph", "list", "list", "quote", "rule", "table", "code"]);
});

test("a code block keeps what it holds", () => {
  const [block] = parseBlocks("```js title\n# no heading\n\n- no list\n```\n");
  assert.deepEqual([block.language, block.text, block.isOpen], ["js", "# no heading\n\n- no list", false]);
});

test("a code block that is still open", () => {
  const [block] = parseBlocks("~~~\nlet x\n``` is no end");
  assert.deepEqual([block.text, block.isOpen], ["let x\n``` is no end", true]);
});

test("code inside a list item", () => {
  const [list, ...rest] = parseBlocks("- first\n  ```\n  code\n  ```\n- second\n\n  more of it\n\nafter");
  assert.deepEqual(list.items.map((item) => item.blocks.map((block) => block.type)), [["paragraph", "code"], ["paragraph", "paragraph"]]);
  assert.equal(list.items[0].blocks[1].text, "code");
  assert.deepEqual(rest.map((block) => block.text), ["after"]);
});

test("nested lists and tasks", () => {
  const [list] = parseBlocks("- [x] done\n- [ ] open\n  - inner\n- plain");
  assert.deepEqual(list.items.map((item) => item.task), [true, false, null]);
  assert.equal(list.items[1].blocks[1].type, "list");
});

test("a list begins where it says", () => {
  assert.equal(parseBlocks("7. seven\n8. eight")[0].start, 7);
});

test("years at the end of a line begin no list", () => {
  assert.deepEqual(types("It was in\n1999. A good year."), ["paragraph"]);
});

test("rows of a table have as many cells as its head", () => {
  const [table] = parseBlocks("| a | b |\n|:--|:-:|\n| 1 |\n| 1 | 2 | 3 |\n| x \\| y | `z` |");
  assert.deepEqual(table.rows, [["1", ""], ["1", "2"], ["x | y", "`z`"]]);
  assert.deepEqual(table.align, ["l", "lr"]);
});

// -- inline --

test("marks", () => {
  assert.deepEqual(parseInline("a **b *c* d** `e*f*` ~~g~~"), [
    text("a "), { type: "strong", children: [text("b "), { type: "em", children: [text("c")] }, text(" d")] },
    text(" "), { type: "code", text: "e*f*" }, text(" "), { type: "del", children: [text("g")] },
  ]);
});

test("what only looks like marks", () => {
  for (const plain of ["2 * 3 * 4", "snake_case_name", "a ** b", "**open", "_open", "`open", "[no](", "!"]) {
    assert.equal(parseInline(plain).map((node) => node.text).join(""), plain, plain);
    assert.ok(parseInline(plain).every((node) => node.type === "text"), plain);
  }
});

test("escapes and line ends", () => {
  assert.deepEqual(parseInline("\\*a\\*").map((node) => node.text).join(""), "*a*");
  assert.deepEqual(parseInline("a  \nb\\\nc").map((node) => node.type), ["text", "break", "text", "break", "text"]);
});

test("links", () => {
  assert.deepEqual(parseInline("[a *b*](https://x.test/(y) \"title\")")[0].url, "https://x.test/(y)");
  assert.deepEqual(parseInline("see https://x.test/a?b=1, then").map((node) => node.url ?? node.text), ["see ", "https://x.test/a?b=1", ", then"]);
  assert.equal(parseInline("(https://x.test)")[1].url, "https://x.test");
  assert.equal(parseInline("<mailto:a@b.test>")[0].children[0].text, "a@b.test");
});

test("addresses that could run something are no links", () => {
  for (const url of ["javascript:alert(1)", "JaVaScRiPt:alert(1)", "data:text/html,x", "vbscript:x", " javascript:x", "java\nscript:x", "//x.test", "file:///etc"]) {
    assert.equal(isSafe(url), false, url);
    assert.ok(!JSON.stringify(parseInline(`[x](${url}) ![y](${url}) <${url}>`)).includes('"link"'), url);
  }
});

test("pictures from elsewhere become links, those in the text are shown", () => {
  assert.equal(parseInline("![cat](https://x.test/cat.png)")[0].type, "link");
  assert.equal(parseInline("![dot](data:image/png;base64,iVBORw0KGgo=)")[0].type, "image");
  assert.notEqual(parseInline("![svg](data:image/svg+xml;base64,PHN2Zz4=)")[0].type, "image");
});

test("HTML stays text", () => {
  assert.deepEqual(parseInline("<img src=x onerror=alert(1)>"), [text("<img src=x onerror=alert(1)>")]);
});

// -- documents that grow --

const SAMPLE = "# A\n\nSome *text* here\nand there.\n\n- one\n- two\n  - in\n\n  more\n\n```js\nlet a = 1;\n\n\nb\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n> q\n> r\n\nend\n";

function bare(blocks) {
  return JSON.parse(JSON.stringify(blocks, (key, value) => (key === "line" ? undefined : value)));
}

test("a text that grows ends as if it had come in one piece", () => {
  const whole = bare(parseBlocks(SAMPLE));
  for (let size = 1; size <= 9; size += 1) {
    const doc = new Doc();
    for (let at = 0; at < SAMPLE.length; at += size) {
      doc.append(SAMPLE.slice(at, at + size));
      if (at % 2) void doc.blocks;
    }
    assert.deepEqual(bare(doc.blocks), whole, `by ${size}`);
    assert.equal(doc.text, SAMPLE);
  }
});

test("blocks that are done stay the same objects", () => {
  const doc = new Doc().append("one\n\ntwo\n\nthree");
  const [first, second] = doc.blocks;
  doc.append(" more\n\nfour");
  assert.equal(doc.blocks[0], first);
  assert.equal(doc.blocks[1], second);
  assert.equal(doc.blocks[2].text, "three more");
});

test("hostile text takes no time", () => {
  const began = performance.now();
  for (const piece of ["*", "_", "`", "[", "![", "<", "~~", "**a", "[a](", "- ", "> ", "| ", "`` ` ", "\\", "http://", "*a_", "*a ", "_a ", "~~a ", "`a`` "]) {
    const source = piece.repeat(20_000);
    parseInline(source);
    parseBlocks(source);
    parseBlocks(`${piece}\n`.repeat(2_000));
  }
  assert.ok(performance.now() - began < 8000, `${performance.now() - began} ms`);
});
