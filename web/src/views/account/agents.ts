// What a browser says of itself, in two words.

const BROWSERS: readonly [RegExp, string][] = [
  [/MicroMessenger/, "WeChat"],
  [/Lark|Feishu/, "Feishu"],
  [/DingTalk/, "DingTalk"],
  [/Edg\//, "Edge"],
  [/OPR\//, "Opera"],
  [/Firefox\//, "Firefox"],
  [/HeadlessChrome\/|Chrome\/|CriOS\//, "Chrome"],
  [/Safari\//, "Safari"],
];
const SYSTEMS: readonly [RegExp, string][] = [
  [/HarmonyOS|OpenHarmony/, "HarmonyOS"],
  [/Android/, "Android"],
  [/iPhone|iPad/, "iOS"],
  [/Windows/, "Windows"],
  [/Mac OS X|Macintosh/, "macOS"],
  [/Linux/, "Linux"],
];

/** "Firefox · Linux"; empty for what is none of those that are known. */
export function agentOf(agent: string): string {
  const found = [BROWSERS, SYSTEMS].map((known) => known.find(([pattern]) => pattern.test(agent))?.[1]);
  return found.filter((one) => one !== undefined).join(" · ");
}
