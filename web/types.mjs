// Writes src/api/schema.ts from openapi.json: one interface a component, one entry an operation.
//
// openapi.json is the committed snapshot of what the page uses of the gateway's /openapi.json. `node types.mjs FROM` takes a
// new one, FROM being the URL of a running gateway or a file.
import { readdir, readFile, writeFile } from "node:fs/promises";

const SNAPSHOT = new URL("openapi.json", import.meta.url);
const SOURCES = new URL("src/", import.meta.url);
const TARGET = new URL("src/api/schema.ts", import.meta.url);
const METHODS = ["get", "post", "put", "patch", "delete"];

// Words for readers: they may change without the page noticing.
const WORDS = new Set(["description", "title", "summary", "operationId", "tags", "examples", "version"]);

/** The document as it is kept: what the page asks for and what is answered, keys sorted, nothing but shapes. */
export function snapshot(document, used) {
  const paths = {};
  for (const [path, item] of Object.entries(document.paths))
    for (const method of METHODS) {
      if (!item[method] || !used.has(`${method.toUpperCase()} ${path}`)) continue;
      const { parameters = [], requestBody = null, responses } = item[method];
      (paths[path] ??= {})[method] = { parameters, requestBody, responses: { 200: responses["200"] } };
    }
  const schemas = {};
  reach(paths, document.components.schemas, schemas);
  return JSON.stringify(shapes({ components: { schemas }, paths }), null, 1) + "\n";
}

/** Adds to `found` all schemas that `value` names, and those that they name. */
function reach(value, all, found) {
  if (value === null || typeof value !== "object") return;
  const name = typeof value.$ref === "string" ? value.$ref.split("/").at(-1) : null;
  if (name !== null && !(name in found)) {
    found[name] = all[name];
    reach(all[name], all, found);
  }
  for (const child of Object.values(value)) reach(child, all, found);
}

/** The operations that the sources call. */
async function operationsUsed() {
  const used = new Set();
  for (const name of await readdir(SOURCES, { recursive: true })) {
    if (!/\.tsx?$/.test(name) || name.endsWith("schema.ts")) continue;
    const text = await readFile(new URL(name, SOURCES), "utf8");
    for (const [, operation] of text.matchAll(/"((?:GET|POST|PUT|PATCH|DELETE) \/[^"]+)"/g)) used.add(operation);
  }
  return used;
}

/** `named`: the keys are names of fields, paths or schemas, of which none is left out. */
function shapes(value, named = false) {
  if (Array.isArray(value)) return value.map((item) => shapes(item));
  if (value === null || typeof value !== "object") return value;
  const keys = Object.keys(value).filter((key) => named || !WORDS.has(key));
  return Object.fromEntries(keys.sort().map((key) => [key, shapes(value[key], key === "properties" || key === "schemas" || key === "paths")]));
}

/** A JSON schema as a TypeScript type. `asked`: of a request, where a field with a default may be left out. */
function typeOf(schema, asked) {
  if (schema === undefined || schema === true) return "unknown";
  if (schema.$ref) return schema.$ref.split("/").at(-1);
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  const several = schema.anyOf ?? schema.oneOf;
  if (several) return [...new Set(several.map((one) => typeOf(one, asked)))].join(" | ");
  if (schema.allOf) return schema.allOf.map((one) => typeOf(one, asked)).join(" & ");
  switch (schema.type) {
    case "integer":
    case "number":
      return "number";
    case "boolean":
      return "boolean";
    case "null":
      return "null";
    case "string":
      return schema.format === "binary" ? "Blob" : "string";
    case "array":
      if (schema.prefixItems) return `[${schema.prefixItems.map((one) => typeOf(one, asked)).join(", ")}]`;
      return `(${typeOf(schema.items, asked)})[]`;
    case "object":
      return objectOf(schema, asked);
    default:
      return "unknown";
  }
}

function objectOf(schema, asked) {
  const needed = new Set(schema.required ?? []);
  const fields = Object.entries(schema.properties ?? {}).map(([name, field]) => {
    const optional = !needed.has(name) && (asked || field.default === undefined);
    return `${JSON.stringify(name)}${optional ? "?" : ""}: ${typeOf(field, asked)}`;
  });
  if (fields.length > 0) return `{ ${fields.join("; ")} }`;
  const values = schema.additionalProperties;
  return values ? `Record<string, ${typeOf(values, asked)}>` : "Record<string, unknown>";
}

function operationOf(operation) {
  const taken = (where) =>
    (operation.parameters ?? [])
      .filter((parameter) => parameter.in === where)
      .map((p) => `${JSON.stringify(p.name)}${p.required ? "" : "?"}: ${typeOf(p.schema, true)}`);
  const shape = (fields) => (fields.length > 0 ? `{ ${fields.join("; ")} }` : "NoFields");
  const body = operation.requestBody?.content?.["application/json"]?.schema;
  const answer = operation.responses?.["200"]?.content?.["application/json"]?.schema;
  return [
    `path: ${shape(taken("path"))}`,
    `query: ${shape(taken("query"))}`,
    `body: ${body ? typeOf(body, true) : "never"}`,
    `answer: ${answer ? typeOf(answer, false) : "unknown"}`,
  ].join("; ");
}

export function typesOf(document) {
  const lines = ["// Generated by types.mjs from openapi.json. Not to be edited, not committed.", ""];
  lines.push("export type NoFields = Record<never, never>;", "");
  for (const [name, schema] of Object.entries(document.components.schemas))
    lines.push(`export type ${name} = ${typeOf(schema, false)};`);
  lines.push("", "export interface Operations {");
  for (const [path, item] of Object.entries(document.paths))
    for (const method of METHODS)
      if (item[method]) lines.push(`  "${method.toUpperCase()} ${path}": { ${operationOf(item[method])} };`);
  lines.push("}", "");
  return lines.join("\n");
}

export async function writeTypes() {
  const document = JSON.parse(await readFile(SNAPSHOT, "utf8"));
  const text = typesOf(document);
  const before = await readFile(TARGET, "utf8").catch(() => "");
  if (text !== before) await writeFile(TARGET, text);
}

async function taken(from) {
  return snapshot(JSON.parse(await documentAt(from)), await operationsUsed());
}

async function documentAt(from) {
  if (!/^https?:/.test(from)) return await readFile(from, "utf8");
  const answer = await fetch(new URL("/openapi.json", from), { signal: AbortSignal.timeout(10_000) });
  if (!answer.ok) throw new Error(`${from} answered ${answer.status}`);
  return await answer.text();
}

if (process.argv[1] === new URL(import.meta.url).pathname) {
  if (process.argv[2]) await writeFile(SNAPSHOT, await taken(process.argv[2]));
  await writeTypes();
}
