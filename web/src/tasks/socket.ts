// Owns the one WebSocket: it connects, reconnects with growing pauses, and hands on what comes.
import { signal } from "@preact/signals";
import { login } from "../api/auth";

const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 15_000;
const UNAUTHORIZED = 4401;
// A network that is gone closes no socket. While somebody waits for something, silence is noticed within two seconds.
const PING_MS = 400;
const SILENT_MS = 1_300;
const SLEPT_MS = 3_000;
const GIVEN_UP_MS = 8_000;

export type Connection = "off" | "connecting" | "open" | "waiting";

export const connection = signal<Connection>("off");
/** Whether what is shown may be old: the socket is away, or silent. */
export const lost = signal(false);

export interface Listener {
  /** Where a reconnect goes on from. */
  cursor(): string | null;
  message(text: string): void;
}

let socket: WebSocket | null = null;
let timer: number | undefined;
let pauseMs = FIRST_PAUSE_MS;
let pinging: number | undefined;
let heardAt = 0;
let askedAt = 0;

/** Whether somebody waits for something: only then is the gateway asked again and again whether it is there. */
export function listenClosely(on: boolean): void {
  if (on && pinging === undefined) heardAt = performance.now(); // nobody asked before
  window.clearInterval(pinging);
  pinging = on ? window.setInterval(ping, PING_MS) : undefined;
}

function ping(): void {
  if (document.hidden || socket?.readyState !== WebSocket.OPEN) return;
  const now = performance.now();
  // A tab that was asleep has heard nothing, and asked nothing.
  if (now - askedAt > SLEPT_MS) heardAt = now;
  askedAt = now;
  if (now - heardAt > SILENT_MS) lost.value = true;
  if (now - heardAt > GIVEN_UP_MS) drop(socket);
  else if (socket.bufferedAmount === 0) socket.send("ping");
}

/** As if it had closed: one that nobody answers would take minutes to. */
function drop(silent: WebSocket): void {
  silent.close();
  silent.onclose?.(new CloseEvent("close"));
}

export function connect(listener: Listener): void {
  disconnect();
  pauseMs = FIRST_PAUSE_MS;
  dial(listener);
}

export function disconnect(): void {
  window.clearTimeout(timer);
  const old = socket;
  socket = null;
  if (old !== null) hangUp(old);
  connection.value = "off";
  lost.value = false;
}

/** One that is still connecting is closed when it has connected: before, browsers write an error into the console. */
function hangUp(old: WebSocket): void {
  if (old.readyState === WebSocket.CONNECTING) old.onopen = () => old.close(1000);
  else old.close(1000);
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
    if (socket !== mine) return;
    connection.value = "open";
    heardAt = performance.now();
    lost.value = false;
  };
  mine.onmessage = (message) => {
    if (socket !== mine || typeof message.data !== "string") return;
    pauseMs = FIRST_PAUSE_MS;
    heardAt = performance.now();
    lost.value = false;
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
    lost.value = true;
    // Half of the pause is random: many pages do not come back in step.
    timer = window.setTimeout(() => dial(listener), pauseMs / 2 + (Math.random() * pauseMs) / 2);
    pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS);
  };
}
