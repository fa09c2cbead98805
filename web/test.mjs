// Runs test/*.test.ts under node's own test runner: esbuild makes them JavaScript first.
import { spawnSync } from "node:child_process";
import { readdir, rm } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import * as esbuild from "esbuild";
import { writeTypes } from "./types.mjs";

const ROOT = fileURLToPath(new URL(".", import.meta.url));

await writeTypes();
const sources = (await readdir(`${ROOT}test`)).filter((name) => /\.test\.tsx?$/.test(name));
await rm(`${ROOT}.test`, { recursive: true, force: true });
await esbuild.build({
  absWorkingDir: ROOT,
  entryPoints: sources.map((name) => `test/${name}`),
  outdir: ".test",
  outExtension: { ".js": ".mjs" },
  bundle: true,
  platform: "node",
  format: "esm",
  jsx: "automatic",
  jsxImportSource: "preact",
  external: ["node:*"],
  loader: { ".css": "empty" },
  logLevel: "warning",
});
const built = sources.map((name) => `${ROOT}.test/${name.replace(/\.tsx?$/, ".mjs")}`);
process.exit(spawnSync(process.execPath, ["--test", ...built], { stdio: "inherit", cwd: ROOT }).status ?? 1);
