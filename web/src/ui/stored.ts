// What the browser keeps for this page. Where storage is switched off, or full, nothing is kept and nothing is found.

type Where = "localStorage" | "sessionStorage";

export function storedText(name: string, where: Where = "localStorage"): string | null {
  try {
    return window[where].getItem(name);
  } catch {
    return null;
  }
}

/** Null: it is forgotten. */
export function storeText(name: string, value: string | null, where: Where = "localStorage"): void {
  try {
    if (value === null) window[where].removeItem(name);
    else window[where].setItem(name, value);
  } catch {
    // It lasts for as long as this tab is open.
  }
}
