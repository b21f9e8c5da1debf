// LangChain for JavaScript: its chat model, and createAgent around it.

import { ChatOpenAI } from "@langchain/openai";
import { createAgent, tool } from "langchain";
import { z } from "zod";

const user = (content) => ({ role: "user", content });

export default (api, multiply) => {
  const configuration = { baseURL: process.env.OPENAI_BASE_URL };
  const model = new ChatOpenAI({ model: "hermes-agent", useResponsesApi: api === "responses", configuration });
  const multiplication = tool((input) => String(multiply(input)), {
    name: "multiply",
    description: "Multiply two whole numbers.",
    schema: z.object({ a: z.number().int(), b: z.number().int() }),
  });
  const invoke = async (messages, tools = []) => (await createAgent({ model, tools }).invoke({ messages })).messages;
  return {
    answer: async (text) => (await invoke([user(text)])).at(-1).text,
    async *stream(text, signal) {
      for await (const chunk of await model.stream(text, { signal })) yield chunk.text;
    },
    async converse(first, second) {
      const opening = await invoke([user(first)]);
      const closing = await invoke([...opening, user(second)]);
      return [opening.at(-1).text, closing.at(-1).text];
    },
    useTool: async (text) => (await invoke([user(text)], [multiplication])).at(-1).text,
  };
};
