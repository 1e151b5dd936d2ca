// A router with a clock that tests turn by hand.
import {
  type AcquireRequest,
  type BindingView,
  type CreateRouterOptions,
  createRouter,
  type Lease,
  loadPolicy,
  type Router,
} from "../../host/index.js";
import type { Worker } from "../../host/routing/worker.js";

export interface Fixture {
  readonly router: Router;
  /** Milliseconds; assign to let time pass. */
  time: number;
  worker(id: string): Worker;
  /** Counters and load in one look. */
  loads(): Record<string, number>;
  /** One request from acquire to release, accepted; by its key alone, or whole. */
  turn(request: string | AcquireRequest): Lease;
  /** The binding of a key that names no model, as an operator sees it. */
  binding(key: string): BindingView | undefined;
}

export type FixtureOptions = Omit<Partial<CreateRouterOptions>, "policy" | "workers"> & {
  readonly policy?: string;
  /** Ids, or nothing for w0, w1, w2. */
  readonly workers?: readonly string[];
  readonly models?: readonly string[];
};

const policies = new Map<string, ReturnType<typeof loadPolicy>>();

/** A shipped policy, compiled once. */
export function shipped(type: string): ReturnType<typeof loadPolicy> {
  const policy = policies.get(type) ?? loadPolicy(type);
  policies.set(type, policy);
  return policy;
}

/** Builds a router on a shipped policy; `sticky` with three workers unless told otherwise. */
export function fixture(options: FixtureOptions = {}): Fixture {
  const { policy = "sticky", workers = ["w0", "w1", "w2"], models, ...rest } = options;
  const self = { time: 0 } as Fixture;
  const router = createRouter({
    policy: shipped(policy),
    workers: workers.map((id) => ({ id, ...(models && { models }) })),
    seed: 1,
    clock: () => self.time,
    ...rest,
  });
  const worker = (id: string) => {
    const found = [...router.workers].find((candidate) => candidate.id === id);
    if (!found) throw new Error(`no worker ${id}`);
    return found;
  };
  const loads = () =>
    Object.fromEntries(router.status().workers.map(({ id, active_requests }) => [id, active_requests]));
  const turn = (request: string | AcquireRequest) => {
    const lease = router.acquire(typeof request === "string" ? { key: request } : request);
    lease.commit();
    lease.release();
    return lease;
  };
  const binding = (key: string) => router.session(router.sessionIdOf(key, ""));
  return Object.assign(self, { router, worker, loads, turn, binding });
}
