// The output of a terminal: colours become classes, whatever else it would do is left out.

const ESCAPE = /\x1b(?:\[([0-9;:]*)([@-~])|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])/g;
const COLOURS = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];
const STYLES = { 1: "bold", 2: "dim", 3: "italic", 4: "underline" };

// Pieces of a text: { text, classes }.
export function ansiPieces(source) {
  const pieces = [];
  let style = {};
  let from = 0;
  const add = (to) => {
    const text = overwritten(source.slice(from, to));
    if (text) pieces.push({ text, classes: Object.values(style).filter(Boolean).map((name) => `ansi-${name}`).join(" ") });
  };
  for (const found of source.matchAll(ESCAPE)) {
    add(found.index);
    from = found.index + found[0].length;
    if (found[2] === "m") style = styled(style, found[1]);
  }
  add(source.length);
  return pieces;
}

function styled(before, codes) {
  const style = { ...before };
  const numbers = codes.split(/[;:]/).map(Number);
  for (let at = 0; at < numbers.length; at += 1) {
    const code = numbers[at];
    if (code === 0) for (const name of Object.keys(style)) delete style[name];
    else if (code in STYLES) style[STYLES[code]] = STYLES[code];
    else if (code === 22) Object.assign(style, { bold: "", dim: "" });
    else if (code === 23) style.italic = "";
    else if (code === 24) style.underline = "";
    else if (code === 39) style.colour = "";
    else if (code >= 30 && code <= 37) style.colour = COLOURS[code - 30];
    else if (code >= 90 && code <= 97) style.colour = COLOURS[code - 90];
    else if (code === 38 || code === 48) at += numbers[at + 1] === 5 ? 2 : 4; // of a palette that the page does not have
  }
  return style;
}

// A carriage return begins its line again, as progress bars do. Other control characters are left out.
function overwritten(text) {
  const lines = text.replaceAll("\r\n", "\n").split("\n").map((line) => line.slice(line.lastIndexOf("\r", line.length - 2) + 1));
  return lines.join("\n").replace(/[\x00-\x08\x0b-\x1f\x7f]/g, "");
}
