// OpenAI's Node client, the AI SDK, EventSource and wscat. Prints a line of JSON for each call.
import { spawn } from "node:child_process";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { embed, generateText, Output, streamText, tool } from "ai";
import { EventSource } from "eventsource";
import OpenAI from "openai";
import { z } from "zod";

const { TURNOUT_URL: url, TURNOUT_API_KEY: key } = process.env;
const base = `${url}/v1`;
const prompt = "Say hello.";
const messages = [{ role: "user", content: prompt }];
const small = { prompt: "a red ball", size: "64x64", frames: 5, steps: 2 };

async function call(client, name, run, refused = "") {
  let outcome = "works", why = "";
  try {
    await run();
    if (refused) [outcome, why] = ["FAILED", "it was not refused"];
  } catch (err) {
    const said = `${err?.name}: ${err?.message} ${err?.responseBody ?? ""}`;
    [outcome, why] = refused && said.includes(refused) ? ["refused", refused] : ["FAILED", said.slice(0, 300)];
  }
  console.log(JSON.stringify({ client, call: name, outcome, why }));
}

function expect(condition, what) {
  if (!condition) throw new Error(`unexpected: ${JSON.stringify(what)}`);
}

async function submit(body = small) {
  const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
  const answer = await fetch(`${base}/videos`, { method: "POST", headers, body: JSON.stringify(body) });
  return answer.json();
}

const openai = new OpenAI({ baseURL: base, apiKey: key, maxRetries: 0 });
const named = "openai (Node)";
await call(named, "models.list", async () => {
  const ids = [];
  for await (const model of openai.models.list()) ids.push(model.id);
  expect(ids.includes("smollm2"), ids);
});
await call(named, "chat.completions.create", async () => {
  const made = await openai.chat.completions.create({ model: "smollm2", messages, max_tokens: 8 });
  expect(made.choices[0].message.content, made);
});
await call(named, "chat.completions.create({stream: true})", async () => {
  let text = "";
  const stream = await openai.chat.completions.create({ model: "smollm2", messages, max_tokens: 8, stream: true });
  for await (const part of stream) text += part.choices[0]?.delta?.content ?? "";
  expect(text, text);
});
await call(named, "responses.create", async () => {
  const made = await openai.responses.create({ model: "smollm2", input: prompt, max_output_tokens: 8 });
  expect(made.output_text, made);
});
await call(named, "embeddings.create", async () => {
  const made = await openai.embeddings.create({ model: "embed", input: "a" });
  expect(made.data[0].embedding.length > 10, made);
});
await call(named, "videos.create, retrieve, downloadContent, delete", async () => {
  let video = await openai.videos.create({ prompt: "a red ball", model: "wan-tiny-t2v", size: "64x64", seconds: "1" });
  while (["queued", "in_progress"].includes(video.status)) {
    await new Promise((wake) => setTimeout(wake, 300));
    video = await openai.videos.retrieve(video.id);
  }
  expect(video.status === "completed", video);
  const file = new Uint8Array(await (await openai.videos.downloadContent(video.id)).arrayBuffer());
  expect(String.fromCharCode(...file.slice(4, 8)) === "ftyp", file.length);
  expect((await openai.videos.delete(video.id)).deleted, "deleted");
});
await call(named, "an unknown model", () => openai.models.retrieve("nope"), "404");

const provider = createOpenAICompatible({ name: "turnout", baseURL: base, apiKey: key, supportsStructuredOutputs: true });
const ai = { model: provider("smollm2"), maxRetries: 0, maxOutputTokens: 40 };
await call("AI SDK", "generateText", async () => expect((await generateText({ ...ai, prompt })).text, ""));
await call("AI SDK", "streamText", async () => {
  let text = "";
  for await (const part of streamText({ ...ai, prompt }).textStream) text += part;
  expect(text, text);
});
await call("AI SDK", "generateText({output: Output.object})", async () => {
  const made = await generateText({ ...ai, temperature: 0, prompt, output: Output.object({ schema: z.object({ yes: z.boolean() }) }) });
  expect(typeof made.output.yes === "boolean", made.output);
});
await call("AI SDK", "embed", async () => {
  const made = await embed({ model: provider.embeddingModel("embed"), value: "a", maxRetries: 0 });
  expect(made.embedding.length > 10, made);
});
await call(
  "AI SDK",
  "generateText({tools})",
  () => generateText({ ...ai, prompt, tools: { f: tool({ description: "f", inputSchema: z.object({ a: z.string() }) }) } }),
  "This model knows no tools",
);

await call("EventSource", "new EventSource(events_url), without a key", async () => {
  const { events_url: events } = await submit();
  const source = new EventSource(events);
  const told = await new Promise((done, failed) => {
    source.addEventListener("video.completed", (event) => done(JSON.parse(event.data)));
    source.addEventListener("video.failed", (event) => failed(new Error(event.data)));
    setTimeout(() => failed(new Error("no end")), 120_000);
  });
  source.close();
  const file = await fetch(told.url);
  expect(file.ok && file.headers.get("content-type") === "video/mp4", file.status);
});

await call("wscat", "wscat -c ws://…/v1/videos/{id}/ws -H 'Authorization: …'", async () => {
  const { id } = await submit();
  const program = new URL("node_modules/wscat/bin/wscat", `file://${process.cwd()}/`).pathname;
  const words = [program, "-c", `${base.replace("http", "ws")}/videos/${id}/ws`, "-H", `Authorization: Bearer ${key}`];
  const child = spawn(process.execPath, words); // it leaves when its input ends
  let said = "";
  await new Promise((done, failed) => {
    const look = (data) => (said += data).includes("video.completed") && done();
    child.stdout.on("data", look);
    child.stderr.on("data", look);
    child.on("exit", () => (said.includes("video.completed") ? done() : failed(new Error(said.slice(-300)))));
    setTimeout(() => failed(new Error(said.slice(-300))), 120_000);
  });
  child.kill();
});
process.exit(0);
