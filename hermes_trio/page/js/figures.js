// Prometheus text as numbers, and numbers as rates.

export function parseFigures(text) {
  const figures = new Map();
  for (const line of text.split("\n")) {
    const found = /^([a-zA-Z_:][\w:]*)(?:\{.*\})? (\S+)/.exec(line);
    if (found) figures.set(found[1], (figures.get(found[1]) ?? 0) + Number(found[2]));
  }
  return figures;
}

// How much a counter grew in a second. A server that was started again counts from zero.
export function rate(name, before, now, elapsed) {
  if (!before || !now.has(name) || elapsed <= 0) return null;
  const grown = now.get(name) - (before.get(name) ?? 0);
  return Math.max(0, grown) / elapsed;
}

// The mean of what a histogram saw since the last look; null if it saw nothing.
export function mean(name, before, now) {
  if (!before) return null;
  const counted = (now.get(`${name}_count`) ?? 0) - (before.get(`${name}_count`) ?? 0);
  const sum = (now.get(`${name}_sum`) ?? 0) - (before.get(`${name}_sum`) ?? 0);
  return counted > 0 ? sum / counted : null;
}
