// Odd shapes of requests, written to the gateway's socket byte by byte.
import { once } from "node:events";
import type { IncomingMessage, ServerResponse } from "node:http";
import { describe, expect, it } from "vitest";
import { type Answer as Act, gateway, inFlight, type RunningGateway, until, upstream } from "./fixture.js";
import { BODY, CHAT, headersOf, post, request, Wire } from "./wire.js";

interface Received {
  readonly request: IncomingMessage;
  readonly body: string;
}

/** A gateway over one worker. */
async function withWorker(
  act: Act = (_request, response) => response.end("{}"),
): Promise<RunningGateway & { received: Received[]; wire: Wire }> {
  const received: Received[] = [];
  const worker = await upstream((request, response, body) => {
    received.push({ request, body: body.toString("latin1") });
    act(request, response, body);
  });
  const running = await gateway({ urls: [worker.url] });
  return { ...running, received, wire: new Wire(running.url) };
}

describe("a request whose framing is in doubt", () => {
  const smuggled = post(BODY);
  const chunked = `2\r\n{}\r\n0\r\n\r\n${smuggled}`;
  const lengths = (lines: string[]) => request(CHAT, lines, BODY + smuggled);
  it.each([
    ["a length, then chunks", request(CHAT, ["content-length: 2", "transfer-encoding: chunked"], chunked)],
    ["chunks, then a length", request(CHAT, ["Transfer-Encoding: chunked", "Content-Length: 2"], chunked)],
    ["one length twice, in different case", lengths(["content-length: 13", "CONTENT-LENGTH: 13"])],
    ["two lengths, in different case", lengths(["content-length: 13", "Content-length: 1"])],
    ["two lengths in one line", lengths(["content-length: 13, 13"])],
    ["a length with a sign", lengths(["content-length: +13"])],
    ["a length that is no number", lengths(["content-length: 0xd"])],
    ["a length too large for any counter", lengths(["content-length: 99999999999999999999"])],
    ["a space before the colon", lengths(["content-length : 13"])],
    ["a coding that only looks like chunked", request(CHAT, ["transfer-encoding: xchunked"], chunked)],
    ["chunked twice", request(CHAT, ["transfer-encoding: chunked, chunked"], chunked)],
    ["chunked with a control character", request(CHAT, ["transfer-encoding: \x0bchunked"], chunked)],
    ["a chunk size in another notation", request(CHAT, ["transfer-encoding: chunked"], `0x${chunked}`)],
    ["chunks in bare LF", request(CHAT, ["transfer-encoding: chunked"], chunked.replaceAll("\r\n", "\n"))],
    ["a chunk longer than its size", request(CHAT, ["transfer-encoding: chunked"], `1${chunked.slice(1)}`)],
    ["a head in bare LF", post(BODY).replaceAll("\r\n", "\n")],
    ["one line of a head in bare LF", post(BODY, ["a: 1\nb: 2"])],
    ["an empty line in bare LF", post(BODY).replace("\r\n\r\n", "\r\n\n")],
    ["a bare CR in a value", post(BODY, ["a: 1\rb: 2"])],
    ["a bare CR before the colon", post(BODY, ["a\r: 1"])],
    ["a folded value", post(BODY, ["a: 1", "\tfolded"])],
    ["a fold as the first line", request(CHAT, []).replace("host", " host")],
    ["a NUL in a value", post(BODY, ["a: \x00"])],
    ["no name", post(BODY, [": 1"])],
    ["no host", post(BODY).replace("host: x\r\n", "")],
    ["a version that is none", post(BODY).replace("HTTP/1.1", "HTTP/1.1.1")],
    ["a space in the path", post(BODY, [], `${CHAT}?a b`)],
  ])("is refused, and nothing of it reaches a worker: %s", async (_name, bytes) => {
    const { received, wire } = await withWorker();
    wire.send(bytes);
    await wire.answers(1);
    wire.socket.end();
    await until(() => wire.end !== undefined);
    // Whatever else was in the packet is no request of its own: one answer, and the connection is at its end.
    expect((await wire.statuses(0)).join()).toMatch(/^(400|501)$/);
    expect(received).toEqual([]);
  });

  it.each(["gzip", "gzip, chunked", "deflate, chunked", "compress, gzip, chunked"])(
    "has 501 for an answer where its transfer coding is %s",
    async (coding) => {
      const { received, wire } = await withWorker();
      wire.send(request(CHAT, [`Transfer-Encoding: ${coding}`], "2\r\n{}\r\n0\r\n\r\n"));
      const [answer] = await wire.answers(1);
      expect(answer!.status).toBe(501);
      expect(JSON.parse(answer!.body).error.code).toBe("transfer_coding_unknown");
      expect(received).toEqual([]);
    },
  );

  it("is none of these where chunks are well-formed, in whatever pieces, with extensions and trailers", async () => {
    const { received, wire } = await withWorker();
    const head = request(CHAT, ["Transfer-Encoding: Chunked"]);
    for (const byte of `${head}6;a="b"\r\n${BODY.slice(0, 6)}\r\n07\r\n${BODY.slice(6)}\r\n0\r\nx-api-key: late\r\n\r\n`) {
      wire.send(byte);
      await new Promise(setImmediate);
    }
    expect(await wire.statuses(1)).toEqual([200]);
    expect(received[0]!.body).toBe(BODY);
    expect(received[0]!.request.headers).toMatchObject({ "content-length": "13" });
    expect(JSON.stringify(received[0]!.request.rawHeaders)).not.toMatch(/late|chunked/i);
    expect(received[0]!.request.rawTrailers).toEqual([]);
  });
});

describe("a request without a body", () => {
  it.each([
    ["that announces none", request(CHAT, ["content-length: 0"])],
    ["that says nothing of one", request(CHAT, [])],
    ["of chunks, none of them", request(CHAT, ["transfer-encoding: chunked"], "0\r\n\r\n")],
  ])("%s, is answered at once, and its connection goes on", async (_name, bytes) => {
    const { wire, received } = await withWorker();
    wire.send(bytes);
    expect(await wire.statuses(1)).toEqual([400]);
    wire.send(post(BODY));
    expect(await wire.statuses(2)).toEqual([400, 200]);
    expect(received.length).toBe(1);
  });

  it("that announces one and ends: no worker is asked, and nothing is left under way", async () => {
    const { wire, received, router, gateway: running } = await withWorker();
    wire.send(request(CHAT, ["content-length: 13"]));
    await once(wire.socket, "connect");
    wire.socket.end();
    await until(() => wire.end !== undefined);
    expect((await wire.answers(0)).filter(({ status }) => status < 400)).toEqual([]);
    expect([received.length, inFlight(router)]).toEqual([0, 0]);
    expect((await running.drain(60_000)).cut).toBe(0);
  });
});

describe("a client that waits to be told to send its body", () => {
  it("is told, and its request passed on without the expectation", async () => {
    const { wire, received } = await withWorker();
    wire.send(request(CHAT, ["Expect: 100-Continue", "content-length: 13"]));
    await until(() => wire.text === "HTTP/1.1 100 Continue\r\n\r\n");
    wire.send(BODY);
    expect(await wire.statuses(1)).toEqual([200]);
    expect(received[0]!.request.headers).not.toHaveProperty("expect");
    wire.send(post(BODY));
    expect(await wire.statuses(2)).toEqual([200, 200]);
  });

  it("has its 413 without a body sent", async () => {
    const { wire, received } = await withWorker();
    wire.send(request(CHAT, ["expect: 100-continue", "content-length: 999999999"]));
    expect(await wire.statuses(1)).toEqual([413]);
    expect(received).toEqual([]);
  });

  it("is refused where it expects what there is not", async () => {
    const { wire, received } = await withWorker();
    wire.send(post(BODY, ["expect: a miracle"]));
    expect(await wire.statuses(1)).toEqual([417]);
    expect(received).toEqual([]);
  });
});

describe("requests on one connection", () => {
  it("one of them broken: the answer under way is not broken into", async () => {
    const waiting: ServerResponse[] = [];
    const { wire } = await withWorker((_request, response) => {
      response.writeHead(200, { "content-type": "text/event-stream" }).write("data: 1\n\n");
      waiting.push(response);
    });
    wire.send(post(BODY));
    await until(() => wire.text.includes("data: 1"));
    wire.send("nonsense\r\n\r\n");
    await until(() => wire.end !== undefined || waiting[0]!.destroyed);
    expect(wire.text).toMatch(/data: 1\n\n\r\n$/);
  });

  it("three in one packet run at once, and are answered each with its own, in their order", async () => {
    const waiting = new Map<string, ServerResponse>();
    const { wire, router } = await withWorker((_request, response, body) => {
      waiting.set(JSON.parse(String(body)).n, response);
    });
    const bodies = ["one", "two", "three"].map((n) => JSON.stringify({ model: "m", n }));
    wire.send(bodies.map((body) => post(body)).join(""));
    await until(() => waiting.size === 3);
    expect(inFlight(router)).toBe(3);
    for (const n of ["three", "two", "one"]) waiting.get(n)!.end(n);
    const answers = await wire.answers(3);
    expect(answers.map(({ body }) => body)).toEqual(["one", "two", "three"]);
    await until(() => inFlight(router) === 0);
  });

  it("an answer without a body is followed by the next one's: 204, 304 and HEAD", async () => {
    const statuses = [204, 304, 200];
    const { wire, received } = await withWorker((_request, response) => {
      response.writeHead(statuses.shift()!).end();
    });
    for (const count of [1, 2, 3]) {
      wire.send(post(BODY));
      await wire.answers(count);
    }
    expect(await wire.statuses(3)).toEqual([204, 304, 200]);
    // The worker's connection was used again as well.
    expect(new Set(received.map(({ request }) => request.socket)).size).toBe(1);
    const before = wire.text.length;
    wire.send(`HEAD /health HTTP/1.1\r\nhost: x\r\n\r\nHEAD ${CHAT} HTTP/1.1\r\nhost: x\r\n\r\n`);
    wire.send("GET /nothing HTTP/1.1\r\nhost: x\r\n\r\n");
    await until(() =>
      /^HTTP\/1\.1 200 [^{]*HTTP\/1\.1 404 [^{]*HTTP\/1\.1 404 [^{]*\{/.test(wire.text.slice(before)),
    );
  });

  it.each([
    ["an unknown path", "/nothing", 404],
    ["a health check", "/health", 404],
    ["a refused coding", CHAT, 501],
  ])(
    "%s is answered before its body has come, and the next request after it",
    async (_name, path, status) => {
      const { wire, received } = await withWorker();
      const coding = status === 501 ? "gzip, chunked" : "chunked";
      const piece = `10000\r\n${"x".repeat(0x10000)}\r\n`;
      wire.send(request(path, [`transfer-encoding: ${coding}`], piece));
      expect(await wire.statuses(1)).toEqual([status]);
      wire.send(`${piece.repeat(4)}0\r\n\r\n`);
      wire.send(post(BODY));
      expect(await wire.statuses(2)).toEqual([status, 200]);
      expect(received.map(({ body }) => body)).toEqual([BODY]);
    },
  );

  it("a body over the limit, declared: 413 while it is under way, no reset, and the next request is answered", async () => {
    const { wire, received } = await withWorker();
    const size = 70_000_000;
    wire.send(request(CHAT, [`content-length: ${size}`], "x".repeat(1_000)));
    const [answer] = await wire.answers(1);
    expect([answer!.status, JSON.parse(answer!.body).error.code]).toEqual([413, "body_too_large"]);
    wire.send("x".repeat(size - 1_000));
    wire.send(post(BODY));
    expect(await wire.statuses(2)).toEqual([413, 200]);
    expect([wire.end, received.length]).toEqual([undefined, 1]);
  });

  it("a body over the limit, in chunks: the same as soon as it is over, to a client that only then reads", async () => {
    const { wire, received } = await withWorker();
    wire.socket.pause();
    const piece = `100000\r\n${"x".repeat(0x100000)}\r\n`;
    wire.send(request(CHAT, ["transfer-encoding: chunked"]));
    for (let i = 0; i < 70; i++) wire.send(piece);
    wire.send("0\r\n\r\n");
    await new Promise<void>((resolve) => wire.socket.write(post(BODY), () => resolve()));
    wire.socket.resume();
    expect(await wire.statuses(2)).toEqual([413, 200]);
    expect([wire.end, received.length]).toEqual([undefined, 1]);
  });

  it.each(["before the head", "in mid-stream"])(
    "a client that shuts its side has left, as nobody can tell it from one that has: %s",
    async (when) => {
      const waiting: ServerResponse[] = [];
      const { wire, router } = await withWorker((_request, response) => {
        waiting.push(response);
        if (when === "before the head") return;
        response.writeHead(200, { "content-type": "text/event-stream" }).write("data: 1\n\n");
      });
      wire.send(post(BODY));
      await until(
        () => waiting.length === 1 && (when === "before the head" || wire.text.includes("data: 1")),
      );
      wire.socket.end();
      await until(() => waiting[0]!.destroyed && inFlight(router) === 0);
      await until(() => wire.end !== undefined);
    },
  );
});

describe("a path", () => {
  it.each([
    "/v1/./chat/completions",
    "/v1/../v1/chat/completions",
    "/v1/x/../chat/completions",
    "/v1/%2e%2e/v1/chat/completions",
    "/v1/chat%2Fcompletions",
    "/v1/chat%2fcompletions",
    "/v1%2Fchat%2Fcompletions",
    "/v1/chat%252Fcompletions",
    "/v1\\chat\\completions",
    "/v1/chat\\completions",
    "/v1/chat/completions\\..\\..\\admin",
    "/v1/chat/completions/../../admin",
    "/v1/chat/completions/..%2f..%2fadmin",
    "/v1/chat/completions%00",
    "/v1/chat/completions%3Fx",
    "/v1/chat/completions/",
    "/V1/Chat/Completions",
    "//v1/chat/completions",
    "/v1//chat/completions",
    "//x/v1/chat/completions",
  ])("that is another spelling is no other way in: %s", async (path) => {
    const { wire, received } = await withWorker();
    wire.send(post(BODY, [], path));
    expect(await wire.statuses(1)).toEqual([404]);
    wire.send(post(BODY));
    expect(await wire.statuses(2)).toEqual([404, 200]);
    expect(received.map(({ request: { url } }) => url)).toEqual([CHAT]);
  });

  it.each(["?a=/../..&b=%2F%5c&c=\\", "?", "?a=%zz", "?a=%00&&=?%20+;x=~", ""])(
    "has its query passed on as it is: %j",
    async (query) => {
      const { wire, received } = await withWorker();
      wire.send(post(BODY, [], CHAT + query));
      expect(await wire.statuses(1)).toEqual([200]);
      expect(received[0]!.request.url).toBe(CHAT + query);
    },
  );

  it("with an escape that was not needed is asked for by its name", async () => {
    const { wire, received } = await withWorker();
    wire.send(post(BODY, [], "/v1/ch%61t/completions?b"));
    expect(await wire.statuses(1)).toEqual([200]);
    expect(received[0]!.request.url).toBe(`${CHAT}?b`);
  });
});

describe("headers", () => {
  it("that are for this connection only do not reach the worker, those that Connection names neither", async () => {
    const { wire, received, url } = await withWorker();
    const lines = [
      "Connection: X-One, keep-alive",
      "X-One: gone",
      "X-Two: gone",
      "connection: x-two,Upgrade , TE",
      "Keep-Alive: timeout=gone",
      "Proxy-Connection: gone",
      "Proxy-Authorization: gone",
      "TE: trailers, gone",
      "Trailer: gone",
      "Upgrade: gone",
      "X-Three: stays",
      "x-three: stays as well",
    ];
    wire.send(post(BODY, lines));
    expect(await wire.statuses(1)).toEqual([200]);
    const { rawHeaders, headers } = received[0]!.request;
    expect(rawHeaders.join()).not.toMatch(/gone/i);
    expect(rawHeaders.join()).toContain("X-Three,stays,x-three,stays as well");
    expect(headers).toMatchObject({ "content-length": "13", connection: "keep-alive" });
    expect(headers).not.toHaveProperty("transfer-encoding");
    expect(headers.host).not.toBe(new URL(url).host);
  });

  it("cannot name the worker another host, whatever the request's target or its Host says", async () => {
    const { wire, received } = await withWorker();
    wire.send(post(BODY, ["Host: y", "X-Forwarded-Host: z"]));
    wire.send(post(BODY, [], `http://elsewhere.invalid${CHAT}`));
    await wire.answers(2);
    for (const { request } of received) {
      expect(request.rawHeaders.filter((text) => text.toLowerCase() === "host").length).toBe(1);
      expect(request.headers.host).toBe(`127.0.0.1:${request.socket.localPort}`);
      expect(request.url).toBe(CHAT);
    }
    expect(received.length).toBeGreaterThan(0);
  });

  it("cannot have the worker's connection closed, nor the client's kept open that is to be closed", async () => {
    const { wire, received, url } = await withWorker();
    wire.send(post(BODY, ["Connection: close"]));
    const [answer] = await wire.answers(1);
    expect(headersOf(answer, "connection")).toEqual(["close"]);
    await until(() => wire.end === "FIN");
    const next = new Wire(url);
    next.send(post(BODY));
    await next.answers(1);
    expect(new Set(received.map(({ request }) => request.socket)).size).toBe(1);
  });

  it("of an answer that are for the worker's connection only do not reach the client", async () => {
    const { wire } = await withWorker((_request, response) => {
      const lines = [
        "Connection: X-One",
        "X-One: gone",
        "Keep-Alive: timeout=gone",
        "Proxy-Authenticate: gone",
      ];
      lines.push("Trailer: x-late", "Upgrade: gone", "Proxy-Connection: gone", "X-Two: stays");
      const chunks = "2\r\nok\r\n0\r\nx-late: gone\r\n\r\n";
      const head = ["HTTP/1.1 200 OK", ...lines, "Transfer-Encoding: chunked", "", chunks];
      response.socket!.write(head.join("\r\n"));
    });
    wire.send(post(BODY));
    const [answer] = await wire.answers(1);
    expect(answer!.body).toBe("ok");
    expect(wire.text).not.toMatch(/gone|x-late/);
    expect(headersOf(answer, "x-two")).toEqual(["stays"]);
    expect(headersOf(answer, "connection")).toEqual(["keep-alive"]);
    expect(headersOf(answer, "date").length).toBe(1);
  });
});

describe("a client of HTTP/1.0", () => {
  const old = post(BODY).replace("HTTP/1.1", "HTTP/1.0");

  it("has an answer of unknown length until the connection's end, not in chunks", async () => {
    const { wire } = await withWorker((_request, response) => {
      response.writeHead(200, { "content-type": "text/event-stream" }).write("data: 1\n\n");
      response.end("data: 2\n\n");
    });
    wire.send(old);
    await until(() => wire.end === "FIN");
    expect(wire.text).toMatch(/\r\n\r\ndata: 1\n\ndata: 2\n\n$/);
    expect(wire.text).not.toMatch(/transfer-encoding/i);
  });

  it("is not told that such an answer were whole where the worker broke off", async () => {
    const { wire } = await withWorker((_request, response) => {
      response.write("half");
      setImmediate(() => response.destroy());
    });
    wire.send(old);
    await until(() => wire.end !== undefined);
    // Nothing but a reset is left to say so.
    expect([wire.text.endsWith("\r\n\r\nhalf"), wire.end]).toEqual([true, "ECONNRESET"]);
  });
});
