// A chat answer as it streams: lines of server-sent events become pieces of text, comments and a count. Pure.

export type Piece =
  | { readonly kind: "text"; readonly text: string }
  | { readonly kind: "usage"; readonly tokens: number }
  | { readonly kind: "error"; readonly message: string; readonly code: string | null }
  | { readonly kind: "waiting" }
  | { readonly kind: "done" };

/** Takes the bytes' text in any slices, and gives whole pieces. */
export class Reader {
  private rest = "";

  feed(text: string): Piece[] {
    const lines = (this.rest + text).split(/\r\n|\n|\r(?!$)/);
    this.rest = lines.pop() ?? "";
    return lines.flatMap(piecesOf);
  }
}

function piecesOf(line: string): Piece[] {
  if (line.startsWith(":")) return [{ kind: "waiting" }];
  if (!line.startsWith("data:")) return [];
  const data = line.slice(5).trim();
  if (data === "[DONE]") return [{ kind: "done" }];
  let said: Chunk;
  try {
    said = JSON.parse(data) as Chunk;
  } catch {
    return [];
  }
  if (said.error) return [{ kind: "error", message: said.error.message ?? "", code: said.error.code ?? null }];
  const pieces: Piece[] = [];
  const text = said.choices?.[0]?.delta?.content;
  if (text) pieces.push({ kind: "text", text });
  if (said.usage?.completion_tokens !== undefined) pieces.push({ kind: "usage", tokens: said.usage.completion_tokens });
  return pieces;
}

interface Chunk {
  choices?: { delta?: { content?: string | null } }[];
  usage?: { completion_tokens?: number } | null;
  error?: { message?: string; code?: string | null };
}

export interface Stats {
  readonly tokens: number;
  readonly firstTokenMs: number;
  readonly tokensPerSecond: number | null;
}

/** The figures under an answer. Without the engine's own count every piece counts as one token. */
export function statsOf(startedAt: number, firstAt: number, lastAt: number, pieces: number, counted: number | null): Stats {
  const tokens = counted ?? pieces;
  const seconds = (lastAt - firstAt) / 1000;
  return {
    tokens,
    firstTokenMs: Math.round(firstAt - startedAt),
    tokensPerSecond: tokens > 1 && seconds > 0 ? (tokens - 1) / seconds : null,
  };
}
