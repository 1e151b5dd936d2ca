// What could end a whole gateway, tried on the built command in a process of its own.
import { once } from "node:events";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { expect, it, onTestFinished } from "vitest";
import { health, serve, until } from "../e2e/fleet.js";
import { open, text } from "./client.js";

const CHAT = "/v1/chat/completions";
const BYTES = 32_000_000;
const MODELS = '{"object":"list","data":[{"id":"m","object":"model"}]}';
const CLOSE = "HTTP/1.1 200 OK\r\nconnection: close\r\n";

/** A worker that answers every POST with `head` and `BYTES` bytes, then ends the connection by `end`. */
async function closingWorker(
  head: string,
  end: (socket: Socket) => void,
): Promise<{ url: string; gone: Socket[] }> {
  const gone: Socket[] = [];
  const sockets: Socket[] = [];
  const server = createServer((socket) => {
    sockets.push(socket);
    socket.on("error", () => {});
    let seen = "";
    socket.on("data", (chunk) => {
      seen += chunk;
      if (seen.startsWith("GET")) {
        seen = "";
        socket.write(`HTTP/1.1 200 OK\r\ncontent-length: ${MODELS.length}\r\n\r\n${MODELS}`);
      } else if (seen.endsWith("}")) {
        seen = "";
        socket.once("close", () => gone.push(socket));
        socket.write(head);
        socket.write(Buffer.alloc(BYTES, "x"), () => end(socket));
      }
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, gone };
}

it.each([
  ["with a length", "whole", `content-length: ${BYTES}\r\n\r\n`],
  ["with none", "whole", "\r\n"],
  ["with a greater length", "broken", `content-length: ${BYTES + 1}\r\n\r\n`],
  [
    "in a chunk that is not whole",
    "broken",
    `transfer-encoding: chunked\r\n\r\n${(BYTES + 1).toString(16)}\r\n`,
  ],
])(
  "readers that are slow, and a worker that says it closes and does: the gateway lives, the answer %s is %s",
  async (_name, result, head) => {
    const { url, gone } = await closingWorker(CLOSE + head, (socket) => socket.end());
    const gateway = await serve([url], { type: "sticky" });
    const messages = await Promise.all([1, 2, 3].map(() => open(gateway.url + CHAT, { model: "m" })));
    for (const message of messages) message.on("error", () => {});
    // Nothing of a body has been read when the worker's last connection is gone.
    await until(async () => gone.length === 3 || gateway.child.exitCode !== null);
    expect(gateway.child.exitCode).toBeNull();
    if (result === "whole") {
      for (const message of messages) expect((await text(message)).length).toBe(BYTES);
    } else {
      for (const message of messages) await expect(text(message)).rejects.toThrow("aborted");
    }
    expect((await health(gateway.url)).workers[0]!.active_requests).toBe(0);
    expect([gateway.child.exitCode, gateway.child.signalCode]).toEqual([null, null]);
  },
);
