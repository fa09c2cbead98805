// Owns the one WebSocket: it connects, reconnects with growing pauses, and hands on what comes.
import { signal } from "@preact/signals";
import { login } from "../api/auth";

const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 15_000;
const UNAUTHORIZED = 4401;

export type Connection = "off" | "connecting" | "open" | "waiting";

export const connection = signal<Connection>("off");

export interface Listener {
  /** Where a reconnect goes on from. */
  cursor(): string | null;
  message(text: string): void;
}

let socket: WebSocket | null = null;
let timer: number | undefined;
let pauseMs = FIRST_PAUSE_MS;

export function connect(listener: Listener): void {
  disconnect();
  pauseMs = FIRST_PAUSE_MS;
  dial(listener);
}

export function disconnect(): void {
  window.clearTimeout(timer);
  const old = socket;
  socket = null;
  old?.close(1000);
  connection.value = "off";
}

/** Tries at once instead of after the pause: the person asked for it, or the network is back. */
export function hurry(listener: Listener): void {
  if (connection.peek() === "waiting") connect(listener);
}

function dial(listener: Listener): void {
  const after = listener.cursor();
  const url = new URL("/v1/videos/ws", location.href);
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  if (after !== null) url.searchParams.set("after", after);
  connection.value = "connecting";
  const mine = new WebSocket(url);
  socket = mine;
  mine.onopen = () => {
    if (socket === mine) connection.value = "open";
  };
  mine.onmessage = (message) => {
    if (socket !== mine || typeof message.data !== "string") return;
    pauseMs = FIRST_PAUSE_MS;
    listener.message(message.data);
  };
  mine.onclose = (closed) => {
    if (socket !== mine) return;
    socket = null;
    if (closed.code === UNAUTHORIZED) {
      connection.value = "off";
      login.value = { state: "out", why: "expired" };
      return;
    }
    connection.value = "waiting";
    // Half of the pause is random: many pages do not come back in step.
    timer = window.setTimeout(() => dial(listener), pauseMs / 2 + (Math.random() * pauseMs) / 2);
    pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS);
  };
}
