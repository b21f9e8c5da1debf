// The AI SDK with its providers: the default one of @ai-sdk/openai speaks Responses.

import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, isStepCount, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const { OPENAI_BASE_URL: baseURL, OPENAI_API_KEY: apiKey } = process.env;
const name = "hermes-agent";
const user = (content) => ({ role: "user", content });

const models = {
  responses: () => createOpenAI()(name),
  chat: () => createOpenAI().chat(name),
  compatible: () => createOpenAICompatible({ name: "hermes", baseURL, apiKey })(name),
};

export default (api, multiply) => {
  const model = models[api]();
  const tools = {
    multiply: tool({
      description: "Multiply two whole numbers.",
      inputSchema: z.object({ a: z.number().int(), b: z.number().int() }),
      execute: (input) => multiply(input),
    }),
  };
  return {
    answer: async (text) => (await generateText({ model, prompt: text })).text,
    async *stream(text, abortSignal) {
      const { fullStream } = streamText({ model, prompt: text, abortSignal, onError() {} });
      for await (const part of fullStream) {
        if (part.type === "error") throw part.error;
        if (part.type === "tool-error") throw part.error;
        if (part.type === "text-delta") yield part.text;
      }
    },
    async converse(first, second) {
      const opening = await generateText({ model, messages: [user(first)] });
      const messages = [user(first), ...opening.response.messages, user(second)];
      const closing = await generateText({ model, messages });
      return [opening.text, closing.text];
    },
    async decide(first, second, approved) {
      const { mcp } = createOpenAI().tools;
      const hosted = { mcp: mcp({ serverLabel: "hermes", serverUrl: "http://127.0.0.1", requireApproval: "always" }) };
      const messages = [user(first)];
      const asking = await generateText({ model, messages, tools: hosted });
      const { approvalId, toolCall } = asking.content.find((part) => part.type === "tool-approval-request");
      const reply = { type: "tool-approval-response", approvalId, approved, providerExecuted: true };
      messages.push(...asking.response.messages, { role: "tool", content: [reply] });
      const result = await generateText({ model, messages, tools: hosted });
      messages.push(...result.response.messages, user(second));
      const later = await generateText({ model, messages, tools: hosted });
      return [`${toolCall.toolName} ${JSON.stringify(toolCall.input)}`, result.text, later.text];
    },
    async useTool(text) {
      const stopWhen = (isStepCount ?? stepCountIs)(5);
      return (await generateText({ model, prompt: text, tools, stopWhen })).text;
    },
  };
};
