// The router against a naive reference of its rules, over random sequences of everything that can happen to it.
// `HAWSER_MODEL_RUNS=N` tries N sequences.
import fc from "fast-check";
import { expect, test } from "vitest";
import { type AcquireRequest, type BindingView, type Lease, policyInstance } from "../../host/index.js";
import type { Worker } from "../../host/routing/worker.js";
import { type Fixture, fixture, shipped } from "./fixture.js";
import { type Hold, keyOf, Reference, type Session } from "./reference.js";

const RUNS = Number(process.env.HAWSER_MODEL_RUNS ?? 400);
const LIMIT_MS = 60_000 + RUNS * 100;
const SEED = 20_260;
const MOST_STEPS = 60;

const IDS = ["w0", "w1", "w2"];
const KEYS = ["a", "b", "c"];
const PARENTS = [undefined, "p", "a"];
const TENANTS = ["", "t"];
const NAMES = ["r0", "r1", "r2", "r3"];
/** Removals after which one request may not clear away all that is stale. */
const MOST_REMOVALS = 4;

const QUESTIONS: readonly AcquireRequest[] = TENANTS.flatMap((tenant) => [
  ...KEYS.flatMap((key) => PARENTS.map((parent) => ({ key, parent, tenant }))),
  ...NAMES.map((previousResponse) => ({ previousResponse, tenant })),
]);

const choices = fc.record({
  policy: fc.constantFrom("sticky", "least-loaded", "soft-affinity-load-guard"),
  /** Whether the status is looked at after every step, which clears away what is stale. */
  watched: fc.boolean(),
  session: fc.record({
    mode: fc.constantFrom("soft", "soft", "soft", "hard", "hard", "off"),
    binding: fc.constantFrom("session", "parent-group"),
    firstPlacement: fc.constantFrom("policy", "parent"),
    whenFull: fc.constantFrom("evict-idle", "refuse-new"),
    maxBindings: fc.integer({ min: 2, max: 4 }),
    ttlMs: fc.constantFrom(10, 40),
  }),
});
type Choices = typeof choices extends fc.Arbitrary<infer T> ? T : never;

function parametersOf(policy: Choices["policy"]) {
  const isGuard = policy === "soft-affinity-load-guard";
  return isGuard ? { parameters: { max_active_requests: 0, move_margin: 1 } } : {};
}

/** A request in flight, on both sides. */
interface Live {
  readonly lease: Lease;
  readonly hold: Hold;
}

/** A router and its reference, side by side. */
class Pair {
  readonly self: Fixture;
  readonly reference: Reference;
  readonly live: Live[] = [];
  readonly ended: Lease[] = [];
  /** Names of answers that may have started a session. */
  readonly openers = new Set<string>();
  readonly ids = new Map<string, string>();

  constructor(readonly choices: Choices) {
    const { policy, session } = choices;
    this.self = fixture({ policy, session, ...parametersOf(policy) });
    this.reference = new Reference(session);
    this.reference.workers.push(...this.self.router.workers);
    for (const tenant of TENANTS)
      for (const key of KEYS)
        this.ids.set(keyOf(tenant, false, key), this.self.router.sessionIdOf(key, "", tenant));
    this.check();
  }

  get router() {
    return this.self.router;
  }

  /** Compares all that can be seen. */
  check(): void {
    const { reference } = this;
    reference.see(this.self.time);
    if (this.choices.watched) this.checkStatus();
    const active = (worker: Worker) => reference.holds.filter((hold) => hold.worker === worker).length;
    const workers = [...new Set([...this.live.map(({ lease }) => lease.worker), ...reference.workers])];
    same(
      workers.map(({ activeRequests }) => activeRequests),
      workers.map(active),
    );
    this.checkIds();
    this.checkSessions();
    for (const question of QUESTIONS) this.checkQuery(question);
  }

  /** Every request knows its session's public name. */
  checkIds(): void {
    same(
      this.live.map(({ lease }) => lease.session),
      this.live.map(({ lease, hold }) => this.idOf(hold.session, lease)),
    );
  }

  /** What an operator reads; stale sessions are cleared away first. */
  checkStatus(): void {
    const { reference } = this;
    reference.clearStale();
    const { policies, ...status } = this.router.status();
    const boundTo = (worker: Worker) =>
      reference.sessions.filter((session) => session.isBound && session.worker === worker);
    same(status, {
      bindings: reference.sessions.length,
      bindings_evicted: reference.evicted,
      bindings_refused: reference.refused,
      affinity_kept: reference.kept,
      affinity_broken: reference.broken,
      affinity_placed: reference.placed,
      rebinds_lost: reference.lost,
      workers: reference.workers.map((worker) => ({
        id: worker.id,
        models: worker.models,
        eligible: worker.eligible,
        active_requests: worker.activeRequests,
        bound_sessions: boundTo(worker).length,
      })),
    });
    same(
      policies.map(({ failures }) => failures),
      [{}],
    );
  }

  checkSessions(): void {
    const { reference, router } = this;
    const shown = reference.standing().map((session) => ({
      id: session.id!,
      kind: session.kind,
      worker: session.worker!.id,
      leases: session.leases.size,
      turns: session.turns,
      ending: session.isEnding,
      idle_ms: session.leases.size > 0 ? 0 : reference.now - session.usedAt,
    }));
    const views = [...pages(this.self)];
    same(views.map(visible).sort(byId), shown.sort(byId));
    for (const view of views) same(router.session(view.id), view);
    for (const { id, isBound } of reference.sessions)
      if (!isBound && id !== null) same(router.session(id), undefined);
    for (const worker of reference.workers) {
      const mine = views.filter((view) => view.worker === worker.id);
      same(router.sessions(9, 0, worker).views, mine);
    }
  }

  checkQuery(question: AcquireRequest): void {
    if (this.reference.workers.length === 0) {
      expect(() => this.router.query(question)).toThrow("no worker serves requests that name no model");
      return;
    }
    const { session } = this.reference.find(question);
    const bound = session?.isBound ? session.worker : null;
    const found = this.router.query(question);
    if (found !== bound) expect({ question, worker: found }).toEqual({ question, worker: bound });
  }

  /** The public name that a session must have: that of its key, and always the same one. */
  idOf(session: Session | null, lease: Lease): string | null {
    if (!session) return null;
    const { key } = session;
    session.id ??= (key !== null && this.ids.get(key)) || lease.session;
    if (key !== null) this.ids.set(key, session.id!);
    return session.id;
  }
}

/** Asserts only where two plain values differ: done some hundred thousand times, assertions take the most time. */
function same(found: unknown, expected: unknown): void {
  if (JSON.stringify(found) !== JSON.stringify(expected)) expect(found).toEqual(expected);
}

function visible({ id, kind, worker, leases, turns, ending, idle_ms }: BindingView) {
  return { id, kind, worker, leases, turns, ending, idle_ms };
}

function byId(one: { id: string }, other: { id: string }): number {
  return one.id < other.id ? -1 : 1;
}

function* pages({ router }: Fixture) {
  let next = 0;
  do {
    const page = router.sessions(2, next);
    yield* page.views;
    ({ next } = page);
  } while (next !== 0);
}

/** Something that happens to both. */
class Step implements fc.Command<Pair, Pair> {
  constructor(
    readonly name: string,
    readonly happen: (pair: Pair) => void,
    readonly check: (pair: Readonly<Pair>) => boolean = () => true,
  ) {}

  run(pair: Pair): void {
    this.happen(pair);
    pair.check();
  }

  toString(): string {
    return this.name;
  }
}

/** There once in `often` times. */
function seldom<T>(arbitrary: fc.Arbitrary<T>, often = 8): fc.Arbitrary<T | undefined> {
  const absent = { arbitrary: fc.constant(undefined), weight: often - 1 };
  return fc.oneof(absent, { arbitrary, weight: 1 });
}

const requests = fc.record({
  key: fc.constantFrom("a", "a", "a", "a", "b", "c", undefined, undefined),
  parent: fc.constantFrom(undefined, undefined, "p", "a"),
  tenant: seldom(fc.constant("t"), 12),
  pin: seldom(fc.constantFrom(...IDS), 12),
  previousResponse: seldom(fc.constantFrom(...NAMES), 4),
  affinity: seldom(fc.constantFrom("off" as const, "session" as const, "parent-group" as const)),
  final: seldom(fc.constant(true), 12),
});

/** Many requests are seen to their end at once: else most sequences would be over before a session stands. */
const acquire = fc
  .tuple(
    requests,
    seldom(fc.subarray(IDS, { minLength: 1, maxLength: 2 })),
    fc.constantFrom(
      ...["waits", "waits", "waits", "waits", "accepted", "accepted", "ends", "ends"],
      ...NAMES,
    ),
  )
  .map(([asked, excluded = [], fate]) => {
    const request = asked.key === undefined ? { ...asked, parent: undefined } : asked;
    return new Step(`acquire(${JSON.stringify({ ...request, excluded })}), ${fate}`, (pair) => {
      const made = ask(pair, request, excluded);
      if (!made || fate === "waits") return;
      accept(pair, made);
      if (fate === "accepted") return;
      if (fate !== "ends") giveName(pair, made, fate);
      finish(pair, made);
    });
  });

function ask(pair: Pair, asked: AcquireRequest, excluded: readonly string[]): Live | null {
  const { reference, router, choices } = pair;
  const exclude = reference.workers.filter(({ id }) => excluded.includes(id));
  const whole = { ...asked, exclude };
  if (reference.workers.length > 0) reference.clearStale();
  const outlook = reference.outlook(whole);
  if (outlook.refusal) {
    expect(() => router.acquire(whole)).toThrow(expect.objectContaining({ name: outlook.refusal }));
    return null;
  }
  const lease = router.acquire(whole);
  expect(outlook.allowed).toContain(lease.worker);
  if (outlook.reason) expect(lease.reason).toBe(outlook.reason);
  else expect(["hard", "explicit"]).not.toContain(lease.reason);
  // What has no worker to leave is placed, whatever the policy.
  const isNew = outlook.isHard || !outlook.session?.worker;
  if (!outlook.reason && !outlook.shown && isNew) expect(lease.reason).toBe("place");
  if (choices.policy === "sticky" && !outlook.reason && outlook.shown)
    expect(lease.worker).toBe(outlook.shown);
  const made = { lease, hold: reference.acquire(outlook, whole, lease.worker) };
  pair.live.push(made);
  pair.checkIds();
  return made;
}

function accept({ reference }: Pair, { lease, hold }: Live): void {
  lease.commit();
  reference.commit(hold);
}

function giveName(pair: Pair, { lease, hold }: Live, name: string): void {
  const { reference, choices, openers } = pair;
  // There are as many names as there can be bindings: which ones give way to more is for the test of their table.
  if (reference.names.size >= choices.session.maxBindings) return;
  // Two sessions that start with one name would have the same public one.
  if (!hold.session && openers.has(name)) return;
  if (!hold.session) openers.add(name);
  lease.alias(name);
  reference.alias(hold, name);
  pair.checkIds();
}

function finish(pair: Pair, ending: Live, isFailed = false): void {
  expect(isFailed ? ending.lease.release("failed") : ending.lease.release()).toBe(true);
  pair.reference.release(ending.hold, isFailed);
  pair.live.splice(pair.live.indexOf(ending), 1);
  pair.ended.push(ending.lease);
}

/** What is done with a request in flight. */
function withLive(name: string, act: (pair: Pair, live: Live) => void): fc.Arbitrary<Step> {
  return fc.nat(7).map(
    (at) =>
      new Step(
        `${name}(${at})`,
        (pair) => act(pair, pair.live[at % pair.live.length]!),
        ({ live }) => live.length > 0,
      ),
  );
}

const commit = withLive("commit", accept);
const release = withLive("release", (pair, live) => finish(pair, live));
const fail = withLive("fail", (pair, live) => finish(pair, live, true));
const invalidate = withLive("invalidate", ({ reference }, { lease, hold }) => {
  lease.invalidate();
  reference.invalidate(hold);
});
const alias = fc
  .constantFrom(...NAMES)
  .chain((name) => withLive(`alias ${name} `, (pair, live) => giveName(pair, live, name)));

const again = fc.nat(7).map(
  (at) =>
    new Step(
      `again(${at})`,
      ({ ended }) => {
        const lease = ended[at % ended.length]!;
        lease.commit();
        lease.alias("r0");
        lease.invalidate();
        expect(lease.release()).toBe(false);
        expect(lease.session).toBeNull();
      },
      ({ ended }) => ended.length > 0,
    ),
);

const remove = fc.constantFrom(...IDS).map(
  (id) =>
    new Step(
      `remove(${id})`,
      ({ reference, router, self }) => {
        const worker = self.worker(id);
        router.removeWorker(worker);
        reference.removeWorker(worker);
        expect(worker.removed).toBe(true);
      },
      ({ reference }) =>
        reference.removals < MOST_REMOVALS && reference.workers.some((worker) => worker.id === id),
    ),
);

const add = fc.tuple(fc.constantFrom(...IDS), fc.constantFrom(true, true, false)).map(
  ([id, eligible]) =>
    new Step(
      `add(${id}, ${eligible})`,
      ({ reference, router }) => reference.workers.push(router.addWorker({ id, ready: eligible })),
      ({ reference }) => reference.workers.every((worker) => worker.id !== id),
    ),
);

const health = fc.tuple(fc.constantFrom(...IDS), fc.constantFrom(true, true, false)).map(
  ([id, eligible]) =>
    new Step(
      `health(${id}, ${eligible})`,
      ({ self }) => {
        self.worker(id).ready = eligible;
      },
      ({ reference }) => reference.workers.some((worker) => worker.id === id),
    ),
);

const time = fc.integer({ min: -20, max: 30 }).map(
  (ms) =>
    new Step(`time(${ms})`, (pair) => {
      pair.self.time += ms;
    }),
);

const end = fc.nat(7).map(
  (at) =>
    new Step(`end(${at})`, ({ reference, router }) => {
      const session = reference.sessions[at];
      const stands = session !== undefined && reference.standing().includes(session);
      expect(router.endSession(session?.id ?? "0123456789abcdef")).toBe(stands);
      if (stands) reference.end(session);
    }),
);

/** Another instance of the same rule decides from now on, or the one that did: nothing else changes. */
const swap = fc.constantFrom("one", "other").map(
  (name) =>
    new Step(`swap(${name})`, ({ router, choices: { policy, session } }) => {
      const instance = policyInstance({ policy: shipped(policy), ...parametersOf(policy), name });
      router.apply(router.prepare({ instance, session }));
    }),
);

const look = fc.constant(new Step("look()", (pair) => pair.checkStatus()));

/** What may happen, each as often as it stands here. */
const happenings: fc.Arbitrary<Step>[] = [
  ...[acquire, acquire, acquire, acquire, acquire, acquire, acquire, acquire],
  ...[commit, commit, commit, release, release, release, fail, alias, alias, invalidate, again],
  ...[remove, add, add, health, health, time, time, end, look, swap],
];

const steps = fc.commands<Pair, Pair>(happenings, { maxCommands: MOST_STEPS, size: "max" });

test(
  "the router does what its rules say, whatever happens in whatever order",
  () => {
    fc.assert(
      fc.property(choices, steps, (chosen, sequence) => {
        fc.modelRun(() => {
          const pair = new Pair(chosen);
          return { model: pair, real: pair };
        }, sequence);
      }),
      { seed: SEED, numRuns: RUNS },
    );
  },
  LIMIT_MS,
);
