// One small plot. uPlot draws on a canvas, so its colours are asked from the style sheet and asked again when they change.

import { Cell, useCell } from "./cell.js";
import { html, useEffect, useLayoutEffect, useRef } from "./lib.js";

const HEIGHT = 130;
const SHORTEST = 60; // seconds on the axis
const LONGEST = 300;
export const theme = new Cell(0); // counts changes of light and dark

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => theme.set(theme.value + 1));

export function Plot({ plot, at, columns }) {
  const place = useRef(null);
  const drawn = useRef(null);
  const look = useCell(theme);
  useLayoutEffect(() => {
    const chart = new window.uPlot(options(plot, place.current), [at, ...columns], place.current);
    drawn.current = chart;
    const watcher = new ResizeObserver(() => chart.setSize({ width: place.current.clientWidth, height: HEIGHT }));
    watcher.observe(place.current);
    return () => {
      watcher.disconnect();
      chart.destroy();
    };
  }, [plot, look]);
  useEffect(() => drawn.current?.setData([at, ...columns]), [at]);
  const values = Object.keys(plot.series).map((name, n) => `${name} ${shown(columns[n].findLast((value) => value !== null))}${plot.unit ? ` ${plot.unit}` : ""}`);
  return html`<figure class="plot"><figcaption><strong>${plot.name}</strong>${plot.note && html` <span class="faint">${plot.note}</span>`}
    <span class="now time">${values.join(", ")}</span></figcaption><div class="canvas" ref=${place} role="img" aria-label=${`${plot.name}: ${values.join(", ")}`}></div></figure>`;
}

function shown(value) {
  if (value == null) return "–";
  return value >= 100 ? value.toFixed(0) : value >= 1 ? value.toFixed(1) : value === 0 ? "0" : value.toPrecision(2);
}

function clock(at) {
  return new Date(at * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
}

function options(plot, place) {
  const style = getComputedStyle(place);
  const colour = (name) => resolved(place, name) || style.color;
  const lines = [colour("--accent"), colour("--second")];
  const axis = { stroke: colour("--faint"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif", size: 42 };
  return {
    width: place.clientWidth || 300,
    height: HEIGHT,
    legend: { show: false },
    cursor: { show: false },
    scales: { x: { range: (_, low, high) => [high - Math.min(LONGEST, Math.max(SHORTEST, high - low)), high] }, y: { range: (_, low, high) => [Math.min(0, low ?? 0), Math.max(1, (high ?? 1) * 1.1)] } },
    axes: [{ ...axis, size: 24, space: 70, values: (_, ticks) => ticks.map(clock) }, { ...axis, space: 26 }],
    series: [{}, ...Object.keys(plot.series).map((label, n) => ({ label, stroke: lines[n], width: 1.5, points: { size: 3 }, spanGaps: false }))],
  };
}

// light-dark() is known to the style sheet only, so an element has to wear the colour.
function resolved(place, name) {
  const probe = document.createElement("span");
  probe.style.color = `var(${name})`;
  place.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}
