// "Copy as": the same request for a terminal or a program. The key is never in it.

export function shellQuoted(text) {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

export function askWithCurl(base, model, content) {
  const body = JSON.stringify({ model, input: asInput(content), stream: true });
  return [
    `curl -N ${shellQuoted(`${base}/v1/responses`)}`,
    `  -H "Authorization: Bearer $API_SERVER_KEY"`,
    `  -H 'Content-Type: application/json'`,
    `  -d ${shellQuoted(body)}`,
  ].join(" \\\n");
}

export function askWithPython(base, model, content) {
  return `import os

from openai import OpenAI

client = OpenAI(base_url=${JSON.stringify(`${base}/v1`)}, api_key=os.environ["API_SERVER_KEY"])
stream = client.responses.create(model=${JSON.stringify(model)}, input=${pythonLiteral(asInput(content))}, stream=True)
for event in stream:
    if event.type == "response.output_text.delta":
        print(event.delta, end="", flush=True)
print()
`;
}

export function followWithCurl(base, runId) {
  return `curl -N ${shellQuoted(`${base}/v1/runs/${runId}/events`)} \\\n  -H "Authorization: Bearer $API_SERVER_KEY"`;
}

export function followWithPython(base, runId) {
  return `import json
import os
import urllib.request

request = urllib.request.Request(
    ${JSON.stringify(`${base}/v1/runs/${runId}/events`)},
    headers={"Authorization": f"Bearer {os.environ['API_SERVER_KEY']}"},
)
with urllib.request.urlopen(request) as stream:
    for line in stream:
        if line.startswith(b"data: "):
            print(json.loads(line.removeprefix(b"data: ")))
`;
}

function asInput(content) {
  if (typeof content === "string") return content;
  const parts = content.map((part) => part.type === "image_url"
    ? { type: "input_image", image_url: part.image_url.url ?? part.image_url }
    : { type: "input_text", text: part.text });
  return [{ role: "user", content: parts }];
}

// JSON without true, false and null is Python.
function pythonLiteral(value) {
  return JSON.stringify(value);
}
