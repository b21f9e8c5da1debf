// An icon for each tool, by what its name says. Tools have any names, so this is a guess; "agent" stands for the rest.

const PATTERNS = [
  [/terminal|shell|bash|command|exec|process/, "terminal"],
  [/search|grep|find|glob/, "find"],
  [/patch|edit|write|replace|create/, "patch"],
  [/read|file|list|view|cat\b/, "file"],
  [/web|http|url|fetch|browse/, "globe"],
  [/code|python|notebook|eval/, "code"],
  [/think|plan|todo|memory/, "think"],
  [/sleep|wait|timer|cron|schedule/, "queue"],
];

export function iconOf(tool) {
  const name = tool.toLowerCase();
  return PATTERNS.find(([pattern]) => pattern.test(name))?.[1] ?? "agent";
}
