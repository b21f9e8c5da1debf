// Markdown on the screen: nodes only, never HTML in a string. What the parser may return and is not named here shows its text.

import { CopyButton, Icon } from "./bits.js";
import { Code } from "./highlight.js";
import { Component, html, useState } from "./lib.js";
import { csvOf, isImage, isLink } from "./markdown.js";
import { Formula } from "./math.js";

const PIECE = 1000; // characters of a text node: a long paragraph that grows changes its last node only

export function Markdown({ doc }) {
  const { blocks, isFinished } = doc;
  const last = blocks.length - 1;
  return html`<div class="markdown">${blocks.map((block, number) => html`<${Block} key=${number} block=${block} isOpen=${number === last && !isFinished} />`)}</div>`;
}

class Block extends Component {
  shouldComponentUpdate(next) {
    return next.block !== this.props.block || next.isOpen !== this.props.isOpen;
  }

  render({ block, isOpen }) {
    return view(block, isOpen);
  }
}

// `isOpen`: more may follow inside it.
function view(node, isOpen = false) {
  return (VIEWS[node.type] ?? plain)(node, isOpen);
}

function views(nodes) {
  return nodes.map((node) => view(node));
}

function plain({ text, children }) {
  return children.length ? html`<span>${views(children)}</span>` : pieces(text);
}

function pieces(text) {
  if (text.length <= PIECE) return text;
  return Array.from({ length: Math.ceil(text.length / PIECE) }, (_, n) => text.slice(n * PIECE, (n + 1) * PIECE));
}

// Elements that need nothing but their children.
function element(tag) {
  return ({ children }) => html`<${tag}>${views(children)}</${tag}>`;
}

const VIEWS = {
  inline: ({ children }) => views(children),
  text: ({ text }) => pieces(text),
  paragraph: ({ children, isHidden }) => (isHidden ? html`<span>${views(children)}</span>` : html`<p>${views(children)}</p>`),
  heading: ({ tag, children }) => html`<div class="heading ${tag}" role="heading" aria-level=${Math.min(6, Number(tag[1]) + 2)}>${views(children)}</div>`,
  hr: () => html`<hr />`,
  blockquote: element("blockquote"),
  bullet_list: element("ul"),
  ordered_list: ({ attrs, children }) => html`<ol start=${attrs.start}>${views(children)}</ol>`,
  list_item: listItem,
  fence: ({ info, text }, isOpen) => code(text, info.trim().split(/\s+/)[0], isOpen),
  code_block: ({ text }, isOpen) => code(text, "", isOpen),
  table: (node) => html`<${Table} node=${node} />`,
  thead: element("thead"), tbody: element("tbody"), tr: element("tr"),
  th: ({ attrs, children }) => html`<th scope="col" class=${side(attrs)}>${views(children)}</th>`,
  td: ({ attrs, children }) => html`<td class=${side(attrs)}>${views(children)}</td>`,
  strong: element("strong"), em: element("em"), s: element("del"),
  code_inline: ({ text }) => html`<code>${text}</code>`,
  softbreak: () => "\n",
  hardbreak: () => html`<br />`,
  link: ({ attrs, children }) => (isLink(attrs.href) ? link(attrs.href, views(children)) : html`<span>${views(children)}</span>`),
  image: ({ attrs, text }) => (isImage(attrs.src) ? html`<${Picture} url=${attrs.src} label=${text} />` : isLink(attrs.src) ? link(attrs.src, text || attrs.src) : text),
  math_inline: ({ text, meta }) => html`<${Formula} text=${text} isDisplay=${meta.isDisplay} />`,
  math_block: ({ text }) => html`<${Formula} text=${text} isDisplay=${true} />`,
  footnote_ref: ({ meta }) => html`<sup>[${meta.id + 1}]</sup>`,
  footnote_block: ({ children }) => html`<section class="footnotes" aria-label="Footnotes"><ol>${views(children)}</ol></section>`,
  footnote: element("li"),
  footnote_anchor: () => null,
};

function link(url, children) {
  return html`<a href=${url} target="_blank" rel="noopener noreferrer">${children}</a>`;
}

const TASK = /^\[([ xX])\] /;

function listItem({ children }) {
  const first = children[0]?.type === "paragraph" ? children[0].children[0]?.children[0] : undefined;
  const task = first?.type === "text" ? TASK.exec(first.text) : null;
  if (!task) return html`<li>${views(children)}</li>`;
  const isDone = task[1] !== " ";
  const [{ children: [line], ...paragraph }, ...rest] = children;
  const words = { ...line, children: [{ ...first, text: first.text.slice(4) }, ...line.children.slice(1)] };
  return html`<li class="task"><input type="checkbox" disabled checked=${isDone} aria-label=${isDone ? "done" : "to do"} /> ${views([{ ...paragraph, isHidden: true, children: [words] }, ...rest])}</li>`;
}

function code(source, language, isOpen) {
  const text = source.replace(/\n$/, "");
  return html`<div class="code">
    <div class="code-head"><span>${language || "text"}</span><${CopyButton} text=${text} title="Copy this code" /></div>
    <pre tabindex="0" role="group" aria-label=${`Code, ${language || "text"}`} aria-busy=${isOpen}><${Code} text=${text} language=${language} isOpen=${isOpen} /></pre>
  </div>`;
}

function side(attrs) {
  return /right|center/.exec(attrs.style ?? "")?.[0].replace("center", "middle") ?? "";
}

function Table({ node }) {
  return html`<div class="sheet"><div class="table" tabindex="0" role="group" aria-label="Table"><table>${views(node.children)}</table></div>
    <${CopyButton} label="CSV" text=${() => csvOf(node)} title="Copy the table as CSV" /></div>`;
}

function Picture({ url, label }) {
  const [isOpen, setOpen] = useState(false);
  const show = (dialog) => dialog && !dialog.open && dialog.showModal();
  return html`<button type="button" class="picture" onClick=${() => setOpen(true)} aria-label=${`Enlarge: ${label || "image"}`}><img src=${url} alt=${label} /></button>
    ${isOpen && html`<dialog class="viewer" ref=${show} onClose=${() => setOpen(false)} onClick=${(event) => event.currentTarget.close()} aria-label=${label || "Image"}>
      <img src=${url} alt=${label} /><form method="dialog"><button class="icon-button" aria-label="Close"><${Icon} name="x" /></button></form></dialog>`}`;
}
