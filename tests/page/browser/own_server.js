// A server that a test may kill: same port, same data, another process. With keys by principal, or one that it makes.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

export async function ownServer(keys = {}, variables = {}) {
  const folder = await mkdtemp(join(tmpdir(), "page-"));
  const port = await freePort();
  const flags = Object.keys(keys).length ? ["--api-key-file", join(folder, "keys.toml")] : [];
  const lines = Object.entries(keys).map(([principal, key]) => `${principal} = "${key}"\n`);
  await writeFile(join(folder, "keys.toml"), `[keys]\n${lines.join("")}`, { mode: 0o600 });
  let child;
  let link = "";
  const start = async () => {
    const env = { ...process.env, ...variables, HERMES_TRIO_DATA_DIR: folder };
    const command = ["-m", "hermes_trio", "serve", "--port", String(port), ...flags];
    child = spawn(process.env.PYTHON ?? "python", command, { cwd: join(import.meta.dirname, "../../.."), env, stdio: ["ignore", "pipe", "ignore"] });
    let greeting = "";
    for await (const text of child.stdout) {
      greeting += text;
      if (greeting.includes("Try it:")) break;
    }
    link ||= (/http\S+#key=\S+/.exec(greeting) ?? [`http://127.0.0.1:${port}/`])[0];
  };
  const kill = async () => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    child.kill("SIGKILL");
    await once(child, "exit");
  };
  await start();
  const close = async () => {
    await kill();
    await rm(folder, { recursive: true, force: true });
  };
  return { start, kill, close, link };
}

async function freePort() {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address();
  server.close();
  await once(server, "close");
  return port;
}
