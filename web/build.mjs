// Bundles the page into dist/: hashed names, a gzip sibling for each text file, and manifest.json for the gateway.
//
// dist/manifest.json: { "index": "index.html", "files": { "<path>": { "type", "bytes", "gzip_bytes", "immutable" } } }
import { createHash } from "node:crypto";
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { extname, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import * as esbuild from "esbuild";
import { writeTypes } from "./types.mjs";

const ROOT = fileURLToPath(new URL(".", import.meta.url));
const DIST = resolve(ROOT, "dist");
const MAX_COMPRESSED_BYTES = 200_000;
const TYPES = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".svg": "image/svg+xml",
};

export async function build({ minify = true } = {}) {
  await writeTypes();
  const result = await esbuild.build({
    absWorkingDir: ROOT,
    entryPoints: ["src/main.tsx"],
    outdir: DIST,
    entryNames: "assets/[name]-[hash]",
    chunkNames: "assets/[name]-[hash]",
    assetNames: "assets/[name]-[hash]",
    bundle: true,
    splitting: true,
    format: "esm",
    target: ["es2022", "chrome120", "firefox120", "safari17.5"],
    jsx: "automatic",
    jsxImportSource: "preact",
    minify,
    metafile: true,
    write: false,
    legalComments: "none",
    logLevel: "warning",
  });
  const files = new Map(result.outputFiles.map((file) => [relative(DIST, file.path), Buffer.from(file.contents)]));
  const icon = await readFile(resolve(ROOT, "src/icon.svg"));
  const iconName = `assets/icon-${createHash("sha256").update(icon).digest("hex").slice(0, 8)}.svg`;
  files.set(iconName, icon);
  files.set("index.html", Buffer.from(await index(result.metafile, iconName)));
  await rm(DIST, { recursive: true, force: true });
  await mkdir(resolve(DIST, "assets"), { recursive: true });
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
    await writeFile(resolve(DIST, path), bytes);
    await writeFile(resolve(DIST, `${path}.gz`), zipped);
  }
  if (minify && compressed > MAX_COMPRESSED_BYTES)
    throw new Error(`The page takes ${compressed} bytes compressed, over ${MAX_COMPRESSED_BYTES}.`);
  await writeFile(resolve(DIST, "manifest.json"), JSON.stringify({ index: "index.html", files: listed }, null, 1));
  return { compressed, files: listed };
}

async function index(metafile, iconName) {
  const outputs = Object.entries(metafile.outputs);
  const [script, entry] = outputs.find(([, output]) => output.entryPoint === "src/main.tsx");
  const local = (path) => `/${relative("dist", path)}`;
  const template = await readFile(resolve(ROOT, "src/index.html"), "utf8");
  return template
    .replace("%STYLE%", local(entry.cssBundle))
    .replace("%SCRIPT%", local(script))
    .replace("%ICON%", `/${iconName}`);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { compressed, files } = await build();
  console.log(`web/dist: ${Object.keys(files).length} files, ${(compressed / 1000).toFixed(1)} kB compressed`);
}
