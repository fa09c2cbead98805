// What the page does with its socket, on one that a test opens when it likes.
import assert from "node:assert/strict";
import { test } from "node:test";
import { connect, connection, disconnect } from "../src/tasks/socket";

class HeldSocket {
  static readonly CONNECTING = 0;
  static readonly OPEN = 1;
  static readonly all: HeldSocket[] = [];
  readyState = HeldSocket.CONNECTING;
  onopen: (() => void) | null = null;
  closes: string[] = [];

  constructor() {
    HeldSocket.all.push(this);
  }
  close(): void {
    this.closes.push(this.readyState === HeldSocket.CONNECTING ? "while connecting" : "open");
  }
  open(): void {
    this.readyState = HeldSocket.OPEN;
    this.onopen?.();
  }
}
Object.assign(globalThis, { WebSocket: HeldSocket, window: globalThis, location: { href: "http://page.example/" } });

test("a socket that is left while it connects is closed when it has connected", () => {
  connect({ cursor: () => null, message: () => assert.fail("nobody listens any more") });
  disconnect();
  const [left] = HeldSocket.all;
  assert.deepEqual(left!.closes, [], "browsers call that an error, in the console");
  left!.open();
  assert.deepEqual(left!.closes, ["open"]);
  assert.equal(connection.value, "off");
});
