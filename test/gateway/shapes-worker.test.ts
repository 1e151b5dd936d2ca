// Odd shapes of answers, written by a worker byte by byte, and what becomes of its connections.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { request as httpRequest } from "node:http";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { describe, expect, it, onTestFinished } from "vitest";
import { open, post, text } from "./client.js";
import { gateway, inFlight, QUIET, until } from "./fixture.js";

const CHAT = "/v1/chat/completions";
const ask = { model: "m", messages: [] };
const OK = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
const MODELS = '{"object":"list","data":[{"id":"m","object":"model"}]}';

/** A POST as it came to a worker, its body whole. */
interface Received {
  readonly head: string;
  readonly body: string;
  readonly socket: Socket;
}

interface RawWorker {
  readonly url: string;
  /** Its connections, in the order of their opening. */
  readonly sockets: readonly Socket[];
  readonly posts: readonly Received[];
}

/** A worker that lists the model `m`, and answers every POST in bytes of its own. */
async function rawWorker(answer: (received: Received) => void): Promise<RawWorker> {
  const sockets: Socket[] = [];
  const posts: Received[] = [];
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    sockets.push(socket);
    let seen = "";
    socket.setEncoding("latin1");
    socket.on("error", () => {});
    socket.on("end", () => socket.end());
    socket.on("data", (chunk) => {
      seen += chunk;
      const split = seen.indexOf("\r\n\r\n") + 4;
      const length = Number(/content-length: (\d+)/i.exec(seen)?.[1] ?? 0);
      if (split < 4 || seen.length < split + length) return;
      const received = { head: seen.slice(0, split), body: seen.slice(split, split + length), socket };
      seen = seen.slice(split + length);
      if (received.head.startsWith("GET")) {
        socket.write(`HTTP/1.1 200 OK\r\ncontent-length: ${MODELS.length}\r\n\r\n${MODELS}`);
        return;
      }
      posts.push(received);
      answer(received);
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, sockets, posts };
}

/** A gateway over one worker, which is asked for its models no second time unless it fails. */
async function withRaw(answer: (received: Received) => void) {
  const worker = await rawWorker(answer);
  const running = await gateway({ urls: [worker.url], ...QUIET });
  return { ...running, worker, chat: running.url + CHAT };
}

/** A worker that gives the texts for answers, one each, and then that of `OK`. */
function inTurn(...answers: string[]): (received: Received) => void {
  return ({ socket }) => void socket.write(answers.shift() ?? OK, "latin1");
}

/**
 * A worker that answers as soon as it has seen a head. `unread` is how much of each body was yet to come; where it does not
 * read, a connection on which it is not all there is never looked at again.
 */
async function hastyWorker(reads: boolean): Promise<{ url: string; sockets: Socket[]; unread: number[] }> {
  const sockets: Socket[] = [];
  const unread: number[] = [];
  const server = createServer((socket) => {
    sockets.push(socket);
    let left = 0;
    socket.on("error", () => {});
    socket.on("data", (chunk: Buffer) => {
      const seen = chunk.subarray(left).toString("latin1");
      left = Math.max(0, left - chunk.length);
      if (seen === "") return;
      const length = /content-length: (\d+)/i.exec(seen)?.[1];
      if (length === undefined) {
        socket.write(`HTTP/1.1 200 OK\r\ncontent-length: ${MODELS.length}\r\n\r\n${MODELS}`);
        return;
      }
      left = Number(length) - (seen.length - seen.indexOf("\r\n\r\n") - 4);
      unread.push(left);
      if (left > 0 && !reads) socket.pause();
      socket.write(OK);
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, sockets, unread };
}

/** What a client has: status and body, or that the connection broke. */
async function outcome(url: string): Promise<string> {
  const reply = await post(url, ask).catch(() => null);
  return reply ? `${reply.status} ${reply.body}` : "broken";
}

describe("an answer whose framing is in doubt", () => {
  const tail = `{}${OK}`;
  it.each([
    ["two lengths, in different case", `content-length: 2\r\nContent-Length: 4\r\n\r\n${tail}`],
    ["one length twice, in different case", `Content-Length: 2\r\ncontent-length: 2\r\n\r\n${tail}`],
    ["two lengths in one line", `content-length: 2, 2\r\n\r\n${tail}`],
    ["a length that is none", `content-length: -2\r\n\r\n${tail}`],
    ["a length, then chunks", `content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n`],
    ["chunks, then a length", `Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n2\r\n{}\r\n0\r\n\r\n`],
    ["a bare CR", `a: 1\rx-evil: 2\r\ncontent-length: 2\r\n\r\n${tail}`],
    ["a folded value", `a: 1\r\n x-evil: 2\r\ncontent-length: 2\r\n\r\n${tail}`],
    ["a NUL in a value", `a: \x00\r\ncontent-length: 2\r\n\r\n${tail}`],
    ["a space before the colon", `content-length : 2\r\n\r\n${tail}`],
    ["a head without end", `a: ${"x".repeat(100_000)}\r\n\r\n`],
    ["a switch of protocols", `upgrade: x\r\nconnection: upgrade\r\n\r\n`],
    ["no HTTP at all", "SSH-2.0"],
  ])("is none: 502, and the next request has its own: %s", async (name, rest) => {
    const line =
      name === "no HTTP at all" ? "" : `HTTP/1.1 ${name.startsWith("a switch") ? 101 : 200} OK\r\n`;
    const { chat, worker, router } = await withRaw(inTurn(line + rest));
    const reply = await post(chat, ask);
    expect([reply.status, JSON.parse(reply.body).error.code]).toEqual([502, "worker_unreachable"]);
    await until(() => worker.posts[0]!.socket.destroyed);
    await until(() => router.status().workers[0]!.eligible);
    expect(await outcome(chat)).toBe("200 ok");
    expect(inFlight(router)).toBe(0);
  });

  it.each([
    ["lines in bare LF", "HTTP/1.1 200 OK\na: 1\nb: 2\ncontent-length: 2\n\nok"],
    ["one line in bare LF", "HTTP/1.1 200 OK\r\na: 1\nb: 2\r\ncontent-length: 2\r\n\r\nok"],
  ])("is refused or put right, nothing between: %s", async (_name, bytes) => {
    const { url } = await withRaw(inTurn(bytes));
    const { hostname, port } = new URL(url);
    const socket = connect(Number(port), hostname);
    const body = JSON.stringify(ask);
    socket.write(
      `POST ${CHAT} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
    );
    let seen = "";
    for await (const chunk of socket) seen += chunk;
    const [head, rest] = seen.split("\r\n\r\n");
    expect(head!.replaceAll("\r\n", "")).not.toMatch(/[\r\n]/);
    if (head!.startsWith("HTTP/1.1 200 ")) expect(rest).toBe("ok");
    else expect(head).toMatch(/^HTTP\/1\.1 502 /);
  });

  it.each([
    ["a chunk size that is none", "xx\r\n"],
    ["a chunk longer than its size", "2\r\nmore\r\n"],
    ["a chunk size beyond any counter", `${"f".repeat(17)}\r\n`],
  ])("breaks off where it turns out in its body: %s", async (_name, bytes) => {
    const { chat, router } = await withRaw(({ socket }) => {
      socket.write("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n");
      setImmediate(() => socket.write(bytes));
    });
    expect(["broken", "200 half"]).toContain(
      await outcome(chat).then((seen) => seen.replace(/^502.*/, "broken")),
    );
    await until(() => inFlight(router) === 0);
  });
});

describe("what a worker sends that nobody asked for", () => {
  it("a second answer in the packet of the first reaches nobody", async () => {
    const second = OK.replace("ok", "no");
    const { chat, worker } = await withRaw(inTurn(OK + second));
    expect(await outcome(chat)).toBe("200 ok");
    await until(() => worker.sockets[0]!.destroyed);
    expect([await outcome(chat), await outcome(chat)]).toEqual(["200 ok", "200 ok"]);
    expect(worker.posts.length).toBe(3);
  });

  it.each([
    ["an answer", OK.replace("ok", "no")],
    ["the head of one", "HTTP/1.1 200 OK\r\n"],
    ["an interim one", "HTTP/1.1 103 Early Hints\r\n\r\n"],
    ["a byte", "x"],
  ])("%s on an idle connection reaches nobody: that connection is not used again", async (_name, bytes) => {
    const { chat, worker } = await withRaw(inTurn());
    expect(await outcome(chat)).toBe("200 ok");
    const [idle] = worker.sockets;
    idle!.write(bytes);
    await until(() => idle!.destroyed);
    expect(await outcome(chat)).toBe("200 ok");
    expect(worker.posts[1]!.socket).not.toBe(idle);
  });

  it("an answer to a client that has left reaches nobody", async () => {
    const { chat, worker, router } = await withRaw(({ socket, body }) => {
      if (!body.includes("leaves")) socket.write(OK);
    });
    const leaving = httpRequest(chat, { method: "POST" }).on("error", () => {});
    leaving.end(JSON.stringify({ ...ask, user: "leaves" }));
    await until(() => worker.posts.length === 1);
    const left = worker.posts[0]!.socket;
    leaving.destroy();
    await until(() => inFlight(router) === 0);
    left.write(OK.replace("ok", "no"));
    await until(() => left.destroyed);
    for (let i = 0; i < 5; i++) expect(await outcome(chat)).toBe("200 ok");
  });

  it.each([
    ["of a length", `${OK}excess`],
    ["of chunks", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\nexcess"],
    ["of none", "HTTP/1.1 204 No Content\r\n\r\nexcess"],
  ])("bytes behind the end of a body %s reach nobody", async (_name, bytes) => {
    const { chat, worker } = await withRaw(inTurn(bytes));
    expect(await outcome(chat)).toMatch(/^20[04] (ok)?$/);
    await until(() => worker.sockets[0]!.destroyed);
    expect(await outcome(chat)).toBe("200 ok");
  });

  it("interim answers and the final one in one packet: the final one passes", async () => {
    const hints = "HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n";
    const { chat, worker } = await withRaw(inTurn(`${hints}HTTP/1.1 102 Processing\r\n\r\n${hints}${OK}`));
    const message = await open(chat, ask);
    expect([message.statusCode, message.headers.link, await text(message)]).toEqual([200, undefined, "ok"]);
    expect(await outcome(chat)).toBe("200 ok");
    expect(new Set(worker.posts.map(({ socket }) => socket)).size).toBe(1);
  });
});

describe("an answer without a body", () => {
  it.each([
    ["204", "HTTP/1.1 204 No Content\r\n\r\n"],
    ["304", "HTTP/1.1 304 Not Modified\r\netag: x\r\n\r\n"],
    ["200 of no bytes", "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"],
    ["200 of no chunks", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"],
  ])("%s passes, and both connections are used again", async (status, bytes) => {
    const { url, worker } = await withRaw(inTurn(bytes));
    const { hostname, port } = new URL(url);
    const socket = connect(Number(port), hostname);
    let seen = "";
    socket.on("data", (chunk) => {
      seen += chunk;
    });
    const body = JSON.stringify(ask);
    const one = `POST ${CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: ${body.length}\r\n\r\n${body}`;
    socket.write(one);
    await until(
      () => seen.startsWith(`HTTP/1.1 ${status.slice(0, 3)} `) && /\r\n\r\n(0\r\n\r\n)?$/.test(seen),
    );
    socket.write(one);
    await until(() => seen.endsWith("\r\n\r\nok"));
    socket.destroy();
    expect(worker.sockets.length).toBe(1);
  });
});

describe("an answer of unknown length", () => {
  const head = "HTTP/1.0 200 OK\r\ncontent-type: application/json\r\n\r\n";

  it.each([
    ["HTTP/1.0", head],
    ["HTTP/1.1", head.replace("1.0", "1.1")],
  ])("ends with the worker's connection: %s", async (_name, start) => {
    const { chat, worker } = await withRaw(({ socket }) => {
      socket.write(`${start}{"a":`);
      setImmediate(() => socket.end("1}"));
    });
    for (let i = 0; i < 2; i++) expect(await outcome(chat)).toBe('200 {"a":1}');
    expect(new Set(worker.posts.map(({ socket }) => socket)).size).toBe(2);
  });

  it("is not whole where that connection is reset", async () => {
    const { chat, worker, router } = await withRaw(({ socket }) => void socket.write(`${head}half`));
    const message = await open(chat, ask);
    await once(message, "readable");
    worker.posts[0]!.socket.resetAndDestroy();
    await expect(text(message)).rejects.toThrow("aborted");
    await until(() => inFlight(router) === 0);
  });

  it("of HTTP/1.0 with a length is whole by that, whatever comes of the connection", async () => {
    const { chat } = await withRaw(({ socket }) => {
      socket.end("HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 2\r\n\r\nok");
    });
    for (let i = 0; i < 3; i++) expect(await outcome(chat)).toBe("200 ok");
  });
});

describe("a worker that breaks off in mid-answer", () => {
  const framings = {
    chunked: "transfer-encoding: chunked\r\n\r\n8\r\ndata: 1\n\r\n",
    "mid-chunk": "transfer-encoding: chunked\r\n\r\n20\r\ndata: 1\n",
    "with a length": "content-length: 100\r\n\r\ndata: 1\n",
    "with a length, to be closed": "connection: close\r\ncontent-length: 100\r\n\r\ndata: 1\n",
    "chunked, to be closed": "connection: close\r\ntransfer-encoding: chunked\r\n\r\n8\r\ndata: 1\n\r\n",
  };
  const cases = Object.keys(framings).flatMap((framing) =>
    (["FIN", "RST"] as const).flatMap((end) =>
      ["text/event-stream", "application/json"].map((type) => [framing, end, type] as const),
    ),
  );
  it.each(cases)("%s, by %s: the client is told, %s", async (framing, end, type) => {
    const { chat, router, worker } = await withRaw(({ socket }) => {
      socket.write(
        `HTTP/1.1 200 OK\r\ncontent-type: ${type}\r\n${framings[framing as keyof typeof framings]}`,
      );
    });
    const message = await open(chat, ask);
    const chunks: Buffer[] = [];
    const over = (async () => {
      for await (const chunk of message) chunks.push(chunk as Buffer);
      return "whole";
    })().catch(() => "broken");
    await until(() => Buffer.concat(chunks).includes("data: 1"));
    const { socket } = worker.posts[0]!;
    if (end === "FIN") socket.end();
    else socket.resetAndDestroy();
    expect(await over).toBe("broken");
    const seen = Buffer.concat(chunks).toString();
    if (type === "text/event-stream") expect(seen).toMatch(/^data: 1\n\n\ndata: \{"error":.*\}\n\n$/);
    else expect(seen).toBe("data: 1\n");
    await until(() => inFlight(router) === 0);
    // Nothing of it is left for the next.
    await until(() => router.status().workers[0]!.eligible);
    const next = open(chat, ask);
    await until(() => worker.posts.length === 2);
    expect(worker.posts[1]!.socket).not.toBe(socket);
    (await next).destroy();
  });
});

describe("a connection to a worker", () => {
  it("is closed by the gateway before an engine would close it, at 5 s", async () => {
    const { chat, worker } = await withRaw(inTurn());
    const order: string[] = [];
    expect(await outcome(chat)).toBe("200 ok");
    const [socket] = worker.sockets;
    socket!.once("end", () => order.push("gateway"));
    const engine = new Promise<void>((resolve) =>
      setTimeout(() => resolve(void order.push("engine")), 5_000),
    );
    await until(() => order.length > 0);
    expect(order).toEqual(["gateway"]);
    await engine;
  });

  it("is closed earlier where the worker says that it keeps it less long", async () => {
    const { chat, worker } = await withRaw(
      inTurn("HTTP/1.1 200 OK\r\nkeep-alive: timeout=1\r\ncontent-length: 2\r\n\r\nok"),
    );
    expect(await outcome(chat)).toBe("200 ok");
    await until(() => worker.sockets[0]!.destroyed);
    expect(await outcome(chat)).toBe("200 ok");
  });

  it.each(["FIN", "RST"])(
    "that the worker closed while it was idle, by %s, is not used again",
    async (end) => {
      const { chat, worker } = await withRaw(inTurn());
      for (let i = 0; i < 20; i++) {
        expect(await outcome(chat)).toBe("200 ok");
        const { socket } = worker.posts.at(-1)!;
        // Its end is on its way when the next request comes.
        if (end === "FIN") socket.end();
        else socket.resetAndDestroy();
      }
      expect(new Set(worker.posts.map(({ socket }) => socket)).size).toBe(20);
    },
  );

  it("that the worker said it would close is not used again, though it is not closed", async () => {
    const closing = OK.replace("\r\n", "\r\nConnection: close\r\n");
    const { chat, worker } = await withRaw(inTurn(closing, closing));
    for (let i = 0; i < 3; i++) expect(await outcome(chat)).toBe("200 ok");
    expect(new Set(worker.posts.map(({ socket }) => socket)).size).toBe(3);
  });

  it.each([
    ["once it has", true],
    ["not while it has not", false],
  ])("on which it answered before it had read the request is used again %s", async (_name, reads) => {
    const { url, sockets, unread } = await hastyWorker(reads);
    const { url: to } = await gateway({ urls: [url], ...QUIET });
    const large = { ...ask, text: "x".repeat(20_000_000) };
    expect((await post(to + CHAT, large)).body).toBe("ok");
    expect(unread[0]).toBeGreaterThan(0);
    for (let i = 0; i < 3; i++) expect((await post(to + CHAT, ask)).body).toBe("ok");
    expect(unread.length).toBe(4);
    if (!reads) expect(sockets.length).toBe(2);
  });
});

describe("a reader that is slow", () => {
  const BYTES = 32_000_000;
  const ends = {
    "of a length, to be closed": [`connection: close\r\ncontent-length: ${BYTES}\r\n\r\n`, ""],
    "of chunks, to be closed": [
      `connection: close\r\ntransfer-encoding: chunked\r\n\r\n${BYTES.toString(16)}\r\n`,
      "\r\n0\r\n\r\n",
    ],
    "until the connection's end": ["\r\n", ""],
  };

  it.each(Object.entries(ends))(
    "has an answer whole whose worker is long gone: %s",
    async (_name, [head, tail]) => {
      const { chat, worker, router } = await withRaw(({ socket }) => {
        socket.write(`HTTP/1.1 200 OK\r\n${head}`);
        socket.write(Buffer.alloc(BYTES, "x"));
        socket.end(tail);
      });
      // The head is read, the body not.
      const message = await open(chat, ask);
      await until(() => worker.posts[0]!.socket.destroyed);
      expect(inFlight(router)).toBe(0);
      expect((await text(message)).length).toBe(BYTES);
    },
  );

  it("does not keep the worker's connection from the next request", async () => {
    const { chat, worker } = await withRaw(({ socket, body }) => {
      const size = body.includes("large") ? BYTES : 0;
      socket.write(`HTTP/1.1 200 OK\r\ncontent-length: ${size}\r\n\r\n`);
      socket.write(Buffer.alloc(size, "x"));
    });
    const slow = await open(chat, { ...ask, user: "large" });
    await until(() => worker.posts[0]!.socket.writableLength === 0);
    await until(() => worker.sockets.length === 1);
    for (let i = 0; i < 3; i++) expect(await outcome(chat)).toBe("200 ");
    expect((await text(slow)).length).toBe(BYTES);
  });

  it("is cut, and what it did not read reaches nobody else", async () => {
    const { chat, worker, router, log } = await withRaw(({ socket, body }) => {
      if (!body.includes("endless")) {
        socket.write(OK);
        return;
      }
      socket.write(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n",
      );
      const chunk = `10000\r\n${"x".repeat(0x10000)}\r\n`;
      const pump = () => {
        while (!socket.destroyed && socket.write(chunk));
        if (!socket.destroyed) socket.once("drain", pump);
      };
      pump();
    });
    const message = await open(chat, { ...ask, user: "endless" });
    message.on("error", () => {});
    const { socket } = worker.posts[0]!;
    await until(() => socket.destroyed);
    await until(() => inFlight(router) === 0);
    for (let i = 0; i < 5; i++) expect(await outcome(chat)).toBe("200 ok");
    expect(worker.posts.slice(1).some((each) => each.socket === socket)).toBe(false);
    expect(log.join()).not.toContain("worker failed");
  });
});

describe("a client that leaves while the worker's connection is being opened", () => {
  // Stopped, it takes no more connections than its backlog has room for.
  const program = `
    const http = require("node:http");
    const server = http.createServer((request, response) => {
      if (request.method === "GET") return response.end('${MODELS}');
      request.on("data", (chunk) => {
        process.stdout.write(chunk + "\\n");
        if (!/waits/.test(chunk)) response.end("ok");
      });
    });
    server.on("connection", () => console.log("connection"));
    server.listen({ port: 0, host: "127.0.0.1", backlog: 1 }, () => console.log(server.address().port));`;

  it("is counted down at once, and the worker never hears of it", async () => {
    const child = spawn(process.execPath, ["-e", program], { stdio: ["ignore", "pipe", "inherit"] });
    onTestFinished(() => void child.kill("SIGKILL"));
    let printed = "";
    child.stdout.on("data", (chunk) => {
      printed += chunk;
    });
    await until(() => printed.endsWith("\n"));
    const port = Number(printed);
    const { url, router } = await gateway({
      urls: [`http://127.0.0.1:${port}`],
      ...QUIET,
    });
    const client = (user: string) => {
      const sent = httpRequest(url + CHAT, { method: "POST" }).on("error", () => {});
      sent.end(JSON.stringify({ ...ask, user }));
      onTestFinished(() => void sent.destroy());
      return sent;
    };
    // Takes the connection that is open.
    client("waits");
    await until(() => printed.includes("waits"));
    child.kill("SIGSTOP");
    for (let i = 0; i < 2; i++) {
      const filler = connect(port, "127.0.0.1");
      onTestFinished(() => void filler.destroy());
      await once(filler, "connect");
    }
    const leaving = client("leaves");
    await until(() => inFlight(router) === 2);
    leaving.destroy();
    await until(() => inFlight(router) === 1);
    child.kill("SIGCONT");
    expect(await outcome(url + CHAT)).toBe("200 ok");
    // The system tries again after a second: that of the one who left opens at last, unless it was given up.
    await Promise.race([until(() => printed.split("connection").length === 6), delay(5_000)]);
    expect(await outcome(url + CHAT)).toBe("200 ok");
    expect(printed).not.toContain("leaves");
  });
});
