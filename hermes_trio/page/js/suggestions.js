// What to ask first. Which suggestions fit depends on the agent, so its own tools decide.

import { get } from "./api.js";
import { Cell } from "./cell.js";

// One for each kind of tool, the most telling first.
const BY_TOOL = [
  ["terminal", { icon: "terminal", label: "Describe this machine", text: "Which operating system is this, and how much memory and disk are free?" }],
  ["list_files", { icon: "file", label: "Look around the workspace", text: "List the files in your workspace, and tell me what they are about." }],
  ["write_file", { icon: "edit", label: "Write a file", text: "Write a short README.md for this workspace, and show it to me." }],
  ["web_fetch", { icon: "globe", label: "Read a web page", text: "Summarise this page: " }],
];
const ANY = [
  { icon: "agent", label: "What can you do?", text: "What can you do, and which tools do you have?" },
];
const DEMO = [
  { icon: "agent", label: "See what the demo agent can do", text: "/help" },
  { icon: "terminal", label: "Run a command", text: "/terminal uname -a; date" },
  { icon: "think", label: "Think, then answer", text: "/think Two and two\nHow much is two and two?" },
  { icon: "shield", label: "Ask before acting", text: "/ask echo approved" },
];

export const suggestions = new Cell(ANY);

export async function loadSuggestions() {
  const { agent, tools } = await agentTools();
  if (agent === "demo") suggestions.set(DEMO);
  else suggestions.set([...ANY, ...BY_TOOL.filter(([name]) => tools.includes(name)).map(([, suggestion]) => suggestion)]);
}

async function agentTools() {
  const [settings, { features }] = await Promise.all([get("/v1/settings"), get("/v1/capabilities")]);
  const toolsets = features.skills_api ? await get("/v1/toolsets") : { data: [] };
  const value = (name) => settings.data.find((setting) => setting.name === name)?.value ?? "";
  const listed = (toolsets.data ?? toolsets).flatMap?.((set) => set.tools ?? []) ?? [];
  const names = listed.map((tool) => (typeof tool === "string" ? tool : tool.name));
  return { agent: value("agent"), tools: [...names, ...value("tools").split(", ")] };
}
