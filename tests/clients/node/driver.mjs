// Drives one client in JavaScript over lines of JSON, as tests/clients/drivers/protocol.py says.
//
// node driver.mjs FILE API: the clients of drivers/FILE.mjs are functions that return answer, stream, converse, useTool.

import { createInterface } from "node:readline";
import { writeSync } from "node:fs";

const [file, api] = process.argv.slice(2);
const replies = (reply) => writeSync(1, `${JSON.stringify(reply)}\n`);
console.log = console.error; // what a client prints must not end up between the replies

const { default: makeDriver } = await import(`./${file}.mjs`);
const calls = [];

function multiply({ a, b }) {
  calls.push([a, b]);
  return a * b;
}

const driver = makeDriver(api, multiply);

// All pieces with text, or only the first one: then the client leaves.
async function collect(text, leaves) {
  const controller = new AbortController();
  const heard = [];
  try {
    for await (const piece of driver.stream(text, controller.signal)) {
      if (!piece) continue;
      heard.push(piece);
      if (leaves) controller.abort();
    }
  } catch (error) {
    if (!controller.signal.aborted) throw error;
  }
  return heard;
}

const actions = {
  answer: async ([text]) => [await driver.answer(text)],
  stream: ([text]) => collect(text, false),
  leave: ([text]) => collect(text, true),
  converse: ([first, second]) => driver.converse(first, second),
  use_tool: async ([text]) => [await driver.useTool(text)],
  approve: ([first, second]) => driver.decide(first, second, true),
  refuse: ([first, second]) => driver.decide(first, second, false),
};

for await (const line of createInterface({ input: process.stdin })) {
  const { action, texts } = JSON.parse(line);
  calls.length = 0;
  try {
    replies({ texts: await actions[action](texts), calls });
  } catch (error) {
    replies({ error: `${error?.name}: ${error?.message ?? JSON.stringify(error)}` });
  }
}
process.exit(0);
