// What a model can be asked for: sizes, lengths, and how long it will take. Pure.
import type { ModelDefaults } from "../../api/schema";

export interface Rules {
  readonly sizes: readonly string[];
  readonly size_multiple: number;
  readonly frame_multiple: number;
  readonly max_pixels: number;
  readonly max_frames: number;
  readonly ulysses: number;
  readonly defaults: Pick<ModelDefaults, "size" | "frames" | "fps">;
}

export interface Size {
  readonly width: number;
  readonly height: number;
}

const RATIOS: readonly (readonly [number, number])[] = [[1, 1], [16, 9], [9, 16], [4, 3], [3, 4]];

export function readSize(text: string): Size {
  const [width, height] = text.split("x").map(Number);
  return { width: width || 1, height: height || 1 };
}

/** The sizes to offer: the model's own list, or the usual shapes around the area of its default size. */
export function sizesOf(rules: Rules): string[] {
  if (rules.sizes.length > 0) return [...rules.sizes];
  const usual = readSize(rules.defaults.size);
  const area = Math.min(usual.width * usual.height, rules.max_pixels);
  const offered = [rules.defaults.size];
  for (const [across, up] of RATIOS) {
    const size = fitted(rules, Math.sqrt((area * across) / up), Math.sqrt((area * up) / across));
    if (size !== null && !offered.includes(size)) offered.push(size);
  }
  const twice = fitted(rules, usual.width * 2, usual.height * 2);
  if (twice !== null && !offered.includes(twice)) offered.push(twice);
  return offered;
}

/** The nearest size that the model and the split over its gang allow; null when there is none. */
function fitted(rules: Rules, width: number, height: number): string | null {
  const step = rules.size_multiple;
  const columns = Math.max(1, Math.round(width / step));
  const rows = Math.max(1, Math.round(height / step));
  if (columns * rows * step * step > rules.max_pixels) return null;
  // Every length must be fine with it, so the patches of one frame are what has to be divisible.
  if ((columns * rows) % rules.ulysses !== 0) return null;
  return `${columns * step}x${rows * step}`;
}

export interface Length {
  readonly frames: number;
  readonly seconds: number;
}

/** One frame is a picture. */
export const STILL = 1;

/** The lengths to offer, shortest first: a still, then clips. */
export function lengthsOf(rules: Rules): Length[] {
  const lengths: Length[] = [{ frames: STILL, seconds: 0 }];
  for (let frames = rules.frame_multiple + 1; frames <= rules.max_frames; frames += rules.frame_multiple)
    lengths.push({ frames, seconds: (frames - 1) / rules.defaults.fps });
  return lengths;
}
