// A worker that goes wrong where another one could help: when that is asked, on every endpoint, with and without a stream.
import { expect, it } from "vitest";
import { goodAnswer } from "./apis.js";
import {
  AN_HOUR,
  ask,
  BROKEN,
  cellsOf,
  expectCut,
  expectNothingUncaught,
  expectRefusal,
  expectWhole,
  type Failure,
  FIRST_BYTE,
  SILENT,
  UNREACHABLE,
} from "./fault-cells.js";
import { CHUNKED, type Fault, faultyUpstream } from "./faulty-upstream.js";
import { type GatewayFixture, gateway, inFlight, until } from "./fixture.js";
import { VirtualClock } from "./virtual-clock.js";

interface Row {
  readonly name: string;
  /** What the first worker does; `gone`: its port is closed. */
  readonly fault: Fault | "gone";
  /** What the second does; by default it answers well. */
  readonly other?: Fault;
  /** Whether the client gets the other's answer, or what it is told in place of that. */
  readonly outcome: "helped" | Failure;
  /** How often the second worker is asked; by default only where it helps. */
  readonly asked?: 1;
  readonly options?: Partial<GatewayFixture>;
  readonly headers?: Record<string, string>;
  /** Further members of the request's body. */
  readonly members?: object;
}

const reset: Fault = (wire) => wire.reset();
const STORED = { store: true };
const PINNED = { options: { allowPin: true }, headers: { "x-hawser-pin": "w0" } };

const HELPED: readonly Row[] = [
  { name: "is gone", fault: "gone", outcome: "helped" },
  { name: "resets before the head", fault: reset, outcome: "helped" },
  { name: "closes before the head", fault: (wire) => wire.close(), outcome: "helped" },
  { name: "half-closes before the head", fault: (wire) => wire.halfClose(), outcome: "helped" },
  { name: "is gone when it should store", fault: "gone", outcome: "helped", members: STORED },
  {
    name: "resets before the head, and need not store",
    fault: reset,
    outcome: "helped",
    members: { store: false, conversation: null },
  },
  {
    name: "resets before the head when it should store, which may be done twice",
    fault: reset,
    outcome: "helped",
    members: STORED,
    options: { retries: { stateful: true } },
  },
];

const NOT_HELPED: readonly Row[] = [
  {
    name: "resets in the middle of the head",
    fault: async (wire) => {
      await wire.raw("HTTP/1.1 200 OK\r\ncontent-ty");
      wire.reset();
    },
    outcome: UNREACHABLE,
  },
  {
    name: "closes in the middle of the head",
    fault: async (wire) => {
      await wire.raw("HTTP/1.1 200 OK\r\ncontent-ty");
      wire.close();
    },
    outcome: UNREACHABLE,
  },
  {
    name: "resets after the head",
    fault: async (wire) => {
      await wire.begin(CHUNKED);
      wire.reset();
    },
    outcome: BROKEN,
  },
  {
    name: "resets in the middle of the body",
    fault: async (wire) => {
      await wire.begin(CHUNKED, () => wire.chunk(wire.half));
      wire.reset();
    },
    outcome: BROKEN,
  },
  { name: "stays silent", fault: () => {}, outcome: SILENT },
  { name: "resets when it should store", fault: reset, outcome: UNREACHABLE, members: STORED },
  {
    name: "resets when it is to go on with a conversation",
    fault: reset,
    outcome: UNREACHABLE,
    members: { conversation: { id: "c" } },
  },
  { name: "resets, and was asked for by name", fault: reset, outcome: UNREACHABLE, ...PINNED },
  { name: "is gone, and was asked for by name", fault: "gone", outcome: UNREACHABLE, ...PINNED },
  {
    name: "resets, after which none is to be tried",
    fault: reset,
    outcome: UNREACHABLE,
    options: { retries: { reset: false } },
  },
  {
    name: "is gone, after which none is to be tried",
    fault: "gone",
    outcome: UNREACHABLE,
    options: { retries: { connect: false } },
  },
  {
    name: "resets, as the other does",
    fault: reset,
    other: reset,
    outcome: UNREACHABLE,
    asked: 1,
    options: { retries: { attempts: 5 } },
  },
  {
    name: "is gone, where the other resets",
    fault: "gone",
    other: reset,
    outcome: UNREACHABLE,
    asked: 1,
    options: { retries: { attempts: 5 } },
  },
];

expectNothingUncaught();

it.each(cellsOf([...HELPED, ...NOT_HELPED]))("a worker that %s", async (_title, row, mode) => {
  const isHelped = row.outcome === "helped";
  const worker = await faultyUpstream(row.fault === "gone" ? () => {} : row.fault);
  const other = await faultyUpstream(row.other ?? ((wire) => wire.answerWell()));
  const clock = new VirtualClock();
  const { url, router } = await gateway({
    ...{ urls: [worker.url, other.url], clock, health: { intervalMs: AN_HOUR } },
    ...row.options,
  });
  if (row.fault === "gone") await worker.leave();
  // With nothing else under way the first worker is chosen first.
  const headers = { "x-session-id": "s", ...row.headers };
  const asked = ask(url, mode, { headers, members: row.members, seen: worker.seen });
  if (row.outcome === SILENT) {
    await until(() => worker.requests[0]?.isSaid === true);
    clock.advance(FIRST_BYTE);
  }
  const got = await asked;
  const good = goodAnswer(mode.api, mode.isStream).body;
  if (row.outcome === "helped") expectWhole(got, good);
  else if (row.outcome === BROKEN) expectCut(got, mode, Buffer.concat(worker.requests[0]!.sent), BROKEN);
  else expectRefusal(got, mode, row.outcome);

  // Each was asked once at most, and for the same.
  const timesAsked = [worker.requests.length, other.requests.length];
  expect(timesAsked).toEqual([row.fault === "gone" ? 0 : 1, isHelped ? 1 : (row.asked ?? 0)]);
  const bodies = [...worker.requests, ...other.requests].map(({ body }) => body.toString());
  expect(new Set(bodies).size).toBeLessThanOrEqual(1);

  // Only a worker that has accepted the session has it.
  await until(() => inFlight(router) === 0);
  const bound = router.status().workers.map((each) => each.bound_sessions);
  expect(bound).toEqual([row.outcome === BROKEN ? 1 : 0, isHelped ? 1 : 0]);
  if (!isHelped) return;
  const next = await ask(url, mode, { headers });
  expectWhole(next, good);
  expect([got.worker, next.worker]).toEqual(["w1", "w1"]);
});

it.each(cellsOf([{ name: "answers 200 with an error first" }]))(
  "a worker that %s, where streams are looked at",
  async (_title, _row, mode) => {
    const worker = await faultyUpstream((wire) => wire.answerError());
    const other = await faultyUpstream((wire) => wire.answerWell());
    const streams = { peek: true };
    const { url, router } = await gateway({
      urls: [worker.url, other.url],
      streams,
      health: { intervalMs: AN_HOUR },
    });
    const got = await ask(url, mode, { headers: { "x-session-id": "s" } });
    // An answer that is no stream is passed on as it is.
    if (mode.isStream) expectWhole(got, goodAnswer(mode.api, true).body);
    else expectWhole(got, Buffer.concat(worker.requests[0]!.sent));
    const helped = mode.isStream ? 1 : 0;
    expect([got.worker, worker.requests.length, other.requests.length]).toEqual([`w${helped}`, 1, helped]);
    await until(() => inFlight(router) === 0);
    const bound = router.status().workers.map((each) => each.bound_sessions);
    expect(bound).toEqual([1 - helped, helped]);
  },
);
