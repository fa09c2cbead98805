// A server for trying the page: dist/ with the headers that the gateway will send, all else passed on to a running Turnout.
//
//   node dev.mjs --to http://127.0.0.1:8000 [--port 5180] [--watch]
import { readFile, watch } from "node:fs/promises";
import { createServer, request } from "node:http";
import { connect } from "node:net";
import { parseArgs } from "node:util";
import { build } from "./build.mjs";

export const HEADERS = {
  "Content-Security-Policy": [
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self' blob:",
    "media-src 'self' blob:",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types dompurify",
  ].join("; "),
  "X-Content-Type-Options": "nosniff",
  "Referrer-Policy": "no-referrer",
  "Cross-Origin-Opener-Policy": "same-origin",
  "Cross-Origin-Resource-Policy": "same-origin",
  "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
};

const { values } = parseArgs({
  options: {
    to: { type: "string", default: "http://127.0.0.1:8000" },
    port: { type: "string", default: "5180" },
    watch: { type: "boolean", default: false },
  },
});
const to = new URL(values.to);
let manifest = (await build({ minify: !values.watch })).files;

async function serve(incoming, outgoing) {
  const path = new URL(incoming.url, "http://page").pathname;
  const name = path === "/" ? "index.html" : path.slice(1);
  const file = Object.hasOwn(manifest, name) ? manifest[name] : undefined;
  if (!file) return pass(incoming, outgoing);
  const body = await readFile(new URL(`dist/${name}.gz`, import.meta.url));
  outgoing.writeHead(200, {
    ...HEADERS,
    "Content-Type": file.type,
    "Content-Encoding": "gzip",
    "Content-Length": body.length,
    "Cache-Control": file.immutable ? "public, max-age=31536000, immutable" : "no-cache",
  });
  outgoing.end(body);
}

function pass(incoming, outgoing) {
  const options = { host: to.hostname, port: to.port, method: incoming.method, path: incoming.url, headers: incoming.headers };
  const upstream = request(options, (answer) => {
    outgoing.writeHead(answer.statusCode, answer.headers);
    answer.pipe(outgoing);
  });
  upstream.on("error", () => {
    if (!outgoing.headersSent) outgoing.writeHead(502);
    outgoing.end();
  });
  outgoing.on("close", () => upstream.destroy());
  incoming.pipe(upstream);
}

const server = createServer((incoming, outgoing) => void serve(incoming, outgoing));
server.on("upgrade", (incoming, socket, head) => {
  const upstream = connect(Number(to.port), to.hostname, () => {
    const lines = [`${incoming.method} ${incoming.url} HTTP/1.1`];
    for (let i = 0; i < incoming.rawHeaders.length; i += 2)
      lines.push(`${incoming.rawHeaders[i]}: ${incoming.rawHeaders[i + 1]}`);
    upstream.write(`${lines.join("\r\n")}\r\n\r\n`);
    upstream.write(head);
    upstream.pipe(socket).pipe(upstream);
  });
  upstream.on("error", () => socket.destroy());
  socket.on("error", () => upstream.destroy());
});
server.listen(Number(values.port), "127.0.0.1", () => {
  console.log(`http://127.0.0.1:${server.address().port} → ${to.origin}`);
});

if (values.watch) {
  let waiting = null;
  for await (const _ of watch(new URL("src", import.meta.url), { recursive: true })) {
    clearTimeout(waiting);
    waiting = setTimeout(async () => {
      try {
        manifest = (await build({ minify: false })).files;
      } catch (err) {
        console.error(String(err));
      }
    }, 100);
  }
}
