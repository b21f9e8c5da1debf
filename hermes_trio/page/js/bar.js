// The bar above every view: its title, its actions, and on a narrow screen the way to the side and to a new chat.

import { Icon } from "./bits.js";
import { useCell } from "./cell.js";
import { html } from "./lib.js";
import { drawer } from "./route.js";

export function Bar({ title, children }) {
  const isOpen = useCell(drawer);
  return html`<div class="bar">
    <button type="button" class="quiet icon-button menu" aria-label="Menu" aria-expanded=${isOpen} aria-controls="side" onClick=${() => drawer.set(true)}><${Icon} name="menu" /></button>
    <h1 tabindex="-1">${title}</h1>
    ${children}
    <a class="button quiet icon-button menu" href="#/" aria-label="New chat" title="New chat"><${Icon} name="plus" /></a>
  </div>`;
}
