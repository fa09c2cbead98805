import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { filled } from "../src/i18n";
import { TABLE } from "../src/i18n/table";

const SOURCES = readdirSync("src", { recursive: true, encoding: "utf8" })
  .filter((path) => /\.tsx?$/.test(path) && !path.endsWith("schema.ts") && !path.endsWith("table.ts"))
  .map((path) => ({ path, text: readFileSync(join("src", path), "utf8") }));

test("every key has words in both languages", () => {
  for (const [key, words] of Object.entries(TABLE)) for (const lang of ["en", "zh"] as const) assert.ok(words[lang].trim() !== "" || key === "expect.join", `${key} (${lang})`);
});

test("both languages of a key take the same values", () => {
  const names = (text: string) => [...new Set([...text.matchAll(/\{(\w+)/g)].map((found) => found[1]))].sort();
  for (const [key, words] of Object.entries(TABLE)) assert.deepEqual(names(words.zh), names(words.en), key);
});

test("Chinese words are Chinese", () => {
  // Names of things that are called the same in both.
  const same = new Set(["expect.join", "lang.other", "register.fsdp", "plot.gpus", "workers.used", "chat.tokens", "card.announced", "workers.cpus", "workers.gpus", "engine.vllm", "engine.llamacpp", "engine.wan", "operate.workers", "role.worker"]);
  for (const [key, words] of Object.entries(TABLE)) assert.ok(same.has(key) || /\p{Script=Han}/u.test(words.zh), key);
});

test("every key is used, and every used key is there", () => {
  const all = SOURCES.map((source) => source.text).join("\n");
  // A key made of a prefix and a value uses all keys with that prefix.
  const prefixes = [...all.matchAll(/`([a-z_]+\.[a-z_]*)\$\{/g)].map((found) => found[1]!);
  for (const key of Object.keys(TABLE)) assert.ok(all.includes(`"${key}"`) || prefixes.some((prefix) => key.startsWith(prefix)), `${key} is not used`);
  for (const [, key] of all.matchAll(/\bt\("([^"]+)"/g)) assert.ok(key! in TABLE, `${key} is missing`);
});

test("no words stand outside of the table", () => {
  for (const { path, text } of SOURCES.filter((source) => source.path.endsWith(".tsx"))) {
    for (const [, words] of text.matchAll(/^\s*(?:<[a-z][^<>]*>)([A-Za-z][^<>{}=]*)<\//gm)) {
      if (!["Turnout", "turnout open", "Ctrl ⏎"].includes(words!.trim())) assert.fail(`${path}: ${words}`);
    }
    for (const [, words] of text.matchAll(/\b(?:aria-label|title|placeholder|alt)="([^"]+)"/g)) if (words !== "tk-…") assert.fail(`${path}: ${words}`);
  }
});

test("values and plurals are filled in", () => {
  assert.equal(filled("{n} {n:video|videos}", { n: 1 }), "1 video");
  assert.equal(filled("{n} {n:video|videos}", { n: 2 }), "2 videos");
  assert.equal(filled("{name}: {gone}", { name: "x" }), "x: ");
});
