// Where in the page somebody is: what stands behind the #.

import { Cell } from "./cell.js";

export const route = new Cell(read());
export const drawer = new Cell(false); // on a narrow screen: whether the side is open

function read() {
  const [name = "", argument = ""] = location.hash.replace(/^#\/?/, "").split("/");
  return { name, argument: decodeURIComponent(argument) };
}

window.addEventListener("hashchange", () => route.set(read()));

export function go(path, isReplacement = false) {
  if (isReplacement) {
    history.replaceState(null, "", `#${path}`);
    route.set(read());
  } else {
    location.hash = path;
  }
}
