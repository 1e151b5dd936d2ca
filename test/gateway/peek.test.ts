// Streams whose head is held back until their first event is known: an error there is one that another worker can mend.
import { setImmediate as turn } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import { open, post, text } from "./client.js";
import { CHAT, type Crew, crew, type Deed, hold, refuse, reset, serve } from "./crew.js";
import { untilDataPlane } from "./data-plane.js";
import { inFlight, until } from "./fixture.js";
import { VirtualClock } from "./virtual-clock.js";

const PEEK = { streams: { peek: true } };
const STREAM = { stream: true };
const FULL = 'data: {"error":{"message":"out of blocks","code":503}}\n\n';
const WORKING = ": working\n\n";
const GOOD = 'data: {"by":"w1"}\n\ndata: [DONE]\n\n';

/** Answers with 200 and a stream of these bytes, each chunk in a turn of its own. */
function stream(...chunks: (string | Buffer)[]): Deed {
  return async ({ response }) => {
    response.writeHead(200, { "content-type": "text/event-stream", "x-of": "the worker" });
    response.flushHeaders();
    for (const chunk of chunks) {
      response.write(chunk);
      await turn();
    }
    response.end();
  };
}

/** Sends a head and these bytes, and leaves the rest to the test. */
function begin(chunk = ""): Deed {
  return ({ response }) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.flushHeaders();
    if (chunk) response.write(chunk);
  };
}

/** Asks for a stream: the status, who answered, and the bytes. */
async function ask(self: Crew, key: string, members: object = {}, path = CHAT): Promise<unknown[]> {
  const body = { model: "m", ...STREAM, ...members };
  const { status, headers, body: bytes } = await post(self.running.url + path, body, { "x-session-id": key });
  return [status, headers["x-hawser-worker"], bytes];
}

/** The last request's line in the log. */
function logged({ running }: Crew): { level: number; failed?: string[] } {
  return running.log.map((line) => JSON.parse(line)).findLast(({ msg }) => msg === "request");
}

/** Resolves when the gateway has had the time to read what its worker wrote: a request there and back, and some turns. */
async function isRead({ running }: Crew): Promise<void> {
  await post(`${running.url}/v1/none`, {});
  for (let i = 0; i < 3; i++) await turn();
}

describe("an error as the first event", () => {
  const FAILED = 'data: {"type":"response.failed","response":{"id":"r","error":{"code":"server_error"}}}\n\n';
  const OVERLOADED = 'data: {"type":"error","error":{"type":"overloaded_error","message":"no"}}\n\n';

  it.each([
    [CHAT, FULL],
    ["/v1/completions", 'data: {"error":{"message":"no","code":429}}\n\n'],
    ["/v1/responses", `event: response.failed\n${FAILED}`],
    ["/v1/embeddings", FULL],
    ["/v1/messages", `event: error\n${OVERLOADED}`],
  ])("has another worker tried: %s (C15)", async (path, error) => {
    const self = await crew([stream(error), serve], PEEK);
    self.bind("w0", "s");
    expect(await ask(self, "s", {}, path)).toEqual([200, "w1", GOOD]);
    expect(self.order).toBe("w0 w1");
    expect(self.binding("s")).toMatchObject({ worker: "w1", turns: 2, moves: 1 });
    expect(logged(self).failed).toEqual([
      expect.stringMatching(/^w0: an error event, status (429|500|503)$/),
    ]);
    expect(await self.dataPlane()).toMatchObject({ retries: 1, outcomes: { complete: 1 } });
  });

  it("is seen behind comments and events without data, and split at every byte", async () => {
    const bytes = [...Buffer.from(`: ping\r\n\r\nevent: ping\n\n${FULL}`)].map((byte) => Buffer.of(byte));
    const self = await crew([stream(...bytes), serve], PEEK);
    expect(await ask(self, "s")).toEqual([200, "w1", GOOD]);
  });

  it("is the client's to see where that is not asked for, and binds as any answer", async () => {
    const self = await crew([stream(FULL), serve]);
    expect(await ask(self, "s")).toEqual([200, "w0", FULL]);
    expect(self.order).toBe("w0");
  });

  it("passes unaltered where no other worker is left, and binds nothing", async () => {
    const last = `: a comment\n\n${FULL}data: more\n\n`;
    const self = await crew([stream(FULL), stream(last)], PEEK);
    const message = await open(self.running.url + CHAT, { model: "m", ...STREAM }, { "x-session-id": "s" });
    expect(message.headers).toMatchObject({ "x-hawser-worker": "w1", "x-of": "the worker" });
    expect([message.statusCode, await text(message)]).toEqual([200, last]);
    expect(self.order).toBe("w0 w1");
    expect(self.binding("s")).toBeUndefined();
    expect(self.running.router.status().bindings).toBe(0);
    self.bind("w0", "t");
    await ask(self, "t");
    expect(self.binding("t")).toMatchObject({ worker: "w0", turns: 1, moves: 0 });
    expect(self.loads).toBe("0 0");
  });

  it.each([400, 404, 422])("of the client's making, %s, passes unaltered and binds nothing", async (code) => {
    const error = `data: {"error":{"message":"too long","code":${code}}}\n\n`;
    const self = await crew([stream(error, "data: [DONE]\n\n"), serve], PEEK);
    expect(await ask(self, "s")).toEqual([200, "w0", `${error}data: [DONE]\n\n`]);
    expect(self.order).toBe("w0");
    expect(self.binding("s")).toBeUndefined();
  });

  it("of the client's making is no failure of the worker's", async () => {
    const self = await crew([stream('data: {"error":{"code":400}}\n\n'), serve], {
      ...PEEK,
      log: { requests: "all" },
    });
    await ask(self, "s");
    await until(() => logged(self) !== undefined);
    const { level, failed = [] } = logged(self);
    expect({ level, failed }).toEqual({ level: 30, failed: [] });
  });

  it.each([{ store: true }, { conversation: "c" }])(
    "passes where %j may have been stored",
    async (members) => {
      const self = await crew([stream(FULL), serve], PEEK);
      expect(await ask(self, "s", members)).toEqual([200, "w0", FULL]);
      expect(self.order).toBe("w0");
      const may = await crew([stream(FULL), serve], { ...PEEK, retries: { stateful: true } });
      expect(await ask(may, "s", members)).toEqual([200, "w1", GOOD]);
    },
  );

  it("passes where the budget or the attempts are used up, or the client chose the worker", async () => {
    const poor = await crew([stream(FULL), serve], { ...PEEK, retries: { budget: 0 } });
    expect(await ask(poor, "s")).toEqual([200, "w0", FULL]);
    expect(await poor.dataPlane()).toMatchObject({ retries: 0, retries_refused: 1 });
    const once = await crew([stream(FULL), serve], { ...PEEK, retries: { attempts: 1 } });
    expect(await ask(once, "s")).toEqual([200, "w0", FULL]);
    const pinned = await crew([stream(FULL), serve], { ...PEEK, allowPin: true });
    const body = { model: "m", ...STREAM };
    const reply = await post(pinned.running.url + CHAT, body, { "x-hawser-pin": "w0" });
    expect(reply.body).toBe(FULL);
    expect(pinned.order).toBe("w0");
  });

  it("counts among the attempts with all other failures", async () => {
    const self = await crew([stream(FULL), refuse(503), reset, stream(FULL), serve], {
      ...PEEK,
      retries: { attempts: 4 },
    });
    expect(await ask(self, "s")).toEqual([200, "w3", FULL]);
    expect(self.order).toBe("w0 w1 w2 w3");
  });

  it("has its worker's stream aborted, with exact counts all the way", async () => {
    const self = await crew([hold, hold], PEEK);
    self.bind("w0", "s");
    const got = ask(self, "s");
    await until(() => self.order === "w0");
    begin(FULL.slice(0, 20))(self.asked[0]!);
    expect(self.loads).toBe("1 0");
    self.asked[0]!.response.write(FULL.slice(20));
    await until(() => self.order === "w0 w1" && self.asked[0]!.isGone);
    expect(self.loads).toBe("0 1");
    expect(self.running.audit.open).toBe(1);
    expect(self.binding("s")).toMatchObject({ worker: "w0", turns: 1 });
    serve(self.asked[1]!);
    expect(await got).toEqual([200, "w1", GOOD]);
    expect(self.loads).toBe("0 0");
  });
});

describe("a good first event", () => {
  it("passes with all before and behind it, unaltered", async () => {
    const whole = ': ping\r\n\r\nid: 1\n\ndata: {"a":"ü鍵"}\n\nevent: error\ndata: {}\n\ndata: [DONE]\n\n';
    const bytes = [...Buffer.from(whole)].map((byte) => Buffer.of(byte));
    for (const chunks of [[whole], bytes]) {
      const self = await crew([stream(...chunks), serve], PEEK);
      expect(await ask(self, "s")).toEqual([200, "w0", whole]);
      expect(self.binding("s")).toMatchObject({ worker: "w0", turns: 1 });
    }
  });

  it("lets the head go, and not before; nothing is bound until then", async () => {
    const self = await crew([begin("data: {}\n"), serve], PEEK);
    let isOpen = false;
    const opened = open(self.running.url + CHAT, { model: "m", ...STREAM }, { "x-session-id": "s" });
    void opened.then(() => {
      isOpen = true;
    });
    await until(() => self.order === "w0");
    // Another request, there and back: the gateway has had the time to read the bytes.
    await ask(self, "other", { messages: [] }, "/v1/none");
    expect(isOpen).toBe(false);
    expect(self.running.router.query({ key: "s", model: "m" })).toBeNull();
    const { response } = self.asked[0]!;
    response.write("\n");
    const message = await opened;
    expect(self.running.router.query({ key: "s", model: "m" })?.id).toBe("w0");
    response.end();
    expect(await text(message)).toBe("data: {}\n\n");
  });

  it("that never comes to its end lets all go at the end of the stream", async () => {
    for (const whole of ["", ": ping\n\n", "data: {"]) {
      const self = await crew([stream(...(whole ? [whole] : [])), serve], PEEK);
      expect(await ask(self, "s")).toEqual([200, "w0", whole]);
    }
  });

  it("that is too long to be looked at passes", async () => {
    const long = `data: {"error":{"code":503,"message":"${"x".repeat(70_000)}"}}\n\n`;
    const self = await crew([stream(long), serve], PEEK);
    expect(await ask(self, "s")).toEqual([200, "w0", long]);
    expect(self.binding("s")).toMatchObject({ worker: "w0" });
  });
});

describe("what is not looked at", () => {
  it.each<[name: string, status: number, headers: Record<string, string>]>([
    ["an answer that is no stream", 200, { "content-type": "application/json" }],
    ["a stream that is compressed", 200, { "content-type": "text/event-stream", "content-encoding": "gzip" }],
    ["another status than 200", 201, { "content-type": "text/event-stream" }],
  ])("%s", async (_name, status, headers) => {
    const deed: Deed = ({ response }) => {
      response.writeHead(status, headers);
      response.end(FULL);
    };
    const self = await crew([deed, serve], PEEK);
    expect(await ask(self, "s")).toEqual([status, "w0", FULL]);
    expect(self.order).toBe("w0");
  });
});

describe("while the head is held back", () => {
  it("a worker that breaks off is replaced: its client has heard nothing of it", async () => {
    for (const part of ["", ": ping\n\n", "data: {"]) {
      const self = await crew([hold, serve], PEEK);
      const got = ask(self, "s");
      await until(() => self.order === "w0");
      begin(part)(self.asked[0]!);
      // A request there and back, so that what was written has been read.
      await post(`${self.running.url}/v1/none`, {});
      await turn();
      self.asked[0]!.request.socket.end();
      expect(await got).toEqual([200, "w1", GOOD]);
      expect(self.order).toBe("w0 w1");
      expect(self.binding("s")).toMatchObject({ worker: "w1" });
    }
  });

  it("a worker that breaks off where nobody else is left is an error, not an empty stream", async () => {
    const self = await crew([hold], PEEK);
    const got = ask(self, "s");
    await until(() => self.order === "w0");
    begin(": ping\n\n")(self.asked[0]!);
    await isRead(self);
    self.asked[0]!.request.socket.end();
    expect(await got).toEqual([502, undefined, expect.stringContaining('"worker_unreachable"')]);
    expect(self.binding("s")).toBeUndefined();
  });

  it("a client that leaves has the worker's stream aborted", async () => {
    const self = await crew([begin("data: {"), serve], PEEK);
    const leave = new AbortController();
    const { url } = self.running;
    const body = JSON.stringify({ model: "m", ...STREAM });
    const got = fetch(url + CHAT, { method: "POST", body, signal: leave.signal }).catch(() => "left");
    await until(() => self.order === "w0");
    leave.abort();
    expect(await got).toBe("left");
    await until(() => self.asked[0]!.isGone && inFlight(self.running.router) === 0);
    expect(self.order).toBe("w0");
    expect(await self.dataPlane()).toMatchObject({ outcomes: { client_gone: 1 } });
  });

  it("a keep-alive lets it go: what comes then is the client's, though it is an error", async () => {
    const clock = new VirtualClock();
    const self = await crew([begin(), serve], { streams: { peek: true, keepAliveMs: 1_000 }, clock });
    const opened = open(self.running.url + CHAT, { model: "m", ...STREAM });
    await until(() => self.order === "w0");
    clock.advance(1_500);
    const message = await opened;
    self.asked[0]!.response.end(FULL);
    expect(await text(message)).toBe(`: keep-alive\n\n${FULL}`);
    expect(self.order).toBe("w0");
  });

  it("a worker that only comments is waited for as if it were silent: keep-alives, then all that it sent", async () => {
    const clock = new VirtualClock();
    const self = await crew([begin(WORKING), serve], { streams: { peek: true, keepAliveMs: 15_000 }, clock });
    const opened = open(self.running.url + CHAT, { model: "m", ...STREAM });
    await until(() => self.order === "w0");
    await isRead(self);
    for (let i = 0; i < 4; i++) {
      clock.advance(3_000);
      self.asked[0]!.response.write(WORKING);
      await isRead(self);
    }
    clock.advance(4_000);
    const message = await opened;
    self.asked[0]!.response.end(GOOD);
    expect(await text(message)).toBe(`${WORKING.repeat(5)}: keep-alive\n\n${GOOD}`);
  });

  it("a worker that has sent its head alone is waited for with one keep-alive after the other", async () => {
    const clock = new VirtualClock();
    const self = await crew([begin(), serve], { streams: { peek: true, keepAliveMs: 15_000 }, clock });
    const opened = open(self.running.url + CHAT, { model: "m", ...STREAM });
    await until(() => self.order === "w0");
    await isRead(self);
    clock.advance(60_000);
    const message = await opened;
    self.asked[0]!.response.end(GOOD);
    expect(await text(message)).toBe(`${": keep-alive\n\n".repeat(4)}${GOOD}`);
  });

  it("a worker that only comments has until the first byte is due, and no longer", async () => {
    const clock = new VirtualClock();
    const timeouts = { firstByteMs: 60_000, idleMs: 60_000 };
    const self = await crew([begin(WORKING), serve], { ...PEEK, timeouts, clock });
    const got = ask(self, "s");
    await until(() => self.order === "w0");
    for (let i = 0; i < 5; i++) {
      await isRead(self);
      clock.advance(10_000);
      self.asked[0]!.response.write(WORKING);
    }
    await isRead(self);
    expect(self.loads).toBe("1 0");
    clock.advance(12_000);
    expect(await got).toEqual([504, undefined, expect.stringContaining('"worker_timeout"')]);
    expect(self.loads).toBe("0 0");
  });

  it("a client that reads is not cut for all of it that goes out at once", async () => {
    const limits = { streamBufferBytes: 16_384 };
    const long = Array.from({ length: 40 }, () => `: ${"x".repeat(1_000)}\n\n`);
    for (const chunks of [
      [...long, GOOD],
      long,
      [long.join(""), GOOD],
      [GOOD, `data: ${"x".repeat(60_000)}\n\n`],
    ]) {
      const self = await crew([stream(...chunks), serve], { ...PEEK, limits });
      expect(await ask(self, "s")).toEqual([200, "w0", chunks.join("")]);
      expect(await self.dataPlane()).toMatchObject({ buffered_bytes: 0, outcomes: { complete: 1 } });
    }
  });

  it("a stream that is cut when it goes out does not end as if it were whole", async () => {
    // With its head it is above the limit, without it below.
    const limits = { bufferedTotalBytes: 64_000 };
    const deed: Deed = ({ response }) => {
      const headers = { "content-type": "text/event-stream", "x-large": "y".repeat(14_000) };
      response.writeHead(200, headers).end(`data: ${"x".repeat(48_000)}`);
    };
    const self = await crew([deed, serve], { ...PEEK, limits });
    const sent = { model: "m", ...STREAM };
    await expect(post(self.running.url + CHAT, sent)).rejects.toThrow("aborted");
    expect(await self.dataPlane()).toMatchObject({ outcomes: { client_too_slow: 1 } });
    expect(self.loads).toBe("0 0");
  });

  it("what is held back counts among all that waits, and is told of where that is too much", async () => {
    const limits = { bufferedTotalBytes: 64_000 };
    const self = await crew([begin(`data: ${"x".repeat(50_000)}`), serve], { ...PEEK, limits });
    const got = ask(self, "s").catch((error: Error) => error.message);
    await untilDataPlane(self.running.url, ({ buffered_bytes }) => buffered_bytes >= 50_000);
    self.asked[0]!.response.write("x".repeat(8_000));
    await until(() => self.asked[0]!.isGone);
    expect(await got).toEqual([502, undefined, expect.stringContaining('"client_too_slow"')]);
    expect(await self.dataPlane()).toMatchObject({ buffered_bytes: 0, outcomes: { client_too_slow: 1 } });
  });

  it("a worker that falls silent is told of by its time", async () => {
    const clock = new VirtualClock();
    const timeouts = { firstByteMs: 60_000, idleMs: 60_000 };
    const self = await crew([begin("data: {"), serve], { ...PEEK, timeouts, clock });
    const got = ask(self, "s");
    await until(() => self.order === "w0");
    clock.advance(150_000);
    expect(await got).toEqual([504, undefined, expect.stringContaining('"worker_timeout"')]);
    expect(self.loads).toBe("0 0");
  });
});

describe("a worker that has sent nothing but comments", () => {
  const MINUTE = 60_000;

  /** Has a worker send a comment, and resolves when the gateway has it; its client has got nothing. */
  async function comment(self: Crew): Promise<void> {
    const { response } = self.asked.at(-1)!;
    await new Promise<void>((resolve) => response.write(": working\n\n", () => resolve()));
    for (let i = 0; i < 3; i++) await turn();
  }

  it("is waited for as long as for a first byte, and no longer", async () => {
    const clock = new VirtualClock();
    const self = await crew([begin(), serve], { ...PEEK, clock });
    const reply = ask(self, "s");
    await until(() => self.asked.length === 1);
    for (let minutes = 0; minutes < 30; minutes += 5) {
      await comment(self);
      clock.advance(5 * MINUTE);
    }
    clock.advance(2_000);
    expect(await reply).toEqual([504, undefined, expect.stringContaining('"code":"worker_timeout"')]);
    expect(logged(self).failed).toEqual(["w0: first byte timeout"]);
    expect(self.loads).toBe("0 0");
  });

  it("does not keep its client from hearing that it goes on", async () => {
    const clock = new VirtualClock();
    const self = await crew([begin()], { streams: { peek: true, keepAliveMs: 15_000 }, clock });
    const opened = open(self.running.url + CHAT, { model: "m", ...STREAM });
    await until(() => self.asked.length === 1);
    await comment(self);
    clock.advance(15_000);
    const message = await opened;
    let got = "";
    message.setEncoding("utf8").on("data", (part: string) => {
      got += part;
    });
    await until(() => got === ": working\n\n: keep-alive\n\n");
    self.asked[0]!.response.end("data: 1\n\n");
    await until(() => got.endsWith("data: 1\n\n"));
  });
});
