// Numbers and times for people.

export function seconds(value) {
  if (value == null || Number.isNaN(value)) return "";
  if (value < 0.9995) return `${Math.max(0, Math.round(value * 1000))} ms`;
  if (value < 60) return `${value.toFixed(1)} s`;
  const whole = Math.floor(value);
  const rest = String(whole % 60).padStart(2, "0");
  return whole < 3600 ? `${Math.floor(whole / 60)}:${rest}` : `${Math.floor(whole / 3600)}:${String(Math.floor(whole / 60) % 60).padStart(2, "0")}:${rest}`;
}

// The same with two digits for what takes less than ten milliseconds.
export function brief(value) {
  return value != null && value > 0 && value < 0.01 ? `${Number((value * 1000).toPrecision(2))} ms` : seconds(value);
}

// Of something that is under way: tenths would flicker.
export function running(value) {
  return value < 60 ? `${Math.max(0, Math.floor(value))} s` : seconds(value);
}

export function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (value >= 1024 && at < units.length - 1) [value, at] = [value / 1024, at + 1];
  return `${at ? value.toFixed(1) : value} ${units[at]}`;
}

export function ago(then, now) {
  const passed = Math.max(0, now - then);
  if (passed < 60) return "just now";
  if (passed < 3600) return `${Math.floor(passed / 60)} min ago`;
  if (passed < 86_400) return `${Math.floor(passed / 3600)} h ago`;
  return new Date(then * 1000).toLocaleDateString();
}

export function moment(then) {
  return then ? new Date(then * 1000).toLocaleString() : "";
}

export function count(value) {
  return value == null ? "" : value.toLocaleString("en");
}

const COMPACT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export function compact(value) {
  return COMPACT.format(value).toLowerCase();
}

export function counted(value, noun) {
  return `${count(value)} ${noun}${value === 1 ? "" : "s"}`;
}

// Sessions in groups by the day of their last activity, newest first: [["Today", [...]], ...].
export function byDay(sessions, now) {
  const midnight = new Date(now * 1000).setHours(0, 0, 0, 0) / 1000;
  const groups = [["Today", midnight], ["Yesterday", midnight - 86_400], ["Last 7 days", midnight - 7 * 86_400], ["Earlier", -Infinity]]
    .map(([name, from]) => ({ name, from, list: [] }));
  for (const session of sessions) groups.find((group) => session.last_active >= group.from).list.push(session);
  return groups.filter((group) => group.list.length).map((group) => [group.name, group.list]);
}

export function oneLine(text, most = 80) {
  const line = text.replace(/\s+/g, " ").trim();
  return line.length > most ? `${line.slice(0, most - 1)}…` : line;
}

export function pretty(value) {
  return typeof value === "string" ? value : JSON.stringify(value, null, 2);
}
