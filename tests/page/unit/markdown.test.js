import assert from "node:assert/strict";
import { test } from "node:test";
import { ansiPieces } from "../../../hermes_trio/page/js/ansi.js";
import { parseHighlighted } from "../../../hermes_trio/page/js/highlight.js";
import { csvOf, Doc, isSafe, parseBlocks } from "../../../hermes_trio/page/js/markdown.js";

function types(source) {
  return parseBlocks(source).map((block) => block.type);
}

// The types and texts of what stands in the only paragraph of a text.
function inline(source) {
  const [{ children: [{ children }] }] = parseBlocks(source);
  return children.map(({ type, text, attrs }) => [type, attrs.href ?? attrs.src ?? text]);
}

// -- blocks --

test("the kinds of blocks", () => {
  const source = "# Title\n\npara\nmore\n\n- a\n- b\n\n1. x\n2. y\n\n> quote\n\n---\n\n| a | b |\n|---|--:|\n| 1 | 2 |\n\n```py\ncode\n```\n\n$$\nx\n$$";
  assert.deepEqual(types(source), ["heading", "paragraph", "bullet_list", "ordered_list", "blockquote", "hr", "table", "fence", "math_block"]);
});

test("a table as CSV", () => {
  const [table] = parseBlocks('| a | b |\n|:--|:-:|\n| 1, 2 | say **"hi"** |\n| x \\| y | `z` |');
  assert.equal(csvOf(table), 'a,b\n"1, 2","say ""hi"""\nx | y,z');
});

// -- inline --

test("addresses that could run something are no links", () => {
  for (const url of ["javascript:alert(1)", "JaVaScRiPt:alert(1)", "data:text/html,x", "vbscript:x", " javascript:x", "java\nscript:x", "//x.test", "file:///etc"]) {
    assert.equal(isSafe(url), false, url);
    const found = JSON.stringify(parseBlocks(`[x](${url}) ![y](${url}) <${url}>`));
    assert.ok(!/"type":"(link|image)"/.test(found), url);
  }
});

test("links and pictures", () => {
  assert.deepEqual(inline("see https://x.test/a?b=1, then").map(([, value]) => value).filter((value) => value.startsWith("http")), ["https://x.test/a?b=1"]);
  assert.deepEqual(inline("example.com is no link"), [["text", "example.com is no link"]]);
  assert.equal(inline("![dot](data:image/png;base64,iVBORw0KGgo=)")[0][0], "image");
  assert.notEqual(inline("![svg](data:image/svg+xml;base64,PHN2Zz4=)")[0][0], "image");
});

test("HTML stays text", () => {
  assert.deepEqual(inline("<img src=x onerror=alert(1)>"), [["text", "<img src=x onerror=alert(1)>"]]);
});

test("formulas, and what only looks like one", () => {
  const formulas = (source) => inline(source).filter(([type]) => type === "math_inline").map(([, text]) => text);
  assert.deepEqual(formulas("a $x^2$, \\(y\\) and $$z$$"), ["x^2", "y", "z"]);
  for (const plain of ["$5 and $6", "from $ 5 to 6$", "US$5, A$7", "$open", "\\$x$", "a$$b"]) assert.deepEqual(formulas(plain), [], plain);
  assert.deepEqual(types("\\[\na\nb\n\\]"), ["math_block"]);
  assert.deepEqual(types("$$\nopen\n\nafter"), ["paragraph", "paragraph"]);
});

// -- documents that grow --

const SAMPLE = "# A\n\nSome *text* here\nand there.\n\n- one\n- two\n  - in\n\n  more\n\n```js\nlet a = 1;\n\n\nb\n```\n\n$$\nx\n$$\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n> q\n> r\n\n[link] and[^1]\n\n[link]: https://x.test\n\n[^1]: note\n\nend\n";

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
    assert.deepEqual(bare(doc.finish().blocks), whole, `by ${size}`);
    assert.equal(doc.text, SAMPLE);
  }
});

test("blocks that are done stay the same objects", () => {
  const doc = new Doc().append("one\n\ntwo\n\nthree");
  const [first, second] = doc.blocks;
  doc.append(" more\n\nfour");
  assert.equal(doc.blocks[0], first);
  assert.equal(doc.blocks[1], second);
  doc.finish();
  assert.equal(doc.blocks[0], first);
});

test("hostile text takes no time", () => {
  const began = performance.now();
  for (const piece of ["*", "_", "`", "[", "![", "<", "~~", "**a", "[a](", "- ", "> ", "| ", "`` ` ", "\\", "http://", "*a_", "*a ", "_a ", "~~a ", "`a`` ", "$", "$a ", "$$", "\\(", "[^a"]) {
    parseBlocks(piece.repeat(5_000));
    parseBlocks(`${piece}\n`.repeat(500));
  }
  assert.ok(performance.now() - began < 8000, `${performance.now() - began} ms`);
});

// -- code and terminals --

test("what highlight.js returns becomes a tree", () => {
  const source = '<span class="hljs-keyword">if</span> a &lt; <span class="x"><span class="y">&quot;b&quot;</span></span>';
  assert.deepEqual(parseHighlighted(source), [
    { name: "hljs-keyword", children: ["if"] }, " a ", "<", " ", { name: "x", children: [{ name: "y", children: ['"', "b", '"'] }] },
  ]);
});

test("colours of a terminal", () => {
  assert.deepEqual(ansiPieces("a\x1b[1;31mb\x1b[0mc\x1b[38;5;200md\x1b[2Ke\x1b]0;title\x07f"), [
    { text: "a", classes: "" }, { text: "b", classes: "ansi-bold ansi-red" }, { text: "c", classes: "" }, { text: "d", classes: "" },
    { text: "e", classes: "" }, { text: "f", classes: "" },
  ]);
  assert.deepEqual(ansiPieces("10%\r20%\r\nnext\x07\x08"), [{ text: "20%\nnext", classes: "" }]);
});
