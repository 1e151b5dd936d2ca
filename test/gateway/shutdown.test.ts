// How a gateway ends: nothing new, what is under way finishes, and what does not is cut with an error that says so.
import { once } from "node:events";
import { type IncomingMessage, request, type ServerResponse } from "node:http";
import { connect } from "node:net";
import { describe, expect, it } from "vitest";
import { open, text } from "./client.js";
import { type GatewayFixture, gateway, inFlight, until, upstream } from "./fixture.js";

const CHAT = "/v1/chat/completions";
const ask = { model: "m", messages: [] };
const AN_HOUR = 3_600_000;

/** A gateway over one worker, which answers when it is told to. */
async function withWaiting(options: Omit<GatewayFixture, "urls"> = {}) {
  const waiting: ServerResponse[] = [];
  const aborted: boolean[] = [];
  const worker = await upstream((_request, response) => {
    response.on("close", () => aborted.push(!response.writableFinished));
    waiting.push(response);
  });
  return { waiting, aborted, ...(await gateway({ ...options, urls: [worker.url] })) };
}

/** Opens a stream that has begun. */
async function stream(url: string, waiting: ServerResponse[], path = CHAT): Promise<IncomingMessage> {
  const seen = waiting.length;
  const message = open(url + path, { ...ask, stream: true });
  await until(() => waiting.length > seen);
  waiting.at(-1)!.writeHead(200, { "content-type": "text/event-stream" }).write("data: 1\n\n");
  return message;
}

describe("drain", () => {
  it("resolves at once where nothing is under way", async () => {
    const { gateway: running, url } = await withWaiting();
    expect(await running.drain(AN_HOUR)).toEqual({ cut: 0, by: null });
    await expect(open(url + CHAT, ask)).rejects.toThrow("ECONNREFUSED");
  });

  it("accepts nothing more, and lets streams and answers finish whole", async () => {
    const { gateway: running, url, waiting } = await withWaiting();
    const begun = await stream(url, waiting);
    const unanswered = open(url + CHAT, ask);
    await until(() => waiting.length === 2);
    const drained = running.drain(AN_HOUR);
    await expect(open(url + CHAT, ask)).rejects.toThrow("ECONNREFUSED");
    waiting[1]!.end("{}");
    const answer = await unanswered;
    // A client that keeps its connection is told that it will not be kept.
    expect(answer.headers.connection).toBe("close");
    expect(await text(answer)).toBe("{}");
    waiting[0]!.end("data: [DONE]\n\n");
    expect(await text(begun)).toBe("data: 1\n\ndata: [DONE]\n\n");
    expect((await drained).cut).toBe(0);
  });

  it("waits for a client that still takes what its worker has long sent", async () => {
    const { gateway: running, url, waiting, log } = await withWaiting({ log: { requests: "all" } });
    const size = 20_000_000;
    const unread = open(url + CHAT, ask);
    await until(() => waiting.length === 1);
    waiting[0]!.end(Buffer.alloc(size, "x"));
    const message = (await unread).pause();
    await until(() => waiting[0]!.writableFinished);
    const drained = running.drain(AN_HOUR);
    await new Promise((resolve) => setTimeout(resolve, 100));
    expect(log.filter((line) => line.includes('"outcome"'))).toEqual([]);
    expect((await text(message)).length).toBe(size);
    expect(await drained).toEqual({ cut: 0, by: null });
    expect(log.filter((line) => line.includes('"outcome":"complete"'))).toHaveLength(1);
  });

  it("counts among those that it cut a client that does not take the rest in time", async () => {
    const { gateway: running, url, waiting, log } = await withWaiting({ log: { requests: "all" } });
    const unread = open(url + CHAT, ask);
    await until(() => waiting.length === 1);
    waiting[0]!.end(Buffer.alloc(20_000_000, "x"));
    const message = (await unread).pause();
    await until(() => waiting[0]!.writableFinished);
    expect(await running.drain(50)).toEqual({ cut: 1, by: "deadline" });
    await expect(text(message)).rejects.toThrow();
    const told = log.filter((line) => line.includes('"outcome"'));
    expect(told.map((line) => JSON.parse(line).outcome)).toEqual(["shutting_down"]);
  });

  it("refuses what comes on a connection that is open, and says that it is not ready", async () => {
    const { gateway: running, url, waiting, router } = await withWaiting();
    const socket = connect(Number(new URL(url).port), "127.0.0.1");
    socket.on("error", () => {});
    socket.write("GET /health HTTP/1.1\r\nhost: x\r\n\r\n");
    await once(socket, "data");
    // Its first half: a connection that is not idle, and no request under way.
    socket.write("GET /health HTTP/1.1\r\n");
    const begun = await stream(url, waiting);
    const drained = running.drain(AN_HOUR);
    socket.write("host: x\r\n\r\n");
    const [health] = await once(socket, "data");
    expect(String(health)).toMatch(/^HTTP\/1\.1 503 [\s\S]*"status":"shutting_down"/);
    expect(inFlight(router)).toBe(1);
    waiting[0]!.end();
    await text(begun);
    expect((await drained).cut).toBe(0);
    socket.destroy();
  });

  it.each([
    [CHAT, /data: \{"error":\{"message":"the gateway is shutting down"/],
    ["/v1/messages", /event: error\ndata: .*the gateway is shutting down/],
    ["/v1/responses", /event: response\.failed\ndata: .*the gateway is shutting down/],
  ])(
    "cuts at the deadline with the error of the API, and the worker's request with it: %s",
    async (path, event) => {
      const { gateway: running, url, waiting, aborted, router } = await withWaiting();
      const begun = await stream(url, waiting, path);
      const unanswered = open(url + path, ask);
      await until(() => waiting.length === 2);
      expect(await running.drain(1)).toEqual({ cut: 2, by: "deadline" });
      const answer = await unanswered;
      expect(answer.statusCode).toBe(503);
      expect(await text(answer)).toContain("the gateway is shutting down");
      const chunks: Buffer[] = [];
      begun.on("data", (chunk) => chunks.push(chunk));
      await once(begun, "error");
      expect(Buffer.concat(chunks).toString()).toMatch(event);
      await until(() => aborted.length === 2);
      expect(aborted).toEqual([true, true]);
      expect(inFlight(router)).toBe(0);
    },
  );

  it("is over at the next close, whatever the deadline", async () => {
    const { gateway: running, url, waiting } = await withWaiting();
    const begun = await stream(url, waiting);
    const drained = running.drain(AN_HOUR);
    await running.close();
    expect(await drained).toEqual({ cut: 1, by: "close" });
    await expect(text(begun)).rejects.toThrow("aborted");
  });

  it("was the deadline's doing also where `close` is called while the clients that it cut are told", async () => {
    const { gateway: running, url, waiting, log } = await withWaiting();
    const begun = await stream(url, waiting);
    // It reads nothing, so that it is waited for.
    begun.pause();
    waiting[0]!.write(Buffer.alloc(900_000, "x"));
    const drained = running.drain(1);
    await until(() => log.some((line) => line.includes('"outcome":"shutting_down"')));
    await running.close();
    expect(await drained).toEqual({ cut: 1, by: "deadline" });
    begun.on("error", () => {}).destroy();
  });

  it("forgets a client that leaves meanwhile", async () => {
    const { gateway: running, url, waiting } = await withWaiting();
    const sent = request(url + CHAT, { method: "POST" }).on("error", () => {});
    sent.end(JSON.stringify(ask));
    await until(() => waiting.length === 1);
    const drained = running.drain(AN_HOUR);
    sent.destroy();
    expect((await drained).cut).toBe(0);
  });
});
