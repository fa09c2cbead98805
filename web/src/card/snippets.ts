// A video's request as a command and as a program, to be taken elsewhere. Pure. No key stands in them.
import type { Video } from "../api/schema";

type Asked = Pick<Video, "prompt" | "model" | "size" | "frames" | "fps" | "steps" | "guidance" | "shift" | "negative_prompt" | "seed" | "has_image">;

/** What the picture is called in them: the page does not know where the person has it. */
const PICTURE = "first-frame.png";

function fieldsOf(video: Asked): Record<string, unknown> {
  const fields: Record<string, unknown> = {
    model: video.model,
    prompt: video.prompt,
    size: video.size,
    frames: video.frames,
    fps: video.fps,
    steps: video.steps,
    guidance: video.guidance,
    shift: video.shift,
    seed: video.seed,
  };
  if (video.negative_prompt !== "") fields.negative_prompt = video.negative_prompt;
  return fields;
}

/** For a POSIX shell: nothing within single quotes means anything but itself. */
function quoted(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

export function curlOf(video: Asked, origin: string): string {
  const head = [`curl ${quoted(`${origin}/v1/videos`)}`, `-H "Authorization: Bearer $TURNOUT_API_KEY"`];
  const body = video.has_image
    ? [...Object.entries(fieldsOf(video)).map(([name, value]) => `--form-string ${quoted(`${name}=${String(value)}`)}`), `-F input_reference=@${PICTURE}`]
    : ["-H 'Content-Type: application/json'", `-d ${quoted(JSON.stringify(fieldsOf(video)))}`];
  return [...head, ...body].join(" \\\n  ");
}

/** JSON strings are Python strings; of numbers and lists of them it is true as well. */
export function pythonOf(video: Asked, origin: string): string {
  const { model, prompt, size, ...extra } = fieldsOf(video);
  return [
    "import os",
    "",
    "from openai import OpenAI",
    "",
    `client = OpenAI(base_url=${JSON.stringify(`${origin}/v1`)}, api_key=os.environ["TURNOUT_API_KEY"])`,
    "video = client.videos.create_and_poll(",
    `    model=${JSON.stringify(model)},`,
    `    prompt=${JSON.stringify(prompt)},`,
    `    size=${JSON.stringify(size)},`,
    ...(video.has_image ? [`    input_reference=open(${JSON.stringify(PICTURE)}, "rb"),`] : []),
    `    extra_body=${JSON.stringify(extra)},`,
    ")",
    'client.videos.download_content(video.id).write_to_file("video.mp4")',
    "",
  ].join("\n");
}
