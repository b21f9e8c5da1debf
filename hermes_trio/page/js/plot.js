// One small plot. uPlot draws on a canvas, so its colours are asked from the style sheet and asked again when they change.

import { Cell, useCell } from "./cell.js";
import { html, useEffect, useLayoutEffect, useRef } from "./lib.js";

const HEIGHT = 130;
const DIGIT = 6.6; // pixels: the widest character of the axes
const SHORTEST = 120; // seconds on the axis
const FEW = 60; // samples: so few are shown as points, as a line may be too short to see
const MINUTES = [1, 2, 5, 10, 15, 30, 60].map((minutes) => 60 * minutes);
const BINARY = Array.from({ length: 50 }, (_, power) => 2 ** power);
export const theme = new Cell(0); // counts changes of light and dark

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => theme.set(theme.value + 1));

// plot: { name, note, show, least, series: { name: field of a sample } }. `show` makes a text of a value, `least` is what
// the axis has room for at least, `span` how many seconds are shown.
export function Plot({ plot, samples, span }) {
  const place = useRef(null);
  const drawn = useRef(null);
  const look = useCell(theme);
  const fields = Object.values(plot.series);
  const data = () => [samples.map((sample) => sample.at), ...fields.map((field) => samples.map((sample) => sample[field]))];
  useLayoutEffect(() => {
    const chart = new window.uPlot(options(plot, span, place.current), data(), place.current);
    drawn.current = chart;
    const watcher = new ResizeObserver(() => chart.setSize({ width: place.current.clientWidth, height: HEIGHT }));
    watcher.observe(place.current);
    return () => {
      watcher.disconnect();
      chart.destroy();
    };
  }, [plot, look, span]);
  useEffect(() => drawn.current?.setData(data()), [samples]);
  const names = Object.keys(plot.series);
  const values = fields.map((field, n) => [names[n], shown(plot, samples.findLast((sample) => sample[field] !== null)?.[field])]);
  return html`<figure class="plot"><figcaption><strong>${plot.name}</strong>${plot.note && html`<span class="faint">${plot.note}</span>`}
    <span class="now time">${values.map(([name, value], n) => html`<span key=${name}>${names.length > 1 && html`<span class="faint series-${n}">${name}</span> `}${value}</span>`)}</span></figcaption>
    <div class="canvas" ref=${place} role="img" aria-label=${`${plot.name}: ${values.map((pair) => pair.join(" ")).join(", ")}`}></div></figure>`;
}

function shown(plot, value) {
  return value == null ? "–" : plot.show(value);
}

// A server that has just started fills the plot all the same.
function timeRange(times, span) {
  const end = times.at(-1) ?? Date.now() / 1000;
  return [end - Math.min(span, Math.max(SHORTEST, end - (times[0] ?? end))), end];
}

function clock(at) {
  return new Date(at * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hour12: false });
}

function options(plot, span, place) {
  const style = getComputedStyle(place);
  const colour = (name) => resolved(place, name) || style.color;
  const lines = [{ stroke: colour("--accent"), fill: colour("--tint") }, { stroke: colour("--soft"), dash: [3, 3] }];
  const axis = { stroke: colour("--faint"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
  const widest = (_, texts) => 12 + DIGIT * Math.max(1, ...(texts ?? []).map((text) => text.length));
  return {
    width: place.clientWidth || 300,
    height: HEIGHT,
    padding: [8, 20, 0, 0], // the last time and the highest value stand out by half of their size
    legend: { show: false },
    cursor: { show: false },
    scales: { x: { range: (chart) => timeRange(chart.data[0], span) }, y: { range: (_, low, high) => [0, Math.max(plot.least, (high ?? 0) * 1.1)] } },
    axes: [{ ...axis, size: 24, space: 60, incrs: MINUTES, values: (_, ticks) => ticks.map(clock) }, { ...axis, size: widest, space: 30, ...(plot.binary ? { incrs: BINARY } : {}), values: (_, ticks) => ticks.map(plot.show) }],
    series: [{}, ...Object.keys(plot.series).map((label, n) => ({ label, ...lines[n], width: 1.5, points: { size: 3, show: (_, series, first, last) => last - first < FEW }, spanGaps: false }))],
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
