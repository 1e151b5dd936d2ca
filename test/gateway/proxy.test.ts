import { once } from "node:events";
import type { IncomingMessage, ServerResponse } from "node:http";
import { connect } from "node:net";
import { describe, expect, it } from "vitest";
import { open, post, text } from "./client.js";
import { gateway, inFlight, stop, until, upstream } from "./fixture.js";

const CHAT = "/v1/chat/completions";
const ask = { model: "m", messages: [] };

describe("what passes", () => {
  it("forwards the body byte for byte, the query and the session headers, not the credentials (F1)", async () => {
    const seen: { request: IncomingMessage; body: Buffer }[] = [];
    const worker = await upstream((request, response, body) => {
      seen.push({ request, body });
      response.end("{}");
    });
    const { url } = await gateway({ urls: [worker.url] });
    const odd =
      '{ "model":"m",\n\t"x":1e400, "big":12345678901234567890, "u":"\\u0041\\ud800", "model":"m" }  ';
    await post(`${url}${CHAT}?beta=true&a=%2F`, odd, {
      "X-Session-Id": "s",
      Authorization: "Bearer secret",
      "x-api-key": "secret",
      Cookie: "secret",
      "x-hawser-pin": "w1",
    });
    const { request, body } = seen[0]!;
    expect(body.toString()).toBe(odd);
    expect(request.url).toBe(`${CHAT}?beta=true&a=%2F`);
    expect(request.headers["x-session-id"]).toBe("s");
    expect(request.headers.host).toBe(new URL(worker.url).host);
    expect(JSON.stringify(request.rawHeaders)).not.toMatch(/secret|x-hawser/i);
  });

  it("passes status, headers and body of an answer unaltered, and says who answered and why (B21)", async () => {
    const gzipped = Buffer.from([0x1f, 0x8b, 0, 1, 2, 255]);
    const worker = await upstream((_request, response) => {
      response.writeHead(201, "Made", [
        "X-Twice",
        "1",
        "x-twice",
        "2",
        "Content-Encoding",
        "gzip",
        "X-Hawser-Worker",
        "liar",
      ]);
      response.end(gzipped);
    });
    const { url } = await gateway({ urls: [worker.url] });
    const message = await open(url + CHAT, ask, { "x-session-id": "s" });
    expect([message.statusCode, message.statusMessage]).toEqual([201, "Made"]);
    expect(message.headers).toMatchObject({
      "x-twice": "1, 2",
      "content-encoding": "gzip",
      "x-hawser-worker": "w0",
      "x-hawser-policy": "sticky",
      "x-hawser-decision": "place",
    });
    const chunks: Buffer[] = [];
    for await (const chunk of message) chunks.push(chunk);
    expect(Buffer.concat(chunks)).toEqual(gzipped);
  });

  it.each(["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings", "/v1/messages"])(
    "proxies %s and counts it while it runs (A26)",
    async (path) => {
      const waiting: ServerResponse[] = [];
      const worker = await upstream((request, response) => {
        response.setHeader("x-path", request.url!);
        waiting.push(response);
      });
      const { url, router } = await gateway({ urls: [worker.url] });
      const reply = post(url + path, ask);
      await until(() => waiting.length === 1);
      expect(inFlight(router)).toBe(1);
      waiting[0]!.end("{}");
      expect((await reply).headers["x-path"]).toBe(path);
      await until(() => inFlight(router) === 0);
    },
  );

  it("streams every chunk as it arrives, split characters included, and counts until the last byte (A3)", async () => {
    let stream: ServerResponse | undefined;
    const worker = await upstream((_request, response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.flushHeaders();
      stream = response;
    });
    const { url, router } = await gateway({ urls: [worker.url] });
    // The head comes before the first event.
    const message = await open(url + CHAT, ask);
    const euro = Buffer.from("data: €\n\n");
    for (const part of [euro.subarray(0, 7), euro.subarray(7), Buffer.from("data: [DONE]\n\n")]) {
      stream!.write(part);
      const [chunk] = await once(message, "data");
      expect(chunk).toEqual(part);
      expect(inFlight(router)).toBe(1);
    }
    stream!.end();
    await once(message, "end");
    await until(() => inFlight(router) === 0);
  });

  it("passes over informational answers", async () => {
    const worker = await upstream((_request, response) => {
      response.writeEarlyHints({ link: "</x>; rel=preload" });
      response.writeProcessing();
      response.end("late");
    });
    const { url } = await gateway({ urls: [worker.url] });
    expect(await post(url + CHAT, ask)).toMatchObject({ status: 200, body: "late" });
  });

  it("passes an answer of 20 MB (D12)", async () => {
    const large = Buffer.alloc(20_000_000, "x");
    const worker = await upstream((_request, response) => response.end(large));
    const { url } = await gateway({ urls: [worker.url] });
    expect((await post(url + CHAT, ask)).body.length).toBe(large.length);
  });

  it("asks below the path of a worker's url", async () => {
    const paths: string[] = [];
    const worker = await upstream((request, response) => {
      paths.push(request.url!);
      response.end("{}");
    });
    const { url } = await gateway({ urls: [`${worker.url}/base`] });
    await post(url + CHAT, ask);
    expect(paths).toEqual([`/base${CHAT}`]);
  });
});

describe("a client that leaves", () => {
  const leaves = async (act: (response: ServerResponse) => void, headFirst: boolean) => {
    const closed: Promise<unknown>[] = [];
    const worker = await upstream((_request, response) => {
      closed.push(once(response, "close"));
      act(response);
    });
    const { url, router } = await gateway({ urls: [worker.url] });
    const socket = connect(Number(new URL(url).port), "127.0.0.1");
    const body = JSON.stringify(ask);
    socket.write(`POST ${CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: ${body.length}\r\n\r\n${body}`);
    await until(() => closed.length === 1);
    if (headFirst) await once(socket, "data");
    expect(inFlight(router)).toBe(1);
    socket.destroy();
    await closed[0];
    await until(() => inFlight(router) === 0);
  };

  it("before the head: the worker sees the abort and the count is back at once (A1, D1, D2)", () =>
    leaves(() => {}, false));

  it("mid-stream: the same (A8)", () =>
    leaves((response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write("data: 1\n\n");
    }, true));

  it("with requests waiting in a pipeline: every one of them is aborted and counted down", async () => {
    const closed: Promise<unknown>[] = [];
    const worker = await upstream((_request, response) => {
      closed.push(once(response, "close"));
      response.writeHead(200, { "content-type": "text/event-stream" }).write("data: 1\n\n");
    });
    const { url, router } = await gateway({ urls: [worker.url] });
    const socket = connect(Number(new URL(url).port), "127.0.0.1");
    const body = JSON.stringify(ask);
    socket.write(
      `POST ${CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: ${body.length}\r\n\r\n${body}`.repeat(3),
    );
    await until(() => closed.length === 3);
    expect(inFlight(router)).toBe(3);
    socket.destroy();
    await Promise.all(closed);
    await until(() => inFlight(router) === 0);
  });

  it("during its upload: nothing is asked of a worker", async () => {
    let asked = 0;
    const worker = await upstream((_request, response) => {
      asked++;
      response.end("{}");
    });
    const { url, router } = await gateway({ urls: [worker.url] });
    const socket = connect(Number(new URL(url).port), "127.0.0.1");
    socket.write(`POST ${CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{"model"`);
    await once(socket, "connect");
    socket.destroy();
    expect((await post(url + CHAT, ask)).status).toBe(200);
    expect([asked, inFlight(router)]).toEqual([1, 0]);
  });

  it("does not bind a session whose request was never accepted", async () => {
    const worker = await upstream(() => {});
    const { url, router } = await gateway({ urls: [worker.url] });
    const socket = connect(Number(new URL(url).port), "127.0.0.1");
    const body = JSON.stringify(ask);
    socket.write(
      `POST ${CHAT} HTTP/1.1\r\nhost: x\r\nx-session-id: s\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
    );
    await until(() => inFlight(router) === 1);
    expect(router.status().bindings).toBe(1);
    socket.destroy();
    await until(() => inFlight(router) === 0);
    expect(router.status().bindings).toBe(0);
  });

  it("reads too slowly: is cut once the buffer is full, and the worker with it", async () => {
    const gone: Promise<unknown>[] = [];
    const worker = await upstream((_request, response) => {
      gone.push(once(response, "close"));
      response.writeHead(200, { "content-type": "text/event-stream" });
      const chunk = Buffer.alloc(65_536, "x");
      const pump = () => {
        while (!response.destroyed && response.write(chunk));
        if (!response.destroyed) response.once("drain", pump);
      };
      pump();
    });
    const { url, router, log } = await gateway({ urls: [worker.url] });
    const message = await open(url + CHAT, ask);
    message.on("error", () => {});
    await until(() => gone.length === 1);
    await gone[0];
    await until(() => inFlight(router) === 0);
    const line = JSON.parse(log.at(-1)!);
    expect(line).toMatchObject({ outcome: "client_too_slow", worker: "w0" });
    expect(line.failed).toBeUndefined();
  });
});

describe("a request whose end is in doubt", () => {
  const chunked = "2\r\n{}\r\n0\r\n\r\n";
  it.each([
    ["transfer-encoding: gzip, chunked", chunked, 501],
    ["transfer-encoding: chunked, gzip", chunked, 400],
    ["transfer-encoding: gzip", "{}", 501],
    ["transfer-encoding: identity\r\ncontent-length: 2", "{}", 400],
    ["transfer-encoding: chunked\r\ncontent-length: 2", chunked, 400],
    ["content-length: 2\r\nContent-Length: 3", "{}", 400],
    ["x-a: 1\r\n folded\r\ncontent-length: 2", "{}", 400],
    ["x-a: 1\rb: 2\r\ncontent-length: 2", "{}", 400],
  ])("is refused, and reaches no worker: %j", async (headers, body, status) => {
    let reached = 0;
    const worker = await upstream((_request, response) => {
      reached++;
      response.end("{}");
    });
    const { url } = await gateway({ urls: [worker.url] });
    const { hostname, port } = new URL(url);
    const socket = connect(Number(port), hostname);
    socket.on("error", () => {});
    socket.write(`POST ${CHAT} HTTP/1.1\r\nhost: x\r\n${headers}\r\n\r\n${body}`);
    const [answer] = await once(socket, "data");
    expect(String(answer)).toMatch(new RegExp(`^HTTP/1\\.1 ${status} `));
    socket.destroy();
    expect(reached).toBe(0);
  });
});

describe("a worker that fails", () => {
  it("is answered 502 in the endpoint's shape where it cannot be reached; nothing is bound", async () => {
    const worker = await upstream(() => {});
    const { url, router } = await gateway({
      urls: [worker.url],
      models: ["m"],
      health: { intervalMs: 3_600_000 },
    });
    await stop(worker.server);
    const reply = await post(url + CHAT, ask, { "x-session-id": "s" });
    expect(reply.status).toBe(502);
    expect(JSON.parse(reply.body).error).toMatchObject({ type: "server_error", code: "worker_unreachable" });
    expect(router.status().bindings).toBe(0);
    // The failure made the gateway ask at once, long before the next poll.
    await until(() => !router.status().workers[0]!.eligible);
    expect(JSON.parse((await post(`${url}/v1/messages`, ask)).body)).toMatchObject({
      type: "error",
      error: { type: "api_error" },
    });
  });

  it("is answered 502 where it breaks off before the head", async () => {
    const worker = await upstream((_request, response) => response.destroy());
    const { url, router } = await gateway({ urls: [worker.url] });
    expect((await post(url + CHAT, ask)).status).toBe(502);
    expect(inFlight(router)).toBe(0);
  });

  it("is answered 502 where it breaks off behind a head whose body never came", async () => {
    const worker = await upstream((_request, response) => {
      response.socket!.end("HTTP/1.1 200 OK\r\ncontent-length: 20\r\n\r\n");
    });
    const { url, router } = await gateway({ urls: [worker.url] });
    const reply = await post(url + CHAT, ask).catch((error: Error) => error);
    // Where the end came with the head nothing was sent yet; where it came later the head is out.
    expect(reply instanceof Error ? "broken" : reply.status).toSatisfy(
      (seen) => seen === 502 || seen === "broken",
    );
    expect(inFlight(router)).toBe(0);
  });

  it.each([
    ["passed on byte for byte", " \u2713", "\xe2\x9c\x93"],
    ["replaced by the usual one where it is empty", " ", "OK"],
    ["replaced by the usual one where it is left out", "", "OK"],
  ])("has its reason phrase %s", async (_name, phrase, passed) => {
    const worker = await upstream((_request, response) => {
      response.socket!.write(`HTTP/1.1 200${phrase}\r\ncontent-length: 2\r\n\r\nok`);
    });
    const { url } = await gateway({ urls: [worker.url] });
    const message = await open(url + CHAT, ask);
    expect([message.statusCode, message.statusMessage, await text(message)]).toEqual([200, passed, "ok"]);
  });

  it.each(["chunked", "with a length"])(
    "breaks the client's connection where it breaks off mid-answer, %s",
    async (kind) => {
      const worker = await upstream((_request, response) => {
        if (kind === "with a length") response.setHeader("content-length", "1000");
        response.write("half");
        setImmediate(() => response.destroy());
      });
      const { url, router } = await gateway({ urls: [worker.url] });
      const message = await open(url + CHAT, ask);
      await expect(text(message)).rejects.toThrow("aborted");
      expect(inFlight(router)).toBe(0);
    },
  );

  it.each([
    [CHAT, /^data: (\{"error":\{.*\}\})$/m],
    ["/v1/completions", /^data: (\{"error":\{.*\}\})$/m],
    ["/v1/messages", /^event: error\ndata: (\{"type":"error","error":\{.*\}\})$/m],
    ["/v1/responses", /^event: response\.failed\ndata: (\{"type":"response\.failed",.*\})$/m],
  ])(
    "ends a stream of %s in an error event of that API, then in a broken connection (D7, D10)",
    async (path, event) => {
      const worker = await upstream((_request, response) => {
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.write('data: {"type":"response.created","response":{"id":"resp_1"}}\n\n');
        // In the middle of an event, and of a character.
        response.write(Buffer.from('data: {"text":"€').subarray(0, -1));
        setImmediate(() => response.destroy());
      });
      const { url, router } = await gateway({ urls: [worker.url] });
      const message = await open(url + path, ask);
      const chunks: Buffer[] = [];
      const broken = await (async () => {
        for await (const chunk of message) chunks.push(chunk as Buffer);
      })().catch((error: Error) => error);
      expect(broken).toBeInstanceOf(Error);
      const seen = Buffer.concat(chunks).toString();
      expect(seen).not.toContain("[DONE]");
      const body = JSON.parse(event.exec(seen)![1]!);
      const error = path === "/v1/responses" ? body.response.error : body.error;
      expect(error.message).toBe('worker "w0" broke off in the middle of its answer');
      if (path === "/v1/responses") expect(body.response).toMatchObject({ id: "resp_1", status: "failed" });
      expect(seen.endsWith("\n\n")).toBe(true);
      expect(inFlight(router)).toBe(0);
    },
  );

  it("adds nothing to a stream that is compressed: the connection breaks", async () => {
    const worker = await upstream((_request, response) => {
      response.writeHead(200, { "content-type": "text/event-stream", "content-encoding": "gzip" });
      response.write("half");
      setImmediate(() => response.destroy());
    });
    const { url } = await gateway({ urls: [worker.url] });
    const chunks: Buffer[] = [];
    const message = await open(url + CHAT, ask);
    message.on("data", (chunk) => chunks.push(chunk));
    await once(message, "error");
    expect(Buffer.concat(chunks).toString()).toBe("half");
  });

  it.each([400, 429, 500])("has its %i passed on, binds nothing and counts down (A6)", async (status) => {
    const worker = await upstream((_request, response) => response.writeHead(status).end('{"error":"mine"}'));
    const { url, router } = await gateway({ urls: [worker.url] });
    for (let i = 0; i < 50; i++) {
      const reply = await post(url + CHAT, ask, { "x-session-id": "s" });
      expect([reply.status, reply.body]).toEqual([status, '{"error":"mine"}']);
    }
    expect(inFlight(router)).toBe(0);
    expect(router.status().bindings).toBe(0);
  });

  it("does not hold up others where it accepts and never answers (D3)", async () => {
    const silent = await upstream(() => {});
    const good = await upstream((_request, response) => response.end("{}"));
    const { url, router } = await gateway({ urls: [silent.url, good.url], policy: "least-loaded" });
    void open(url + CHAT, ask).catch(() => {});
    await until(() => inFlight(router) === 1);
    for (let i = 0; i < 20; i++) expect((await post(url + CHAT, ask)).headers["x-hawser-worker"]).toBe("w1");
  });
});

describe("what a client can get wrong", () => {
  const cases: [string, string, number, string][] = [
    ["a body that is not JSON", "{", 400, "invalid_json"],
    ["an empty body", "", 400, "invalid_json"],
    ["a JSON body that is no object", '["m"]', 400, "invalid_json"],
    ["an empty model", '{"model":""}', 400, "model_required"],
    ["a last model that is none", '{"model":"m","model":null}', 400, "model_required"],
    ["no model", "{}", 400, "model_required"],
    ["a model that is no string", '{"model":7}', 400, "model_required"],
    ["a text that only looks like a model (B28)", '{"prompt":"\\"model\\": \\"m\\""}', 400, "model_required"],
    ["a model of a name without end", JSON.stringify({ model: "x".repeat(100_000) }), 404, "model_not_found"],
    ["a model that nobody serves", '{"model":"x"}', 404, "model_not_found"],
  ];
  it.each(cases)("%s", async (_name, body, status, code) => {
    const worker = await upstream((_request, response) => response.end("{}"));
    const { url } = await gateway({ urls: [worker.url] });
    const reply = await post(url + CHAT, body);
    expect([reply.status, JSON.parse(reply.body).error.code]).toEqual([status, code]);
    expect(reply.body.length).toBeLessThan(1_000);
    expect(JSON.parse((await post(`${url}/v1/messages`, body)).body).type).toBe("error");
  });

  it("a session key of more than 256 bytes", async () => {
    const worker = await upstream((_request, response) => response.end("{}"));
    const { url } = await gateway({ urls: [worker.url] });
    expect((await post(url + CHAT, ask, { "x-session-id": "k".repeat(256) })).status).toBe(200);
    const reply = await post(url + CHAT, ask, { "x-session-id": "k".repeat(257) });
    expect([reply.status, JSON.parse(reply.body).error.code]).toEqual([400, "session_key_too_long"]);
  });

  it("a body over the limit: 413 before it is read, 413 in mid-upload, neither a reset; the connection goes on", async () => {
    const worker = await upstream((_request, response) => response.end("{}"));
    const { url } = await gateway({ urls: [worker.url], limits: { bodyBytes: 1_000_000 } });
    const declared = await post(url + CHAT, Buffer.alloc(8_000_000, "x"));
    expect([declared.status, JSON.parse(declared.body).error.code]).toEqual([413, "body_too_large"]);
    const chunked = await fetch(url + CHAT, {
      method: "POST",
      body: new Blob([Buffer.alloc(8_000_000, "x")]).stream(),
      duplex: "half",
    } as RequestInit);
    expect(chunked.status).toBe(413);
    expect(JSON.parse((await post(`${url}/v1/messages`, Buffer.alloc(2_000_000))).body).error.type).toBe(
      "request_too_large",
    );
    expect((await post(url + CHAT, ask)).status).toBe(200);
  });

  it("a path or a method that is not there", async () => {
    const worker = await upstream((_request, response) => response.end("{}"));
    const { url } = await gateway({ urls: [worker.url] });
    for (const path of ["/v1/nothing", "/v1/chat%2Fcompletions", "/v1//chat/completions", "/"]) {
      const reply = await post(url + path, ask);
      expect([reply.status, JSON.parse(reply.body).error.code]).toEqual([404, "unknown_path"]);
    }
    expect((await fetch(url + CHAT)).status).toBe(404);
    const broken = await post(`${url}/v1/messages%zz`, ask);
    expect([broken.status, JSON.parse(broken.body).error.type]).toEqual([400, "invalid_request_error"]);
    const counting = await post(`${url}/v1/messages/count_tokens`, ask);
    expect([counting.status, JSON.parse(counting.body).error.type]).toEqual([404, "not_found_error"]);
  });

  it("any content type, or none, with a body", async () => {
    const worker = await upstream((_request, response, body) => response.end(body));
    const { url } = await gateway({ urls: [worker.url] });
    for (const type of ["text/plain", "application/json; charset=utf-8", "nonsense", "a/b/c", ""]) {
      expect((await post(url + CHAT, ask, { "content-type": type })).body).toBe(JSON.stringify(ask));
    }
    const socket = connect(Number(new URL(url).port), "127.0.0.1");
    const body = JSON.stringify(ask);
    const one = `POST ${CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: ${body.length}\r\n\r\n${body}`;
    // Without a type, and two in one packet.
    socket.write(one + one);
    let seen = "";
    socket.on("data", (chunk) => {
      seen += chunk;
    });
    await until(() => seen.split("HTTP/1.1 200").length === 3 && seen.split(body).length === 3);
    socket.destroy();
  });
});
