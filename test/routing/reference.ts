// The rules of sessions and bindings once more, in the plainest way, for comparison with the router. It is told which
// worker was chosen, since policies are not its business.
import type { AcquireRequest, SessionOptions } from "../../host/index.js";
import type { Worker } from "../../host/routing/worker.js";

/** A session, or all children of one parent. */
export interface Session {
  readonly kind: "session" | "parent-group";
  /** Tenant, kind and key; null for one that is known only by names of its answers. */
  readonly key: string | null;
  /** Public name, once known. */
  id: string | null;
  worker: Worker | null;
  /** Whether a commit made it stand. */
  isBound: boolean;
  /** Changes whenever the session is put on a worker or taken off one. */
  view: number;
  readonly leases: Set<Hold>;
  usedAt: number;
  isEnding: boolean;
  /** Requests that a worker accepted. */
  turns: number;
}

/** A request in flight. */
export interface Hold {
  readonly worker: Worker;
  readonly tenant: string;
  /** Where the request found its session, if that worker could have been chosen. */
  readonly found: Worker | null;
  /** Whether answers to it may name a session. */
  readonly mayName: boolean;
  readonly hasKey: boolean;
  session: Session | null;
  view: number;
  isCommitted: boolean;
}

/** What must come of a request. */
export interface Outlook {
  readonly refusal: "NoWorkerError" | "PinError" | null;
  /** The workers one of which is chosen; a single one where there is no choice. */
  readonly allowed: readonly Worker[];
  /** Why, where that follows from the rules. */
  readonly reason: "hard" | "explicit" | null;
  /** The worker that a policy is shown as the session's. */
  readonly shown: Worker | null;
  readonly session: Session | null;
  /** The key of the session that it would start. */
  readonly opens: string | null;
  readonly isGroup: boolean;
  readonly isHard: boolean;
  readonly mayName: boolean;
  readonly found: Worker | null;
}

export class Reference {
  readonly workers: Worker[] = [];
  /** All that take up room, what is stale included until it is cleared away, in the order in which they were last let go. */
  sessions: Session[] = [];
  readonly holds: Hold[] = [];
  readonly names = new Map<string, Session>();
  now = Number.NEGATIVE_INFINITY;
  evicted = 0;
  refused = 0;
  kept = 0;
  broken = 0;
  placed = 0;
  lost = 0;
  /** Workers removed since stale sessions were last cleared away. */
  removals = 0;
  readonly #ttl: number;
  readonly #most: number;
  readonly #evicts: boolean;
  readonly #affinity: "off" | "session" | "parent-group";
  readonly #isHard: boolean;
  readonly #fromParent: boolean;

  constructor(options: Required<Omit<SessionOptions, "fullDeterminism" | "modelSuffixes">>) {
    this.#ttl = options.ttlMs;
    this.#most = options.maxBindings;
    this.#evicts = options.whenFull === "evict-idle";
    this.#affinity = options.mode === "off" ? "off" : options.binding;
    this.#isHard = options.mode === "hard";
    this.#fromParent = options.firstPlacement === "parent";
  }

  /** A clock that goes backwards stands still. */
  see(time: number): void {
    this.now = Math.max(this.now, time);
  }

  isStale(session: Session): boolean {
    return session.leases.size === 0 && session.usedAt + this.#ttl <= this.now;
  }

  /** Sessions that an operator is shown. */
  standing(): Session[] {
    return this.sessions.filter((session) => session.isBound && !this.isStale(session));
  }

  clearStale(): void {
    for (const session of this.sessions.filter((each) => this.isStale(each))) this.#remove(session);
    this.removals = 0;
  }

  /** Whose session a request is of. */
  find(request: AcquireRequest): Pick<Outlook, "session" | "opens" | "isGroup" | "mayName"> {
    const { key, parent, tenant = "", previousResponse, affinity = this.#affinity } = request;
    if (affinity === "off") return { session: null, opens: null, isGroup: false, mayName: false };
    const named = this.names.get(nameOf(tenant, previousResponse));
    if (named && !this.isStale(named))
      return { session: named, opens: null, isGroup: named.kind === "parent-group", mayName: true };
    if (key === undefined) return { session: null, opens: null, isGroup: false, mayName: true };
    const isGroup = affinity === "parent-group" && parent !== undefined;
    const sought = keyOf(tenant, isGroup, isGroup ? parent : key);
    const session = this.#withKey(sought);
    return { session, opens: session ? null : sought, isGroup, mayName: true };
  }

  outlook(request: AcquireRequest): Outlook {
    const { parent, tenant = "", pin, exclude = [], affinity } = request;
    const eligible = this.workers.filter((worker) => worker.eligible && !exclude.includes(worker));
    let { session, opens, isGroup, mayName } = this.find(request);
    const isHard = this.#isHard || (affinity !== undefined && affinity !== "off");
    const pinned = this.workers.find(({ id }) => id === pin);
    // A child that must be elsewhere leaves its group as it is.
    if (pinned && isGroup && session?.worker !== pinned)
      [session, opens, isGroup, mayName] = [null, null, false, false];
    const bound = session?.worker ?? null;
    const found = bound && eligible.includes(bound) ? bound : null;
    let shown = found;
    if (opens !== null && parent !== undefined && this.#fromParent) {
      const home = this.#withKey(keyOf(tenant, false, parent))?.worker;
      if (home && eligible.includes(home)) shown = home;
    }
    const rest = { shown, session, opens, isGroup, isHard, mayName, found };
    if (this.workers.length === 0) return { refusal: "NoWorkerError", allowed: [], reason: null, ...rest };
    if (pin !== undefined) {
      let refusal: Outlook["refusal"] = null;
      if (!pinned) refusal = "PinError";
      else if (!eligible.includes(pinned)) refusal = "NoWorkerError";
      else if (found && found !== pinned) refusal = "PinError";
      return { refusal, allowed: pinned ? [pinned] : [], reason: "explicit", ...rest };
    }
    if (isHard && found) return { refusal: null, allowed: [found], reason: "hard", ...rest };
    // What was placed anew because the session's worker cannot be had is joined.
    const onTheirWay = isHard && bound ? [...session!.leases].reverse() : [];
    const joined = onTheirWay.find((hold) => eligible.includes(hold.worker))?.worker;
    if (joined) return { refusal: null, allowed: [joined], reason: "hard", ...rest };
    const refusal = eligible.length === 0 ? "NoWorkerError" : null;
    return { refusal, allowed: eligible, reason: null, ...rest };
  }

  acquire(outlook: Outlook, request: AcquireRequest, worker: Worker): Hold {
    const { opens, isGroup, found } = outlook;
    const session = opens === null ? outlook.session : this.#open(opens, isGroup);
    if (session?.worker === null) this.#putOn(session, worker);
    const hold: Hold = {
      worker,
      tenant: request.tenant ?? "",
      found,
      mayName: outlook.mayName,
      hasKey: request.key !== undefined,
      session,
      view: session?.view ?? 0,
      isCommitted: false,
    };
    session?.leases.add(hold);
    if (session && request.final && session.kind === "session") session.isEnding = true;
    this.holds.push(hold);
    return hold;
  }

  commit(hold: Hold): void {
    const { worker, found, session } = hold;
    if (hold.isCommitted) return;
    hold.isCommitted = true;
    if (found === worker) this.kept++;
    else if (found) this.broken++;
    else this.placed++;
    if (!session || !this.workers.includes(worker)) return;
    if (session.isBound && session.worker !== worker && session.view !== hold.view) {
      this.lost++;
      return;
    }
    if (session.worker !== worker) this.#putOn(session, worker);
    session.isBound = true;
    session.turns++;
    session.usedAt = this.now;
    hold.view = session.view;
  }

  alias(hold: Hold, name: string): void {
    if (!hold.isCommitted || !hold.mayName || !this.workers.includes(hold.worker)) return;
    const known = this.names.get(nameOf(hold.tenant, name));
    if (known && !this.isStale(known)) return;
    if (!hold.session && !hold.hasKey) {
      // Sessions that nobody has named displace no other and have half of the table at most.
      this.clearStale();
      const unnamed = this.sessions.filter(({ key }) => key === null).length;
      if (this.sessions.length >= this.#most || unnamed >= Math.ceil(this.#most / 2)) return;
      hold.session = this.#open(null, false);
      if (!hold.session) return;
      this.#putOn(hold.session, hold.worker);
      Object.assign(hold.session, { isBound: true, turns: 1, usedAt: this.now });
      hold.session.leases.add(hold);
      hold.view = hold.session.view;
    }
    if (hold.session) this.names.set(nameOf(hold.tenant, name), hold.session);
  }

  /** The session leaves the worker that failed, if it is there. */
  invalidate({ session, view, worker }: Hold): void {
    if (session?.worker === worker && session.view === view) this.#takeOff(session);
  }

  release(hold: Hold, isFailed: boolean): void {
    const { session, worker } = hold;
    this.holds.splice(this.holds.indexOf(hold), 1);
    if (!session) return;
    session.leases.delete(hold);
    if (session.view === hold.view) session.usedAt = this.now;
    // A choice that nobody has confirmed stands while a request of it is there, and none was failed.
    const isAlone = [...session.leases].every((other) => other.worker !== worker);
    if (session.worker === worker && !session.isBound && (isFailed || isAlone)) this.#passOn(session);
    if (session.leases.size > 0) return;
    if (session.isBound && !session.isEnding) {
      this.sessions = [...this.sessions.filter((other) => other !== session), session];
    } else this.#remove(session);
  }

  end(session: Session): void {
    session.isEnding = true;
    if (session.leases.size === 0) this.#remove(session);
  }

  removeWorker(worker: Worker): void {
    this.workers.splice(this.workers.indexOf(worker), 1);
    for (const session of this.sessions.filter((each) => each.worker === worker)) {
      this.#takeOff(session);
      if (session.leases.size === 0) this.#remove(session);
    }
    this.removals++;
  }

  #open(key: string | null, isGroup: boolean): Session | null {
    if (this.sessions.length >= this.#most) this.clearStale();
    if (this.sessions.length >= this.#most) {
      const idle = this.#longestIdle();
      if (!idle || !this.#evicts) {
        this.refused++;
        return null;
      }
      this.evicted++;
      this.#remove(idle);
    }
    const session: Session = {
      kind: isGroup ? "parent-group" : "session",
      key,
      id: null,
      worker: null,
      isBound: false,
      view: 0,
      leases: new Set(),
      usedAt: 0,
      isEnding: false,
      turns: 0,
    };
    this.sessions.push(session);
    return session;
  }

  #withKey(key: string): Session | null {
    return this.sessions.find((session) => session.key === key && !this.isStale(session)) ?? null;
  }

  #putOn(session: Session, worker: Worker): void {
    this.#takeOff(session);
    session.worker = worker;
  }

  /** A session that nobody has accepted goes to where the newest other request of it is on its way. */
  #passOn(session: Session): void {
    const left = session.worker;
    this.#takeOff(session);
    const others = [...session.leases].reverse();
    const heir = others.find(({ worker }) => worker !== left && this.workers.includes(worker));
    if (!heir) return;
    this.#putOn(session, heir.worker);
    heir.view = session.view;
  }

  #takeOff(session: Session): void {
    session.worker = null;
    session.isBound = false;
    session.view++;
  }

  #longestIdle(): Session | undefined {
    const idle = this.sessions.filter(({ leases }) => leases.size === 0);
    return idle.sort((one, other) => one.usedAt - other.usedAt)[0];
  }

  #remove(session: Session): void {
    this.sessions = this.sessions.filter((other) => other !== session);
    for (const [name, named] of this.names) if (named === session) this.names.delete(name);
  }
}

/** Under which a session is found. */
export function keyOf(tenant: string, isGroup: boolean, key: string): string {
  return JSON.stringify([tenant, isGroup, key]);
}

function nameOf(tenant: string, name: string | undefined): string {
  return JSON.stringify([tenant, name]);
}
