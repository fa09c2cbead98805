// Bundles the page into the gateway's folder: hashed names, a gzip sibling for each file, and manifest.json.
//
// manifest.json: { "index": "index.html", "files": { "<path>": { "type", "bytes", "gzip_bytes", "immutable" } } }
import { createHash } from "node:crypto";
import { mkdir, readFile, rm, watch, writeFile } from "node:fs/promises";
import { extname, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import * as esbuild from "esbuild";
import { writeTypes } from "./types.mjs";

const ROOT = fileURLToPath(new URL(".", import.meta.url));
const BUNDLE = resolve(ROOT, "../src/turnout/gateway/page/bundle");
const MAX_COMPRESSED_BYTES = 260_000;
const TYPES = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".svg": "image/svg+xml",
};

async function build() {
  await writeTypes();
  const result = await esbuild.build({
    absWorkingDir: ROOT,
    entryPoints: ["src/main.tsx"],
    outdir: BUNDLE,
    entryNames: "assets/[name]-[hash]",
    chunkNames: "assets/[name]-[hash]",
    assetNames: "assets/[name]-[hash]",
    bundle: true,
    splitting: true,
    format: "esm",
    target: ["es2022", "chrome120", "firefox120", "safari17.5"],
    jsx: "automatic",
    jsxImportSource: "preact",
    minify: true,
    metafile: true,
    write: false,
    legalComments: "none",
    logLevel: "warning",
  });
  const files = new Map(result.outputFiles.map((file) => [relative(BUNDLE, file.path), Buffer.from(file.contents)]));
  const icon = await readFile(resolve(ROOT, "src/icon.svg"));
  const iconName = `assets/icon-${createHash("sha256").update(icon).digest("hex").slice(0, 8)}.svg`;
  files.set(iconName, icon);
  files.set("index.html", Buffer.from(await index(result.metafile, iconName)));
  await rm(BUNDLE, { recursive: true, force: true });
  await mkdir(resolve(BUNDLE, "assets"), { recursive: true });
  const listed = {};
  let compressed = 0;
  for (const [path, bytes] of [...files].sort(([a], [b]) => (a < b ? -1 : 1))) {
    const zipped = gzipSync(bytes, { level: 9 });
    compressed += zipped.length;
    listed[path] = {
      type: TYPES[extname(path)],
      bytes: bytes.length,
      gzip_bytes: zipped.length,
      immutable: path.startsWith("assets/"),
    };
    await writeFile(resolve(BUNDLE, path), bytes);
    await writeFile(resolve(BUNDLE, `${path}.gz`), zipped);
  }
  if (compressed > MAX_COMPRESSED_BYTES)
    throw new Error(`The page takes ${compressed} bytes compressed, over ${MAX_COMPRESSED_BYTES}.`);
  await writeFile(resolve(BUNDLE, "manifest.json"), JSON.stringify({ index: "index.html", files: listed }, null, 1));
  return { compressed, files: listed };
}

async function index(metafile, iconName) {
  const outputs = Object.entries(metafile.outputs);
  const [script, entry] = outputs.find(([, output]) => output.entryPoint === "src/main.tsx");
  const local = (path) => `/${relative(BUNDLE, resolve(ROOT, path))}`;
  const template = await readFile(resolve(ROOT, "src/index.html"), "utf8");
  return template
    .replace("%STYLE%", local(entry.cssBundle))
    .replace("%SCRIPT%", local(script))
    .replace("%ICON%", `/${iconName}`);
}

async function buildAndTell() {
  const { compressed, files } = await build();
  console.log(`The page: ${Object.keys(files).length} files, ${(compressed / 1000).toFixed(1)} kB compressed`);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  await buildAndTell();
  if (process.argv.includes("--watch")) {
    let waiting = null;
    for await (const _ of watch(resolve(ROOT, "src"), { recursive: true })) {
      clearTimeout(waiting);
      waiting = setTimeout(() => buildAndTell().catch((err) => console.error(String(err))), 100);
    }
  }
}
