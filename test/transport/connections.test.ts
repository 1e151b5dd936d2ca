// Connections to a server that writes bytes: which are used again, what becomes of a call in whatever state it ends, and
// that nobody ever gets what was meant for another. `HAWSER_FUZZ=N` tries N damaged answers.
import { once } from "node:events";
import { type AddressInfo, createServer, type Socket } from "node:net";
import fc from "fast-check";
import { describe, expect, it, onTestFinished } from "vitest";
import { until } from "../gateway/fixture.js";
import { anyDamaged, anyPlaces, cut } from "./answers.js";
import { ask, Ear, poolTo, type RawServer, type Received, rawServer, send } from "./server.js";

const RUNS = Number(process.env.HAWSER_FUZZ ?? 300);
const OK = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
const CHUNKED = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
const OLD = "HTTP/1.0 200 OK\r\n\r\n";

/** A pool to a server that answers with these, then with OK. */
async function served(...answers: string[]) {
  const server = await rawServer(({ socket }) => void socket.write(answers.shift() ?? OK, "latin1"));
  return { server, pool: poolTo(server.url) };
}

/** A pool to a server that leaves its requests to the test. */
async function silent() {
  const server = await rawServer(() => {});
  return {
    server,
    pool: poolTo(server.url),
    asked: (count: number) => until(() => server.requests.length === count),
  };
}

const isGone = ({ sockets: [first] }: RawServer): boolean => first!.destroyed;

describe("a request", () => {
  it("arrives as it was sent, whatever the size of its body", async () => {
    const { server, pool } = await served();
    for (const size of [0, 1, 16_384, 16_385, 3_000_000]) {
      const body = "\xe9".repeat(size);
      expect((await ask(pool, body)).story).toBe("200 data end");
      const { head, body: arrived } = server.requests.at(-1)!;
      expect(head).toBe(
        `POST / HTTP/1.1\r\nhost: host\r\nconnection: keep-alive\r\ncontent-length: ${size}\r\n\r\n`,
      );
      expect(arrived === body).toBe(true);
    }
    expect(server.sockets.length).toBe(1);
  });

  it("goes out on the connection that was used last", async () => {
    const { server, pool, asked } = await silent();
    const ears = [1, 2, 3].map(() => send(pool, new Ear()));
    await asked(3);
    for (const at of [1, 0, 2]) {
      server.requests[at]!.socket.write(OK);
      await ears[at]!.over;
    }
    send(pool, new Ear());
    await asked(4);
    expect(server.requests[3]!.socket).toBe(server.requests[2]!.socket);
    expect(server.sockets.length).toBe(3);
  });

  it("reaches a server by its name", async () => {
    const { server } = await served();
    const { port } = server.url;
    expect((await ask(poolTo(new URL(`http://localhost:${port}`)))).story).toBe("200 data end");
  });

  it("that is sent from within the end of another has the same connection", async () => {
    const { server, pool } = await served();
    const next = new Ear();
    send(pool, new Ear((what) => void (what === "end" && send(pool, next))));
    await next.over;
    expect([next.story, server.requests.length, server.sockets.length]).toEqual(["200 data end", 2, 1]);
  });
});

describe("a call that is aborted", () => {
  it("before its connection is begun to be opened leaves nothing behind", async () => {
    const { server, pool } = await served();
    const ear = send(pool, new Ear());
    ear.call!.abort();
    ear.call!.abort();
    await pool.close();
    expect([ear.story, server.requests.length]).toEqual(["", 0]);
  });

  it("before it was written to a connection that was used before is never sent", async () => {
    const { server, pool } = await served();
    await ask(pool);
    const ear = send(pool, new Ear());
    expect(ear.call!.isSent).toBe(false);
    ear.call!.abort();
    expect((await ask(pool)).story).toBe("200 data end");
    expect([ear.story, server.requests.length]).toEqual(["", 2]);
  });

  it("while its answer is awaited closes the connection", async () => {
    const { server, pool, asked } = await silent();
    const ear = send(pool, new Ear());
    await asked(1);
    ear.call!.abort();
    await until(() => isGone(server));
    expect([ear.call!.isSent, ear.call!.isAnswered, ear.story]).toEqual([true, false, ""]);
  });

  it.each([
    ["at its head", "200", "200"],
    ["at its first data", "data", "200 data"],
  ])("%s hears nothing more of the same packet", async (_name, when, story) => {
    const { server, pool } = await served(`${CHUNKED}1\r\na\r\nno chunk`, OK + OK);
    for (let i = 0; i < 2; i++) {
      const ear = new Ear((what, { call }) => void (what === when && call!.abort()));
      send(pool, ear);
      await until(() => ear.heard.includes(when));
      await until(() => server.sockets[i]!.destroyed);
      expect(ear.story).toBe(story);
    }
    expect((await ask(pool)).story).toBe("200 data end");
  });

  it("at its last data has no end", async () => {
    const { server, pool } = await served();
    const ear = send(pool, new Ear((what, { call }) => void (what === "data" && call!.abort())));
    await until(() => server.sockets[0]?.destroyed === true);
    expect(ear.story).toBe("200 data");
  });

  it("after its end takes nothing from the next one", async () => {
    const { pool, server, asked } = await silent();
    const first = send(pool, new Ear());
    await asked(1);
    server.requests[0]!.socket.write(OK);
    await first.over;
    const second = send(pool, new Ear());
    await asked(2);
    first.call!.abort();
    server.requests[1]!.socket.write(OK);
    await second.over;
    expect([second.story, server.sockets.length]).toEqual(["200 data end", 1]);
  });
});

describe("an answer that ends with its connection", () => {
  it("is whole by a FIN, and not by a reset", async () => {
    const { server, pool, asked } = await silent();
    for (const [count, end, story] of [
      [1, "FIN", "200 data end"],
      [2, "RST", "200 data failure: read ECONNRESET"],
    ] as const) {
      const ear = send(pool, new Ear());
      await asked(count);
      const { socket } = server.requests[count - 1]!;
      socket.write(`${OLD}part`);
      await until(() => ear.body === "part");
      if (end === "FIN") socket.end();
      else socket.resetAndDestroy();
      await ear.over;
      expect(ear.story).toBe(story);
    }
  });

  it("is whole in one packet with its end", async () => {
    const server = await rawServer(({ socket }) => void socket.end(`${OLD}all`));
    const ear = await ask(poolTo(server.url));
    expect([ear.body, ear.story]).toEqual(["all", "200 data end"]);
  });
});

describe("an answer that breaks off", () => {
  const starts = {
    nothing: ["", ""],
    "a part of the head": ["HTTP/1.1 2", ""],
    "an interim answer": ["HTTP/1.1 100 Continue\r\n\r\n", ""],
    "the head of a length": ["HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n", "200 "],
    "a part of a length": ["HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\na", "200 data "],
    "a part of a chunk": [`${CHUNKED}5\r\na`, "200 data "],
    "a chunk": [`${CHUNKED}1\r\na\r\n`, "200 data "],
    "the last chunk": [`${CHUNKED}1\r\na\r\n0\r\n`, "200 data "],
  } as const;
  it.each(Object.entries(starts))(
    "after %s is a failure, and the next one has its own",
    async (_name, [start, before]) => {
      for (const isReset of [false, true]) {
        const { server, pool, asked } = await silent();
        const ear = send(pool, new Ear());
        await asked(1);
        const { socket } = server.requests[0]!;
        socket.write(start);
        await until(() => ear.call!.isAnswered === (start !== ""));
        if (isReset) socket.resetAndDestroy();
        else socket.end();
        await ear.over;
        expect(ear.story).toBe(
          `${before}failure: ${isReset ? "read ECONNRESET" : "the connection was closed"}`,
        );
        expect(ear.call!.isSent).toBe(true);
        const next = send(pool, new Ear());
        await asked(2);
        server.requests[1]!.socket.write(OK);
        await next.over;
        expect(next.story).toBe("200 data end");
      }
    },
  );
});

describe("a connection", () => {
  it("is used again after an answer of any framing", async () => {
    const { server, pool } = await served(
      "HTTP/1.1 204 No\r\n\r\n",
      `${CHUNKED}2\r\nok\r\n0\r\na: b\r\n\r\n`,
      "HTTP/1.1 304 No\r\ncontent-length: 9\r\n\r\n",
      `HTTP/1.1 103 Early\r\na: b\r\n\r\n${OK}`,
    );
    const stories: string[] = [];
    for (let i = 0; i < 5; i++) stories.push((await ask(pool)).story);
    expect(stories).toEqual(["204 end", "200 data end", "304 end", "200 data end", "200 data end"]);
    expect(server.sockets.length).toBe(1);
  });

  it.each([
    ["bytes behind a length", `${OK}x`],
    ["bytes behind chunks", `${CHUNKED}2\r\nok\r\n0\r\n\r\n\r\n`],
    ["Connection: close", OK.replace("\r\n", "\r\nconnection: foo, Close\r\n")],
    ["HTTP/1.0", OK.replace("1.1", "1.0").replace("\r\n", "\r\nconnection: keep-alive\r\n")],
    ["a keep-alive of a second", OK.replace("\r\n", "\r\nkeep-alive: timeout=1\r\n")],
  ])("is not used again after an answer with %s", async (_name, answer) => {
    const { server, pool } = await served(answer);
    expect((await ask(pool)).story).toBe("200 data end");
    // Neither at once nor later.
    expect([(await ask(pool)).story, server.sockets.length]).toEqual(["200 data end", 2]);
    await until(() => isGone(server));
  });

  it("that got bytes while it was idle is closed", async () => {
    const { server, pool } = await served();
    await ask(pool);
    server.sockets[0]!.write("x");
    await until(() => isGone(server));
    expect((await ask(pool)).story).toBe("200 data end");
  });

  it.each([
    ["bytes", (socket: Socket) => void socket.write(OK.replace("ok", "no"))],
    ["its end", (socket: Socket) => void socket.end()],
    ["its reset", (socket: Socket) => void socket.resetAndDestroy()],
  ])("that has got %s when a call comes is not used: the call is sent on another one", async (_name, act) => {
    const { server, pool } = await served();
    for (let i = 0; i < 50; i++) {
      expect((await ask(pool)).body).toBe("ok");
      act(server.sockets.at(-1)!);
      // A turn of the loop: what was done there has arrived here, but was not read yet.
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect([(await ask(pool)).story, server.requests.length]).toEqual(["200 data end", 51]);
  });

  it("that breaks as a request is written fails the call, as not answered: it may have been run", async () => {
    const { server, pool, asked } = await silent();
    const first = send(pool, new Ear());
    await asked(1);
    server.requests[0]!.socket.write(OK);
    await first.over;
    const second = send(pool, new Ear());
    await asked(2);
    server.requests[1]!.socket.resetAndDestroy();
    await second.over;
    expect([second.story, second.call!.isSent, second.call!.isAnswered]).toEqual([
      ...["failure: read ECONNRESET", true, false],
    ]);
  });

  it("on which the answer was there before the request was read is closed behind it", async () => {
    const sockets: Socket[] = [];
    const server = createServer((socket) => {
      sockets.push(socket);
      socket
        .on("error", () => {})
        .once("data", () => {
          socket.pause();
          socket.write(OK);
        });
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    onTestFinished(() => {
      server.close();
      for (const socket of sockets) socket.destroy();
    });
    const pool = poolTo(new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}`));
    expect((await ask(pool, "x".repeat(20_000_000))).story).toBe("200 data end");
    expect((await ask(pool)).story).toBe("200 data end");
    expect(sockets.length).toBe(2);
  });

  it("that cannot be opened fails the call, as not sent", async () => {
    const { server, pool } = await served();
    await ask(pool);
    const gone = createServer().listen(0, "127.0.0.1");
    await once(gone, "listening");
    const url = new URL(`http://127.0.0.1:${(gone.address() as AddressInfo).port}`);
    gone.close();
    await once(gone, "close");
    const ear = await ask(poolTo(url));
    expect([ear.story, ear.call!.isSent]).toEqual([expect.stringMatching(/ECONNREFUSED/), false]);
    expect(server.requests.length).toBe(1);
  });
});

describe("a pool", () => {
  it("that is closed lets what is under way finish", async () => {
    const { server, pool, asked } = await silent();
    const [first, second] = [send(pool, new Ear()), send(pool, new Ear())];
    await asked(2);
    server.requests[0]!.socket.write(OK);
    await first.over;
    let isClosed = false;
    const closed = pool.close().then(() => {
      isClosed = true;
    });
    await until(() => server.requests[0]!.socket.destroyed);
    const late = await ask(pool);
    expect([late.story, isClosed]).toEqual(["failure: the connections are closed", false]);
    server.requests[1]!.socket.write(OK);
    await second.over;
    expect(second.story).toBe("200 data end");
    // At once, and not when it has been idle for 4 s.
    const tooLate = new Promise<string>((resolve) => setTimeout(resolve, 3_500, "late"));
    expect(await Promise.race([closed, tooLate])).toBeUndefined();
  });

  it("that is destroyed fails what is under way, in whatever state", async () => {
    const { server, pool, asked } = await silent();
    const waiting = send(pool, new Ear());
    await asked(1);
    const connecting = send(pool, new Ear());
    const idle = send(pool, new Ear());
    await asked(3);
    server.requests[2]!.socket.write(OK);
    await Promise.race([idle.over, connecting.over]);
    const unsent = send(pool, new Ear());
    await pool.destroy();
    const failed = [waiting, unsent].map(({ story }) => story);
    expect(failed[0]).toBe("failure: the gateway closed the connection");
    expect(failed[1]).toMatch(/^failure: the /);
    await until(() => server.sockets.every(({ destroyed }) => destroyed));
  });

  it("has no limit: every call under way has a connection of its own", async () => {
    const { server, pool, asked } = await silent();
    const ears = Array.from({ length: 300 }, () => send(pool, new Ear()));
    await asked(300);
    expect(server.sockets.length).toBe(300);
    for (const { socket } of server.requests) socket.write(OK);
    await Promise.all(ears.map(({ over }) => over));
  }, 60_000);
});

describe("over TLS", () => {
  const unchecked = (): void => {
    process.env.NODE_TLS_REJECT_UNAUTHORIZED = "0";
    onTestFinished(() => void delete process.env.NODE_TLS_REJECT_UNAUTHORIZED);
  };

  it("a certificate that nobody trusts is refused before anything is sent", async () => {
    const server = await rawServer(() => {}, true);
    const ear = await ask(poolTo(server.url));
    expect([ear.story, ear.call!.isSent, server.requests.length]).toEqual([
      ...[expect.stringMatching(/^failure: .*self.signed/), false, 0],
    ]);
  });

  it("requests and answers of any size pass, on a connection that is used again", async () => {
    unchecked();
    const server = await rawServer(({ socket, body }) => {
      socket.write(`${CHUNKED}${body.length.toString(16)}\r\n`);
      socket.write(body, "latin1");
      socket.write("\r\n0\r\n\r\n");
    }, true);
    const pool = poolTo(server.url);
    // Sevens: no read and no record of TLS ends where another one did.
    for (const body of [1, 3_000, 300_000].map((count) => "abcdefg".repeat(count))) {
      const ear = await ask(pool, body);
      expect([ear.story, ear.body === body]).toEqual(["200 data end", true]);
    }
    expect(server.sockets.length).toBe(1);
    const both = [send(pool, new Ear(), "one"), send(pool, new Ear(), "two")];
    await Promise.all(both.map(({ over }) => over));
    expect(both.map(({ body }) => body)).toEqual(["one", "two"]);
  });

  it("a server that never shakes hands is given up after the time for connecting", async () => {
    const server = await rawServer(() => {});
    const url = new URL(server.url.href.replace("http:", "https:"));
    const ear = await ask(poolTo(url, 50));
    expect([ear.story, ear.call!.isSent]).toEqual([
      expect.stringMatching(/^failure: no connection .* 50 ms$/),
      false,
    ]);
  });
});

describe("whatever a server sends", () => {
  const turn = () => new Promise((resolve) => setImmediate(resolve));

  /** Writes the pieces in turns of the loop of their own, then ends the connection. Resolves when all has arrived. */
  async function say({ socket }: Received, pieces: readonly Buffer[], isReset: boolean): Promise<void> {
    const closed = new Promise((resolve) => socket.on("close", resolve));
    for (const piece of pieces) {
      if (!socket.destroyed) await new Promise((resolve) => socket.write(piece, resolve));
      await turn();
    }
    if (isReset) socket.resetAndDestroy();
    else socket.end();
    await closed;
    await turn();
  }

  it("every call comes to an end, and gets nothing of another's", {
    timeout: 120_000 + RUNS * 200,
  }, async () => {
    let next: (received: Received) => void = () => {};
    const server = await rawServer((received) => next(received));
    const pool = poolTo(server.url);
    await fc.assert(
      fc.asyncProperty(anyDamaged, anyPlaces, fc.boolean(), async (bytes, places, isReset) => {
        let said = Promise.resolve();
        next = (received) => {
          said = say(received, cut(bytes, places), isReset);
        };
        const damaged = await ask(pool);
        expect(damaged.heard.filter((what) => /^(end|failure)/.test(what)).length).toBe(1);
        // What came once the next request is written could be its answer: nothing in HTTP/1.1 tells.
        await said;
        const mark = String(Math.random());
        next = ({ socket }) =>
          void socket.write(`HTTP/1.1 200 OK\r\ncontent-length: ${mark.length}\r\n\r\n${mark}`);
        const good = await ask(pool);
        expect([good.story, good.body]).toEqual(["200 data end", mark]);
      }),
      { numRuns: RUNS },
    );
  });
});
