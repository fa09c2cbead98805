// The language, and how keys of the table become words. `t` reads a signal: what calls it is rendered anew by a switch.
import { signal } from "@preact/signals";
import { storedText, storeText } from "../ui/stored";
import { TABLE, type Key } from "./table";

export type { Key };
export type Lang = "en" | "zh";

const STORED = "turnout.lang";

export const lang = signal<Lang>("en");

export function beginLang(): void {
  const before = storedText(STORED);
  show(before === "en" || before === "zh" ? before : navigator.language.toLowerCase().startsWith("zh") ? "zh" : "en");
}

export function setLang(to: Lang): void {
  show(to);
  storeText(STORED, to);
}

function show(to: Lang): void {
  lang.value = to;
  document.documentElement.lang = to === "zh" ? "zh-CN" : "en";
}

type Values = Record<string, string | number>;

/** The words of a key. `{n}` is a value, `{n:one|many}` chooses by whether it is 1. */
export function t(key: Key, values: Values = {}): string {
  return filled(TABLE[key][lang.value], values);
}

export function filled(text: string, values: Values): string {
  return text.replace(/\{(\w+)(?::([^|{}]*)\|([^{}]*))?\}/g, (_, name: string, one?: string, many?: string) => {
    const value = values[name] ?? "";
    if (one === undefined) return typeof value === "number" ? number(value) : value;
    return (Number(value) === 1 ? one : many) ?? "";
  });
}

function locale(): string {
  return lang.value === "zh" ? "zh-CN" : "en";
}

export function number(value: number, digits = 2): string {
  return new Intl.NumberFormat(locale(), { maximumFractionDigits: digits }).format(value);
}

/** Seconds in the words that a person would use. */
export function duration(seconds: number): string {
  if (seconds < 9.95) return t("time.seconds", { n: Math.max(seconds < 1 ? 0.1 : 1, Math.round(seconds * 10) / 10) });
  if (seconds < 90) return t("time.seconds", { n: Math.round(seconds) });
  if (seconds < 5400) return t("time.minutes", { n: Math.round(seconds / 60) });
  return t("time.hours", { n: Math.round(seconds / 360) / 10 });
}

export function ago(at: number, now: number): string {
  const seconds = Math.max(0, now - at);
  if (seconds < 60) return t("time.just_now");
  if (seconds < 90) return t("time.ago", { time: t("time.minutes", { n: 1 }) });
  if (seconds < 86_400) return t("time.ago", { time: duration(seconds) });
  return new Intl.DateTimeFormat(locale(), { dateStyle: "medium" }).format(at * 1000);
}

export function clock(at: number): string {
  return new Intl.DateTimeFormat(locale(), { dateStyle: "medium", timeStyle: "short" }).format(at * 1000);
}

export function bytes(count: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  let value = count;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${number(value, value < 10 ? 1 : 0)} ${units[unit]}`;
}
