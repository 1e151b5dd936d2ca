// With a real server of DNS, and time that the tests move.
import { expect, onTestFinished, test } from "vitest";
import { DnsSource } from "../../host/fleet/dns-source.js";
import type { DnsDiscoveryOptions } from "../../host/fleet/options.js";
import { VirtualClock } from "../gateway/virtual-clock.js";
import { type DnsRecord, DnsServer, NXDOMAIN, REFUSED, SERVFAIL } from "./dns-server.js";
import { Heard, until } from "./listener.js";

const NAME = "vllm.test";

/** Remembers for how long it was asked to wait, each time. */
class WaitingClock extends VirtualClock {
  readonly waits: number[] = [];

  override every(ms: number, beat: () => void): () => void {
    this.waits.push(ms);
    return super.every(ms, beat);
  }
}

/** A source that asks a server, and what became of it. */
async function watch(
  options: Partial<DnsDiscoveryOptions> = {},
  patience?: { timeout: number; tries: number },
) {
  const server = await DnsServer.start();
  const clock = new WaitingClock();
  const heard = new Heard();
  const source = new DnsSource(
    {
      ...{ kind: "dns", name: NAME, type: "a", port: 8000, scheme: "http", path: "" },
      ...{ models: undefined, weight: undefined, slots: undefined, maxInFlight: undefined },
      servers: [server.address],
      ...options,
    },
    clock,
    patience,
  );
  onTestFinished(() => source.stop());
  /** Lets the time until the next question pass, and waits until its answer is digested. */
  const next = async () => {
    const { length } = clock.waits;
    clock.advance(clock.waits.at(-1)!);
    await until(() => clock.waits.length > length);
  };
  return { server, clock, heard, source, next, start: () => source.start(heard) };
}

const a = (address: string, ttl = 60): DnsRecord => ({ type: "A", address, ttl });
const srv = (name: string, port: number, more: { priority?: number; weight?: number } = {}): DnsRecord => {
  return { type: "SRV", name, port, ...more };
};

test("the addresses of a name are workers", async () => {
  const { server, heard, start, source, clock } = await watch();
  server.reply = { records: [a("10.0.0.2"), a("10.0.0.1"), a("10.0.0.2")] };
  await start();
  expect(server.questions).toEqual([{ name: NAME, type: "A", transport: "udp" }]);
  expect(heard.sets).toEqual([
    [
      { id: "10.0.0.1:8000", url: "http://10.0.0.1:8000" },
      { id: "10.0.0.2:8000", url: "http://10.0.0.2:8000" },
    ],
  ]);
  expect(source.view(clock.now())).toEqual({
    ...{ kind: "dns", watches: "the A records of vllm.test", workers: 2, ageMs: 0, error: null },
  });
});

test("IPv6 addresses stand in brackets", async () => {
  const { server, heard, start } = await watch({ type: "aaaa" });
  server.reply = {
    records: [
      { type: "AAAA", address: "2001:db8:0::7" },
      { type: "AAAA", address: "::1" },
    ],
  };
  await start();
  expect(server.questions[0]).toMatchObject({ type: "AAAA" });
  expect(heard.sets).toEqual([
    [
      { id: "[2001:db8::7]:8000", url: "http://[2001:db8::7]:8000" },
      { id: "[::1]:8000", url: "http://[::1]:8000" },
    ],
  ]);
});

test("all workers of a name are described alike", async () => {
  const { server, heard, start } = await watch({
    ...{ scheme: "https", port: 443, path: "/llama/", models: ["m"] },
    ...{ weight: 50, slots: 256, maxInFlight: 300 },
  });
  server.reply = { records: [a("10.0.0.1")] };
  await start();
  const more = { models: ["m"], weight: 50, slots: 256, maxInFlight: 300 };
  expect(heard.sets).toEqual([[{ id: "10.0.0.1:443", url: "https://10.0.0.1/llama", ...more }]]);
});

test("it is asked again when the smallest TTL ends, and only another set is told, whatever its order", async () => {
  const { server, heard, start, clock, next } = await watch();
  server.reply = { records: [a("10.0.0.1", 30), a("10.0.0.2", 7), a("10.0.0.3", 90)] };
  await start();
  expect(clock.waits).toEqual([7_000]);
  clock.advance(6_999);
  server.reply = { records: [a("10.0.0.3", 9), a("10.0.0.2", 9), a("10.0.0.1", 9)] };
  clock.advance(1);
  await until(() => clock.waits.length === 2);
  expect(server.questions).toHaveLength(2);
  expect(clock.waits).toEqual([7_000, 9_000]);
  expect(heard.sets).toHaveLength(1);
  server.reply = { records: [a("10.0.0.3"), a("10.0.0.4")] };
  await next();
  expect(heard.ids.slice(1)).toEqual([["10.0.0.3:8000", "10.0.0.4:8000"]]);
});

test.each([
  [0, 1_000],
  [86_400, 300_000],
])("a TTL of %d s is kept for %d ms", async (ttl, ms) => {
  const { server, start, clock } = await watch();
  server.reply = { records: [a("10.0.0.1", ttl)] };
  await start();
  expect(clock.waits).toEqual([ms]);
});

test("more workers than fit a datagram are asked for by TCP", async () => {
  const { server, heard, start, clock } = await watch();
  const addresses = Array.from({ length: 600 }, (_, i) => `10.0.${i >> 8}.${i & 255}`);
  server.reply = { records: addresses.map((address, i) => a(address, 40 + i)) };
  await start();
  expect(server.questions.map(({ transport }) => transport)).toEqual(["udp", "tcp"]);
  expect(new Set(heard.ids[0])).toEqual(new Set(addresses.map((address) => `${address}:8000`)));
  expect(clock.waits).toEqual([40_000]);
});

test.each([
  ["no such name", { code: NXDOMAIN }],
  ["a name without such records", {}],
  [
    "a name that stands for another one without such records",
    { records: [{ type: "CNAME", name: "b.test" }] },
  ],
] as const)("%s is an answer: no workers", async (_, reply) => {
  const { server, heard, start, next, clock, source } = await watch();
  server.reply = { records: [a("10.0.0.1")] };
  await start();
  server.reply = reply;
  await next();
  expect(heard.ids).toEqual([["10.0.0.1:8000"], []]);
  expect(heard.failures).toEqual([]);
  expect(clock.waits).toEqual([60_000, 5_000]);
  expect(source.view(clock.now())).toMatchObject({ workers: 0, ageMs: 0, error: null });
});

test("that there are none is told at the start, too", async () => {
  const { heard, start } = await watch();
  await start();
  expect(heard.sets).toEqual([[]]);
});

test.each([
  ["SERVFAIL", SERVFAIL, "the DNS server failed (SERVFAIL)"],
  ["REFUSED", REFUSED, "the DNS server refused the question (REFUSED)"],
])("on %s the last set stays, and it is asked again, ever less often", async (_, code, why) => {
  const { server, heard, start, next, clock, source } = await watch();
  server.reply = { records: [a("10.0.0.1")] };
  await start();
  server.reply = { code };
  for (let i = 0; i < 7; i++) await next();
  expect(clock.waits.slice(1)).toEqual([1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]);
  const error = `cannot look up the A records of vllm.test: ${why}`;
  expect(heard.failures).toEqual([error]);
  expect(source.view(clock.now())).toMatchObject({ workers: 1, ageMs: 60_000 + 61_000, error });
  server.reply = { records: [a("10.0.0.1")] };
  await next();
  expect(source.view(clock.now())).toMatchObject({ workers: 1, ageMs: 0, error: null });
  expect(heard.sets).toHaveLength(1);
  // What was mended is told when it comes again, and is asked after soon.
  server.reply = { code };
  await next();
  expect(heard.failures).toEqual([error, error]);
  expect(clock.waits.slice(-2)).toEqual([60_000, 1_000]);
});

test("a server that is silent is given up; at the start there are no workers then", async () => {
  const { server, heard, start, clock, source } = await watch({}, { timeout: 20, tries: 2 });
  server.reply = null;
  await start();
  const error = "cannot look up the A records of vllm.test: no DNS server answered in time";
  expect(heard).toMatchObject({ sets: [], failures: [error] });
  expect(server.questions.length).toBeGreaterThanOrEqual(2);
  expect(source.view(clock.now())).toMatchObject({ workers: 0, ageMs: null, error });
  expect(clock.waits).toEqual([1_000]);
});

test("different errors are told once each", async () => {
  const { server, heard, start, next } = await watch();
  for (const code of [SERVFAIL, REFUSED, SERVFAIL, REFUSED]) {
    server.reply = { code };
    await (heard.failures.length === 0 ? start() : next());
  }
  expect(heard.failures.map((message) => /\((.*)\)/.exec(message)?.[1])).toEqual(["SERVFAIL", "REFUSED"]);
});

test.each([
  ["fails", { code: SERVFAIL }],
  ["is silent", null],
])("the next server is asked where one %s", async (_, reply) => {
  const first = await DnsServer.start();
  const second = await DnsServer.start();
  first.reply = reply;
  second.reply = { records: [a("10.0.0.9")] };
  const { heard, start } = await watch(
    { servers: [first.address, second.address] },
    { timeout: 1_500, tries: 1 },
  );
  await start();
  expect(heard).toMatchObject({ ids: [["10.0.0.9:8000"]], failures: [] });
  expect(first.questions).toHaveLength(1);
});

test("SRV records name hosts and ports; only the lowest priority number counts, and no weight", async () => {
  const { server, heard, start, clock } = await watch({ type: "srv", name: "_http._tcp.vllm.test", port: 0 });
  server.reply = {
    records: [
      srv("spare.test", 8000, { priority: 20, weight: 100 }),
      srv("B.Vllm.Test", 8001, { priority: 10, weight: 1 }),
      srv("a.vllm.test", 8000, { priority: 10, weight: 65_535 }),
      srv("a.vllm.test", 8000, { priority: 10, weight: 7 }),
    ],
  };
  await start();
  expect(server.questions).toEqual([{ name: "_http._tcp.vllm.test", type: "SRV", transport: "udp" }]);
  expect(heard.sets).toEqual([
    [
      { id: "a.vllm.test:8000", url: "http://a.vllm.test:8000" },
      { id: "b.vllm.test:8001", url: "http://b.vllm.test:8001" },
    ],
  ]);
  expect(clock.waits).toEqual([30_000]);
});

test("where the lowest priority is gone the next one counts", async () => {
  const { server, heard, start, next } = await watch({ type: "srv", port: 0 });
  const spare = srv("spare.test", 8000, { priority: 20 });
  server.reply = { records: [spare, srv("a.test", 8000, { priority: 10 })] };
  await start();
  server.reply = { records: [spare] };
  await next();
  expect(heard.ids).toEqual([["a.test:8000"], ["spare.test:8000"]]);
});

test.each([
  ["the root as a host", { records: [srv(".", 0)] }],
  ["no records", {}],
])("SRV: %s means none", async (_, reply) => {
  const { server, heard, start, clock } = await watch({ type: "srv", port: 0 });
  server.reply = reply;
  await start();
  expect(heard).toMatchObject({ sets: [[]], failures: [] });
  expect(clock.waits).toEqual([5_000]);
});

/** With its port, two characters more than an id may have. */
const LONG = `${"x".repeat(63)}.${"y".repeat(63)}`;

test.each([
  ["port 0", srv("b.test", 0), '"b.test:0", which is no host and port'],
  ["an odd host", srv("b/test", 80), '"b/test:80", which is no host and port'],
  [
    "a host too long for an id",
    srv(LONG, 80),
    `"${LONG.slice(0, 80)}"... (130 characters), which is longer than 128 characters`,
  ],
])("SRV: a record with %s is an error, and the last set stays", async (_, record, breach) => {
  const { server, heard, start, next, source, clock } = await watch({ type: "srv", port: 0 });
  server.reply = { records: [srv("a.test", 8000)] };
  await start();
  server.reply = { records: [srv("a.test", 8000), record] };
  await next();
  expect(heard.failures).toEqual([`cannot look up the SRV records of vllm.test: a record names ${breach}`]);
  expect(heard.sets).toHaveLength(1);
  expect(source.view(clock.now())).toMatchObject({ workers: 1, ageMs: 30_000 });
});

test("stopping ends a question under way, and nothing is told", async () => {
  const { server, heard, start, clock, source } = await watch({}, { timeout: 1_500, tries: 2 });
  server.reply = null;
  const started = start();
  await until(() => server.questions.length === 1);
  source.stop();
  await started;
  // Its second try has not been waited for.
  expect(server.questions).toHaveLength(1);
  expect(heard).toMatchObject({ sets: [], failures: [] });
  expect(clock.waits).toEqual([]);
});

test("once stopped it asks no more", async () => {
  const { server, heard, start, clock, source } = await watch();
  server.reply = { records: [a("10.0.0.1")] };
  await start();
  source.stop();
  clock.advance(3_600_000);
  // A question would be under way now: that of another source comes after it.
  const other = new DnsSource({ ...OTHER, servers: [server.address] }, clock);
  onTestFinished(() => other.stop());
  await other.start(heard);
  expect(server.questions.map(({ name }) => name)).toEqual([NAME, OTHER.name]);
});

const OTHER: DnsDiscoveryOptions = {
  ...{ kind: "dns", name: "other.test", type: "a", port: 1, scheme: "http", path: "", servers: [] },
  ...{ models: undefined, weight: undefined, slots: undefined, maxInFlight: undefined },
};
