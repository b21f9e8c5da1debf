// The OpenAI SDK for JavaScript: both APIs, in plain loops and with the stream helpers.

import OpenAI from "openai";

const model = "hermes-agent";
const parameters = {
  type: "object",
  properties: { a: { type: "integer" }, b: { type: "integer" } },
  required: ["a", "b"],
  additionalProperties: false,
};
const description = "Multiply two whole numbers.";
const user = (content) => ({ role: "user", content });

function chat(client, hasHelper, multiply) {
  const tools = [{ type: "function", function: { name: "multiply", description, parameters } }];
  const complete = async (messages, options = {}) =>
    (await client.chat.completions.create({ model, messages, ...options })).choices[0].message;
  return {
    answer: async (text) => (await complete([user(text)])).content,
    async *stream(text, signal) {
      const body = { model, messages: [user(text)] };
      const chunks = hasHelper
        ? client.chat.completions.stream(body, { signal })
        : await client.chat.completions.create({ ...body, stream: true }, { signal });
      for await (const chunk of chunks) yield chunk.choices[0].delta.content;
    },
    async converse(first, second) {
      const opening = await complete([user(first)]);
      const closing = await complete([user(first), opening, user(second)]);
      return [opening.content, closing.content];
    },
    async useTool(text) {
      const messages = [user(text)];
      const message = await complete(messages, { tools });
      messages.push(message);
      for (const call of message.tool_calls ?? []) {
        const output = multiply(JSON.parse(call.function.arguments));
        messages.push({ role: "tool", tool_call_id: call.id, content: String(output) });
      }
      return (await complete(messages, { tools })).content;
    },
  };
}

function responses(client, hasHelper, multiply) {
  const tools = [{ type: "function", name: "multiply", description, parameters, strict: true }];
  const create = async (input, options = {}) => {
    const response = await client.responses.create({ model, input, ...options });
    if (response.status === "failed") throw new Error(response.error.message);
    return response;
  };
  return {
    answer: async (text) => (await create([user(text)])).output_text,
    async *stream(text, signal) {
      const body = { model, input: text };
      const events = hasHelper
        ? client.responses.stream(body, { signal })
        : await client.responses.create({ ...body, stream: true }, { signal });
      for await (const event of events) {
        if (event.type === "response.failed") throw new Error(event.response.error.message);
        if (event.type === "response.output_text.delta") yield event.delta;
      }
    },
    async converse(first, second) {
      const opening = await create([user(first)]);
      const closing = await create([user(first), ...opening.output, user(second)]);
      return [opening.output_text, closing.output_text];
    },
    async useTool(text) {
      const input = [user(text)];
      const response = await create(input, { tools });
      input.push(...response.output);
      for (const call of response.output.filter((item) => item.type === "function_call")) {
        const output = String(multiply(JSON.parse(call.arguments)));
        input.push({ type: "function_call_output", call_id: call.call_id, output });
      }
      return (await create(input, { tools })).output_text;
    },
  };
}

export default (api, multiply) => {
  const [name, helper] = api.split("+");
  return (name === "chat" ? chat : responses)(new OpenAI(), helper === "helper", multiply);
};
