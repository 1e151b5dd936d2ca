// What undici does not tell of the connection that it calls a handler for. It calls from within the connection's own events,
// so that a listener that was there before its own knows which connection, and which event, it is.

import type { Socket } from "node:net";

let current: Socket | undefined;
let isReset = false;

/** Watches a connection to a worker; to be called before undici gets it. */
export function watch(socket: Socket): void {
  for (const event of ["readable", "end", "close"]) {
    socket.on(event, () => {
      current = socket;
    });
  }
  socket.on("error", () => {
    isReset = true;
    process.nextTick(() => {
      isReset = false;
    });
  });
}

/** Whether the answer that is said to end now was cut: undici takes a reset for the end of an answer without a length. */
export function wasReset(): boolean {
  return isReset;
}

/**
 * Closes the connection of the answer that ends now, where the worker answered without reading the whole request: the next
 * one would wait behind the rest of it.
 */
export function closeUnlessSent(): void {
  if (current !== undefined && current.writableLength > 0) current.destroy();
}
