// What a router is asked, and what it shows: the types of its front door.

import type { ColumnName } from "../abi/frame.js";
import type { Failure } from "../abi/reasons.js";
import type { LeaseAudit } from "./audit.js";
import type { BindingView, WhenFull } from "./bindings.js";
import type { PolicyChange, PolicyInstance } from "./contenders.js";
import type { DecisionObserver } from "./observer.js";
import type { Worker, WorkerOptions } from "./worker.js";

/** How sessions are bound. */
export interface SessionOptions {
  /**
   * `soft`: bound, and the policy may move it. `hard`: bound, and not moved while its worker is eligible. `off`: every request
   * is placed anew. Default `soft`.
   */
  readonly mode?: "soft" | "hard" | "off";
  /** Ask no policy and bind nothing: a session's worker follows from its key alone. Default false. */
  readonly fullDeterminism?: boolean;
  /** Idle milliseconds after which a binding is forgotten; leases hold it off. Default 30 minutes. */
  readonly ttlMs?: number;
  /** Most bindings held, 1 to 2^24. Default 65,536. */
  readonly maxBindings?: number;
  /**
   * Where one binding more is needed: `evict-idle` has the longest unused give way, `refuse-new` serves the new session
   * unbound. Bindings in use never give way. Default `evict-idle`.
   */
  readonly whenFull?: WhenFull;
  /** What is bound: each session, or with `parent-group` all children of one parent together. Default `session`. */
  readonly binding?: "session" | "parent-group";
  /** `parent`: the policy is shown an unbound child as bound to its parent's worker. Default `policy`: as not bound. */
  readonly firstPlacement?: "policy" | "parent";
  /** Endings of a model's name that make no other session of it: with `-thinking`, `m-thinking` shares the sessions of `m`. */
  readonly modelSuffixes?: readonly string[];
}

export interface RouterOptions {
  readonly instance: PolicyInstance;
  /** Takes over when the instance is quarantined; left out, the built-in least-loaded rule does. */
  readonly fallback?: PolicyInstance | undefined;
  readonly workers?: readonly WorkerOptions[];
  readonly session?: SessionOptions;
  /** Monotonic milliseconds; one that goes backwards stands still. */
  readonly clock: () => number;
  /** Starts the generator of random bits; any safe integer. */
  readonly seed: number;
  /** Hears of every lease, for tests. */
  readonly audit?: LeaseAudit | undefined;
  /** Hears of every decision. */
  readonly observer?: DecisionObserver | undefined;
}

/** What a router does otherwise from now on, see `Router.prepare`. */
export interface RouterChange extends PolicyChange {
  /** As in the router's options; `maxBindings` cannot change. */
  readonly session?: SessionOptions | undefined;
}

/** One request, as far as routing is concerned. */
export interface AcquireRequest {
  /** The session's key, 1 to 256 bytes; requests without one are placed anew each time. */
  readonly key?: string | undefined;
  /** The key of the session that this one is a child of. */
  readonly parent?: string | undefined;
  /** The id of an answer, see `Lease.alias`: where it is known its session is meant, whatever `key` says. */
  readonly previousResponse?: string | undefined;
  /** Bindings of different models are apart. */
  readonly model?: string | undefined;
  /** Bindings of different tenants are apart. */
  readonly tenant?: string | undefined;
  /** Id of the worker that it must go to. */
  readonly pin?: string | undefined;
  /** Workers that it must not go to, such as one that failed it. */
  readonly exclude?: readonly Worker[] | undefined;
  /**
   * In place of what the router's options say: `off` binds nothing; the others bind in that way and keep the binding while
   * its worker is eligible, whatever the policy.
   */
  readonly affinity?: "off" | "session" | "parent-group" | undefined;
  /** The session's last request: its binding goes when its last lease ends. A group's stays. */
  readonly final?: boolean | undefined;
}

/** What `Router.explain` answers: what `acquire` would do now. */
export interface Explanation {
  readonly worker: string;
  readonly decision: string;
  readonly policy: string;
  /** Why the policy's own answer would not be used. */
  readonly failure?: Failure;
  /** The policy keeps state that cannot be looked at: a fresh instance was asked. */
  readonly fresh?: true;
  /** The id of the request's session, whether it is bound or not; null where it names none. */
  readonly session: string | null;
  /** Whether that is the session of the request's own key, of the children of its parent, or of an earlier answer. */
  readonly session_by: "key" | "parent" | "previous_response" | null;
  /** The worker that the session is bound to, or that its first request, still unanswered, was given. */
  readonly bound_to: string | null;
  /** The worker that the policy is shown as the session's: its parent's, where a new child starts from there. */
  readonly shown_bound_to: string | null;
  /** The session's binding, where one stands. */
  readonly binding: BindingView | null;
  /** Whether the request would bind its session, once accepted. */
  readonly binds: boolean;
  /** The workers of the model in the order of their rows, with the columns that a policy is shown. */
  readonly candidates: readonly { readonly worker: string; readonly columns: ColumnValues }[];
}

/** The columns of one row that the host fills. */
export type ColumnValues = Readonly<Partial<Record<ColumnName, number>>>;

/** One policy instance in `Router.status()`. */
export interface PolicyStatus {
  readonly name: string;
  readonly type: string;
  readonly state: "deciding" | "standby" | "quarantined";
  /** Why it is quarantined. */
  readonly reason?: string;
  /** Whether it is what the first one's name stood for before the last change of that. */
  readonly previous?: true;
  /** Why it does not start over as many workers as some model has: there it is passed over. */
  readonly not_started?: string;
  /** Answers that were not used, by kind. */
  readonly failures: Partial<Record<Failure, number>>;
}

/** What `Router.status()` and `GET /health` show. */
export interface RouterStatus {
  /** The selected instance, then what takes over from it. */
  readonly policies: readonly PolicyStatus[];
  /** Bindings held, tentative ones included. */
  readonly bindings: number;
  /** Bindings that gave way to a new one before their time. */
  readonly bindings_evicted: number;
  /** Requests served unbound because the table was full. */
  readonly bindings_refused: number;
  /** Accepted requests that stayed on their session's worker. */
  readonly affinity_kept: number;
  /** Accepted requests that went elsewhere although their session's worker was eligible. */
  readonly affinity_broken: number;
  /** Accepted requests that had no worker to stay on: new sessions, those whose worker is gone, and requests of no session. */
  readonly affinity_placed: number;
  /** Accepted moves that lost to another one of the same session, which stays there. */
  readonly rebinds_lost: number;
  readonly workers: readonly {
    readonly id: string;
    readonly models: readonly string[];
    readonly eligible: boolean;
    readonly active_requests: number;
    readonly bound_sessions: number;
  }[];
}
