// Light, dark, or as the system says; remembered.
import { signal } from "@preact/signals";
import { storedText, storeText } from "./stored";

export type Theme = "system" | "light" | "dark";

const STORED = "turnout.theme";

export const theme = signal<Theme>("system");
/** Rises with every change of what is shown: plots take their colours anew. */
export const repaint = signal(0);

export function beginTheme(): void {
  const before = storedText(STORED);
  if (before === "light" || before === "dark") show(before);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => (repaint.value += 1));
}

export function setTheme(to: Theme): void {
  show(to);
  storeText(STORED, to === "system" ? null : to);
}

function show(to: Theme): void {
  theme.value = to;
  if (to === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = to;
  repaint.value += 1;
}

export function calm(): boolean {
  return matchMedia("(prefers-reduced-motion: reduce)").matches;
}
