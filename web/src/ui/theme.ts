// Light, dark, or as the system says; remembered.
import { signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";

const STORED = "turnout.theme";

export const theme = signal<Theme>("system");
/** Rises with every change of what is shown: plots take their colours anew. */
export const repaint = signal(0);

export function beginTheme(): void {
  try {
    const stored = localStorage.getItem(STORED);
    if (stored === "light" || stored === "dark") show(stored);
  } catch {
    // Storage is switched off: the system's choice it is.
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => (repaint.value += 1));
}

export function setTheme(to: Theme): void {
  show(to);
  try {
    if (to === "system") localStorage.removeItem(STORED);
    else localStorage.setItem(STORED, to);
  } catch {
    // It lasts for as long as this tab is open.
  }
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
