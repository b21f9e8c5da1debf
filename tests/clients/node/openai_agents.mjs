// The OpenAI Agents SDK for JavaScript.

import { Agent, OpenAIProvider, Runner, hostedMcpTool, tool, user } from "@openai/agents";
import { z } from "zod";

export default (api, multiply) => {
  const modelProvider = new OpenAIProvider({ useResponses: api === "responses" });
  const runner = new Runner({ modelProvider, tracingDisabled: true });
  const agent = (...tools) => new Agent({ name: "client", model: "hermes-agent", tools });
  const multiplication = tool({
    name: "multiply",
    description: "Multiply two whole numbers.",
    parameters: z.object({ a: z.number().int(), b: z.number().int() }),
    execute: (input) => String(multiply(input)),
  });
  return {
    answer: async (text) => (await runner.run(agent(), text)).finalOutput,
    async *stream(text, signal) {
      const run = await runner.run(agent(), text, { stream: true, signal });
      for await (const event of run) {
        const { type, delta } = event.data ?? {};
        if (type === "output_text_delta") yield delta;
      }
      await run.completed;
      if (run.error) throw run.error;
    },
    async converse(first, second) {
      const opening = await runner.run(agent(), first);
      const closing = await runner.run(agent(), [...opening.history, user(second)]);
      return [opening.finalOutput, closing.finalOutput];
    },
    useTool: async (text) => (await runner.run(agent(multiplication), text)).finalOutput,
    async decide(first, second, approves) {
      const hosted = agent(hostedMcpTool({ serverLabel: "hermes", serverUrl: "http://127.0.0.1", requireApproval: "always" }));
      const asking = await runner.run(hosted, first);
      const [interruption] = asking.interruptions;
      const { state } = asking;
      if (approves) state.approve(interruption);
      else state.reject(interruption);
      const result = await runner.run(hosted, state);
      const later = await runner.run(hosted, [...result.history, user(second)]);
      return [JSON.stringify(interruption.rawItem), result.finalOutput, later.finalOutput];
    },
  };
};
