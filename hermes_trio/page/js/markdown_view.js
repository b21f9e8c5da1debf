// Markdown on the screen: nodes only, never HTML in a string.

import { CopyButton } from "./bits.js";
import { parseInline } from "./inline.js";
import { Component, html } from "./lib.js";

const PIECE = 1000; // characters of a text node: a long paragraph that grows changes its last node only

export function Markdown({ doc }) {
  return html`<div class="markdown">${doc.blocks.map((block, number) => html`<${Block} key=${number} block=${block} />`)}</div>`;
}

class Block extends Component {
  shouldComponentUpdate(next) {
    return next.block !== this.props.block;
  }

  render({ block }) {
    return VIEWS[block.type](block);
  }
}

function blocks(list) {
  return list.map((block, number) => html`<${Block} key=${number} block=${block} />`);
}

const VIEWS = {
  paragraph: ({ text }) => html`<p>${inline(text)}</p>`,
  heading: ({ level, text }) => html`<div class="heading h${level}" role="heading" aria-level=${Math.min(6, level + 2)}>${inline(text)}</div>`,
  rule: () => html`<hr />`,
  quote: (block) => html`<blockquote>${blocks(block.blocks)}</blockquote>`,
  code: ({ language, text, isOpen }) => html`<div class="code">
    <div class="code-head"><span>${language || "text"}</span><${CopyButton} text=${text} title="Copy this code" /></div>
    <pre tabindex="0" role="group" aria-label=${`Code, ${language || "text"}`} aria-busy=${isOpen}><code>${pieces(text)}</code></pre>
  </div>`,
  list: ({ ordered, start, items }) => ordered
    ? html`<ol start=${start}>${items.map(item)}</ol>`
    : html`<ul>${items.map(item)}</ul>`,
  table: ({ head, align, rows }) => html`<div class="table" tabindex="0" role="group" aria-label="Table"><table>
    <thead><tr>${head.map((cell, n) => html`<th scope="col" class=${SIDES[align[n]]}>${inline(cell)}</th>`)}</tr></thead>
    <tbody>${rows.map((row) => html`<tr>${row.map((cell, n) => html`<td class=${SIDES[align[n]]}>${inline(cell)}</td>`)}</tr>`)}</tbody>
  </table></div>`,
};

const SIDES = { l: "left", r: "right", lr: "middle" };

function item({ blocks: inside, task }) {
  const isTight = inside.length > 0 && inside[0].type === "paragraph";
  const first = isTight ? html`<span>${inline(inside[0].text)}</span>` : null;
  const box = task === null ? null : html`<input type="checkbox" disabled checked=${task} aria-label=${task ? "done" : "to do"} /> `;
  return html`<li class=${task === null ? "" : "task"}>${box}${first}${blocks(isTight ? inside.slice(1) : inside)}</li>`;
}

function inline(text) {
  return nodes(parseInline(text));
}

function nodes(tree) {
  return tree.map((node) => MARKS[node.type](node));
}

function pieces(text) {
  if (text.length <= PIECE) return text;
  return Array.from({ length: Math.ceil(text.length / PIECE) }, (_, n) => text.slice(n * PIECE, (n + 1) * PIECE));
}

const MARKS = {
  text: ({ text }) => pieces(text),
  span: ({ children }) => html`<span>${nodes(children)}</span>`,
  code: ({ text }) => html`<code>${text}</code>`,
  strong: ({ children }) => html`<strong>${nodes(children)}</strong>`,
  em: ({ children }) => html`<em>${nodes(children)}</em>`,
  del: ({ children }) => html`<del>${nodes(children)}</del>`,
  break: () => html`<br />`,
  image: ({ url, label }) => html`<img src=${url} alt=${label} />`,
  link: ({ url, children }) => html`<a href=${url} target="_blank" rel="noopener noreferrer">${nodes(children)}</a>`,
};
