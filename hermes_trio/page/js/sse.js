// Server-sent events from bytes that arrive in any pieces. They are read with fetch: EventSource does not show a caller the
// comments that keep a quiet stream alive, nor why it was refused.

export class SseParser {
  #rest = "";
  #event = emptyEvent();

  // The events that are complete with this piece of text.
  push(text) {
    const lines = (this.#rest + text).split(/\r\n|\n|\r(?!$)/);
    this.#rest = lines.pop();
    return lines.map((line) => this.#line(line)).filter(Boolean);
  }

  #line(line) {
    if (line === "") return this.#dispatch();
    if (line.startsWith(":")) return null;
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "data") this.#event.data.push(value);
    else if (name === "event") this.#event.event = value;
    else if (name === "id") this.#event.id = value;
    return null;
  }

  #dispatch() {
    const { data, event, id } = this.#event;
    this.#event = emptyEvent();
    return data.length ? { event, id, data: data.join("\n") } : null;
  }
}

function emptyEvent() {
  return { event: "", id: "", data: [] };
}

// Calls take(event) for each event of a response; returns when the body ends. heard() is called for every piece, comments
// included, so that a caller can tell a quiet stream from a dead one.
export async function readEvents(response, take, heard = () => {}) {
  const parser = new SseParser();
  const decoder = new TextDecoder();
  const reader = response.body.getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    heard();
    parser.push(decoder.decode(value, { stream: true })).forEach(take);
  }
}
