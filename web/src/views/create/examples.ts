// Prompts to click for someone with no idea. The tiny models know coloured shapes that move and a few scenes, in English and Chinese, and nothing else.
import type { Lang } from "../../i18n";

export interface Example {
  readonly label: string;
  readonly prompt: string;
}

const TINY: readonly { en: string; prompt_en: string; zh: string; prompt_zh: string }[] = [
  { en: "Red square", prompt_en: "a red square moving to the right", zh: "移动的红方块", prompt_zh: "红色方块向右移动" },
  { en: "Spinning star", prompt_en: "a yellow star spinning on a blue background", zh: "旋转的星星", prompt_zh: "蓝色背景上一颗黄色的星星在旋转" },
  { en: "Sunrise", prompt_en: "the sun is rising", zh: "日出", prompt_zh: "太阳慢慢升起来" },
  { en: "Fireworks", prompt_en: "fireworks light up the night", zh: "烟花", prompt_zh: "夜空中的烟花" },
];

const LARGE: readonly { en: string; prompt_en: string; zh: string; prompt_zh: string }[] = [
  {
    en: "A fox in the snow",
    prompt_en: "A red fox trots through fresh snow at dawn, breath visible in the cold air, low tracking shot, soft golden light",
    zh: "雪地里的狐狸",
    prompt_zh: "清晨，一只红狐在新雪中小跑，呼出的白气清晰可见，低机位跟拍，柔和的金色晨光",
  },
  {
    en: "Rain on a city street",
    prompt_en: "Rain falls on a narrow city street at night, neon signs mirrored in the wet asphalt, people pass with umbrellas, slow push in",
    zh: "雨夜街头",
    prompt_zh: "夜雨中的小巷，霓虹灯倒映在湿漉漉的路面上，行人撑伞走过，镜头缓缓推进",
  },
  {
    en: "A paper boat",
    prompt_en: "A paper boat drifts down a clear mountain stream between mossy stones, macro shot, shallow depth of field",
    zh: "一只纸船",
    prompt_zh: "一只纸船顺着清澈的山涧漂流，两旁是长满青苔的石头，微距镜头，浅景深",
  },
  {
    en: "Tea being poured",
    prompt_en: "Green tea is poured into a small porcelain cup, steam rises in morning light, close-up, slow motion",
    zh: "倒一杯茶",
    prompt_zh: "青绿的茶汤缓缓注入小瓷杯，热气在晨光中升起，特写，慢动作",
  },
];

export function isTiny(weights: string): boolean {
  return weights.includes("wan-tiny");
}

export function examplesFor(weights: string, lang: Lang): Example[] {
  const all = isTiny(weights) ? TINY : LARGE;
  return all.map((one) => (lang === "zh" ? { label: one.zh, prompt: one.prompt_zh } : { label: one.en, prompt: one.prompt_en }));
}
