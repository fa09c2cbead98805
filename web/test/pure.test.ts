// The decisions of the views, which need no browser.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { ApiError } from "../src/api/http";
import { explain } from "../src/api/words";
import { curlOf, pythonOf } from "../src/card/snippets";
import { stationOf } from "../src/card/stages";
import { codeOf, routeOf } from "../src/ui/route";
import type { VideoModel } from "../src/api/models";
import { BLANK, bodiesOf } from "../src/views/create/composer";
import { Reader, statsOf, type Piece } from "../src/views/chat/stream";
import { besides, branchOf, endBelow, merged } from "../src/views/chat/tree";
import { lengthsOf, readSize, sizesOf, type Rules } from "../src/views/create/rules";
import { matches } from "../src/tasks/search";
import { cellOf, cellsOf } from "../src/views/library/sheet";
import { barsOf } from "../src/views/operate/bars";
import { money } from "../src/views/operate/budgets";
import { registrationOf } from "../src/views/operate/register";

const TINY: Rules = { sizes: [], size_multiple: 16, frame_multiple: 4, max_pixels: 65_536, max_frames: 65, ulysses: 2, defaults: { size: "128x128", frames: 17, fps: 8 } };

test("offered sizes keep all of a model's rules", () => {
  const sizes = sizesOf(TINY);
  assert.equal(sizes[0], "128x128");
  assert.ok(sizes.length > 2);
  for (const size of sizes) {
    const { width, height } = readSize(size);
    assert.equal(width % 16, 0);
    assert.equal(height % 16, 0);
    assert.ok(width * height <= TINY.max_pixels);
    assert.equal(((width / 16) * (height / 16)) % TINY.ulysses, 0, size);
  }
  assert.deepEqual(sizesOf({ ...TINY, sizes: ["832x480"] }), ["832x480"]);
});

test("offered lengths are 4n+1 frames up to the model's most", () => {
  const lengths = lengthsOf(TINY);
  assert.deepEqual(lengths.slice(0, 2), [{ frames: 1, seconds: 0 }, { frames: 5, seconds: 0.5 }]);
  assert.equal(lengths.at(-1)!.frames, 65);
  for (const { frames } of lengths) assert.equal((frames - 1) % 4, 0);
});

const ASLEEP = { state: "stopped", cause: null, words: "waking", for_s: 1 } as const;

test("a queued task whose model sleeps is waking it", () => {
  assert.equal(stationOf({ status: "queued", stage: null, queuePosition: 0, waitingFor: ASLEEP }), "waking");
  assert.equal(stationOf({ status: "queued", stage: null, queuePosition: 0, waitingFor: null }), "queued");
  assert.equal(stationOf({ status: "queued", stage: null, queuePosition: 3, waitingFor: ASLEEP }), "queued");
  assert.equal(stationOf({ status: "in_progress", stage: "denoising", queuePosition: null, waitingFor: null }), "drawing");
  assert.equal(stationOf({ status: "in_progress", stage: "uploading", queuePosition: null, waitingFor: null }), "finishing");
});

const VIDEO = { prompt: `it's "odd" $(rm -rf /) \\ \n 中文`, model: "m", size: "128x128", frames: 17, fps: 8, steps: 20, guidance: [4, 4] as [number, number], shift: 5, negative_prompt: "", seed: 7, has_image: false };

test("a copied command sends the prompt as it is, and runs nothing else", () => {
  const argumentsOf = (command: string) => execFileSync("sh", ["-c", command.replace(/^curl/, "printf '%s\\0'")], { encoding: "utf8" }).split("\0");
  const command = curlOf(VIDEO, "http://127.0.0.1:8000");
  const args = argumentsOf(command);
  const body = args[args.indexOf("-d") + 1]!;
  assert.equal((JSON.parse(body) as { prompt: string }).prompt, VIDEO.prompt);
  assert.ok(!command.includes("tk-"));
  const withPicture = argumentsOf(curlOf({ ...VIDEO, has_image: true }, "http://127.0.0.1:8000"));
  assert.ok(withPicture.includes(`prompt=${VIDEO.prompt}`) && withPicture.includes("guidance=4,4"));
  assert.equal(withPicture[withPicture.indexOf("-F") + 1], "input_reference=@first-frame.png");
});

test("a copied program is Python, and holds the prompt", () => {
  const program = pythonOf(VIDEO, "http://127.0.0.1:8000");
  const found = execFileSync("python3", ["-c", "import ast,sys\nt=ast.parse(sys.stdin.read())\nprint([k.value.value for n in ast.walk(t) if isinstance(n,ast.Call) for k in n.keywords if k.arg=='prompt'][0],end='')"], { input: program, encoding: "utf8" });
  assert.equal(found, VIDEO.prompt);
});

test("a stream is read the same in any slices", () => {
  const stream =
    ': waiting\n\ndata: {"choices":[{"delta":{"role":"assistant","content":null}}]}\n\ndata: {"choices":[{"delta":{"content":"Hé"}}]}\r\n\r\n' +
    'data: {"choices":[{"delta":{"content":"llo 你好"}}]}\n\ndata: not json\n\nevent: x\ndata: {"choices":[],"usage":{"completion_tokens":2}}\n\ndata: [DONE]\n\n';
  const whole = new Reader().feed(stream);
  const kinds = whole.map((piece) => piece.kind);
  assert.deepEqual(kinds, ["waiting", "text", "text", "usage", "done"]);
  for (let size = 1; size < 40; size++) {
    const reader = new Reader();
    const pieces: Piece[] = [];
    for (let at = 0; at < stream.length; at += size) pieces.push(...reader.feed(stream.slice(at, at + size)));
    assert.deepEqual(pieces, whole, `slices of ${size}`);
  }
});

test("an error inside a stream is told", () => {
  assert.deepEqual(new Reader().feed('data: {"error":{"message":"gone","code":"replica_lost"}}\n\n'), [{ kind: "error", message: "gone", code: "replica_lost" }]);
});

test("tokens a second leave out the wait for the first", () => {
  assert.deepEqual(statsOf(0, 2_000, 4_000, 9, 11), { tokens: 11, firstTokenMs: 2_000, tokensPerSecond: 5 });
  assert.equal(statsOf(0, 2_000, 2_000, 1, null).tokensPerSecond, null);
});

test("search takes all words in any order", () => {
  const video = { prompt: "A Red fox in snow", model: "m", status: "completed", favourite: false, tags: ["best", "冬天"] };
  const by = (words: string, model = "", status: "" | "failed" = "", favourite = false) => matches({ words, model, status, favourite }, video);
  assert.ok(by(""));
  assert.ok(by("snow red"));
  assert.ok(!by("snow blue"));
  assert.ok(!by("", "other"));
  assert.ok(!by("", "", "failed"));
  assert.ok(!by("", "", "", true));
  assert.ok(by("#冬天 fox"));
  assert.ok(!by("#summer fox"));
});

test("a place in a video finds its cell in the spritesheet", () => {
  const cells = cellsOf(17);
  assert.deepEqual(cells, { count: 16, columns: 4, rows: 4 });
  assert.deepEqual(cellOf(0, cells), { index: 0, column: 0, row: 0 });
  assert.deepEqual(cellOf(0.999, cells), { index: 15, column: 3, row: 3 });
  assert.deepEqual(cellOf(7, cells).index, 15);
  assert.deepEqual(cellsOf(5), { count: 5, columns: 3, rows: 2 });
});

test("a registration carries the fields of its engine and no others", () => {
  const typed = { gpus: "2", gpu_memory_bytes: "1.5", max_model_len: "4096", family: "wan2.2-ti2v-5b", arguments: "--a\n\n --b ", sleep: "yes" };
  assert.deepEqual(registrationOf("vllm", " a ", " w ", typed), { alias: "a", engine: "vllm", model_name: "w", gpus: 2, gpu_memory_bytes: 1_610_612_736, max_model_len: 4096, sleep: true, arguments: ["--a", "--b"] });
  assert.deepEqual(registrationOf("wan", "a", "w", typed), { alias: "a", engine: "wan", model_name: "w", family: "wan2.2-ti2v-5b", gpus: 2, gpu_memory_bytes: 1_610_612_736 });
});

test("an amount that is no number is sent as it was typed, for the gateway to refuse", () => {
  const { gpu_memory_bytes, idle_s } = registrationOf("vllm", "a", "w", { gpu_memory_bytes: "40 GB", idle_s: "10m" }) as unknown as Record<string, unknown>;
  assert.deepEqual([gpu_memory_bytes, idle_s], ["40 GB", "10m"]);
});

test("how long to wait is told in the units of a person", () => {
  assert.match(explain(new ApiError(429, "", "daily_limit", null, 8_340)), /Try again in 2\.3 h\./);
  assert.match(explain(new ApiError(429, "", "limited", null, 7)), /Try again in 7 s\./);
});

test("routes and one-time codes are read off the fragment", () => {
  assert.deepEqual(routeOf("#/operate/keys"), { view: "operate", rest: ["keys"] });
  assert.equal(routeOf("").view, "create");
  assert.equal(routeOf("#/nonsense").view, "create");
  assert.equal(routeOf("#/share/%E0%A4%A").rest[0], "");
  assert.equal(codeOf("#code=abcdefghijklmnop"), "abcdefghijklmnop");
  assert.equal(codeOf("#/create"), null);
});

test("several seeds are so many bodies of one batch, and a given seed is the first", () => {
  const chosen = { id: "m", defaults: { size: "96x96" } } as unknown as VideoModel;
  const many = bodiesOf({ ...BLANK, prompt: " x ", seed: "4294967294", count: "4" }, chosen, "b", () => 0.5);
  assert.deepEqual(many.map((body) => body.seed), [4294967294, 4294967295, 0, 1]);
  assert.deepEqual(new Set(many.map((body) => body.batch)), new Set(["b"]));
  assert.deepEqual(bodiesOf({ ...BLANK, prompt: "x" }, chosen, "b", () => 0.5), [{ prompt: "x", model: "m" }]);
  assert.equal(bodiesOf({ ...BLANK, prompt: "x", count: "2" }, chosen, "b", () => 0)[0]!.seed, 0);
});

test("settings that the form does not show go with the model that they are of", () => {
  const chosen = { id: "m", defaults: { size: "96x96" } } as unknown as VideoModel;
  const taken = { prompt: "x", unseen: { shift: 3, loras: ["a:0.5"] } };
  assert.equal(bodiesOf({ ...BLANK, prompt: "x", model: "m", taken }, chosen, "b", Math.random)[0]!.shift, 3);
  assert.equal(bodiesOf({ ...BLANK, prompt: "x", model: "other", taken }, chosen, "b", Math.random)[0]!.shift, undefined);
});

test("messages branch, and no branch is lost when two tabs write", () => {
  const message = (id: string, parent: string | null, role: "user" | "assistant") => ({ id, parent, role, text: id, pictures: [], model: null, figures: null, broken: null, stopped: false });
  const said = [message("q", null, "user"), message("a", "q", "assistant"), message("b", "q", "assistant"), message("r", "a", "user")];
  assert.deepEqual(branchOf(said, "r").map((one) => one.id), ["q", "a", "r"]);
  assert.deepEqual(branchOf(said, null), []);
  assert.deepEqual(branchOf([message("x", "x", "user")], "x").length, 1);
  assert.deepEqual(besides(said, said[1]!).map((one) => one.id), ["a", "b"]);
  assert.equal(endBelow(said, "q"), "b");
  assert.equal(endBelow(said, "a"), "r");
  const merge = merged(said.slice(0, 3), [said[0]!, said[1]!, message("c", "q", "assistant")]);
  assert.deepEqual(merge.map((one) => one.id), ["q", "a", "b", "c"]);
});

test("bars have every day, the largest series first, and the rest together", () => {
  const amounts = [...Array(8).keys()].map((n) => ({ day: "2026-11-02", series: `s${n}`, amount: n + 1 }));
  const bars = barsOf([...amounts, { day: "2026-11-03", series: "s0", amount: 1 }], "2026-11-01", "2026-11-03", 6);
  assert.deepEqual(bars.days, ["2026-11-01", "2026-11-02", "2026-11-03"]);
  assert.deepEqual(bars.series.map((one) => one.name), ["s7", "s6", "s5", "s4", "s3", null]);
  assert.deepEqual(bars.series.at(-1), { name: null, total: 7, amounts: [0, 6, 1] });
  assert.equal(bars.highest, 36);
});

test("what cost something is not shown as nothing", () => {
  assert.equal(money(0.004, "USD"), "< 0.01 USD");
  assert.equal(money(0, "USD"), "0 USD");
  assert.equal(money(1.234, "USD"), "1.23 USD");
});
