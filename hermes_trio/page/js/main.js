import { App, applyTheme } from "./app.js";
import { html, render } from "./lib.js";

applyTheme();
render(html`<${App} />`, document.getElementById("page"));
