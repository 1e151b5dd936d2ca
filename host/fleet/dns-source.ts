// Workers behind a name: the addresses that DNS has for it, or the hosts and ports of its SRV records.
import type { SrvRecord } from "node:dns";
import { Resolver } from "node:dns/promises";
import { isIPv6 } from "node:net";
import { quote } from "../yaml/words.js";
import { isAddress, urlAt } from "./address.js";
import type { Clock } from "./clock.js";
import {
  type DiscoveryListener,
  type DiscoverySource,
  Finding,
  type FoundWorker,
  type SourceView,
} from "./discovery.js";
import type { DnsDiscoveryOptions } from "./options.js";

/** How long the servers have to answer. */
export interface DnsPatience {
  /** Milliseconds that a server has at the first try, twice as many at the next. */
  readonly timeout: number;
  /** Times that a server is asked before the next one is. */
  readonly tries: number;
}

const PATIENCE: DnsPatience = { timeout: 2_000, tries: 2 };
const SHORTEST_MS = 1_000;
const LONGEST_MS = 300_000;
/** Node does not tell the TTL of SRV records. */
const SRV_MS = 30_000;
/** The answer that there are no records comes without a TTL, too; whoever starts workers waits for the next one. */
const NONE_MS = 5_000;
const FIRST_RETRY_MS = 1_000;
const LAST_RETRY_MS = 30_000;
const LONGEST_ID = 128;

/** There is no such name, or it has no such records: an answer like any other, by which a fleet may shrink to nothing. */
const NONE: ReadonlySet<unknown> = new Set(["ENOTFOUND", "ENODATA"]);

const FAILURES: Readonly<Record<string, string>> = {
  ESERVFAIL: "the DNS server failed (SERVFAIL)",
  EREFUSED: "the DNS server refused the question (REFUSED)",
  ETIMEOUT: "no DNS server answered in time",
  ECONNREFUSED: "no DNS server could be reached",
  EFORMERR: "the DNS server did not understand the question (FORMERR)",
  EBADRESP: "the DNS server's answer cannot be read",
};

interface Answer {
  /** A host and a port each, in any order; the same one may come twice. */
  readonly addresses: readonly string[];
  /** Milliseconds for which it holds. */
  readonly holdsMs: number;
}

/** The workers behind a name, asked for again and again. */
export class DnsSource implements DiscoverySource {
  readonly #options: DnsDiscoveryOptions;
  readonly #clock: Clock;
  readonly #patience: DnsPatience;
  readonly #finding = new Finding();
  #resolver: Resolver | undefined;
  #cancelNext = () => {};
  #stopped = false;
  #retryMs = FIRST_RETRY_MS;

  constructor(options: DnsDiscoveryOptions, clock: Clock, patience = PATIENCE) {
    this.#options = options;
    this.#clock = clock;
    this.#patience = patience;
  }

  start(listener: DiscoveryListener): Promise<void> {
    this.#finding.listen(listener);
    return this.#ask();
  }

  stop(): void {
    this.#stopped = true;
    this.#finding.listen(undefined);
    this.#cancelNext();
    this.#resolver?.cancel();
  }

  view(now: number): SourceView {
    const watches = `the ${this.#records} of ${this.#options.name}`;
    return { kind: "dns", watches, ...this.#finding.view(now) };
  }

  async #ask(): Promise<void> {
    const waitMs = await this.#answer().then(
      (answer) => this.#succeeded(answer),
      (error: Error) => this.#failed(error),
    );
    if (!this.#stopped) this.#cancelNext = after(this.#clock, waitMs, () => void this.#ask());
  }

  #succeeded({ addresses, holdsMs }: Answer): number {
    this.#retryMs = FIRST_RETRY_MS;
    const workers = [...new Set(addresses)].map((address) => this.#worker(address));
    this.#finding.succeeded(workers, this.#clock.now());
    return holdsMs;
  }

  #failed({ message, code }: NodeJS.ErrnoException): number {
    const why = code === undefined ? message : (FAILURES[code] ?? `the look-up failed (${code})`);
    this.#finding.failed(`cannot look up the ${this.#records} of ${this.#options.name}: ${why}`);
    const waitMs = this.#retryMs;
    this.#retryMs = Math.min(2 * waitMs, LAST_RETRY_MS);
    return waitMs;
  }

  get #records(): string {
    return `${this.#options.type.toUpperCase()} records`;
  }

  async #answer(): Promise<Answer> {
    const { servers } = this.#options;
    let failure: unknown;
    // Where a server fails a resolver asks no other one: it does so only where one is silent. What the system is set to
    // is left to it.
    for (const server of servers.length > 0 ? servers : [null]) {
      // A new one for each question knows what the system is set to by now.
      this.#resolver = new Resolver({ ...this.#patience });
      try {
        if (server !== null) this.#resolver.setServers([server]);
        return await this.#lookUp(this.#resolver);
      } catch (error) {
        if (NONE.has((error as NodeJS.ErrnoException).code)) return { addresses: [], holdsMs: NONE_MS };
        failure = error;
      }
      if (this.#stopped) break;
    }
    throw failure;
  }

  async #lookUp(resolver: Resolver): Promise<Answer> {
    const { name, type, port } = this.#options;
    if (type === "srv") return answerOf(await resolver.resolveSrv(name));
    const records = await (type === "a"
      ? resolver.resolve4(name, { ttl: true })
      : resolver.resolve6(name, { ttl: true }));
    const addresses = records.map(({ address }) => `${isIPv6(address) ? `[${address}]` : address}:${port}`);
    // Of more than 256 records, Node tells the TTL of the first 256.
    const ttls = records.map(({ ttl = Number.POSITIVE_INFINITY }: { ttl?: number }) => ttl);
    const holdsMs = Math.min(LONGEST_MS, Math.max(SHORTEST_MS, Math.min(...ttls) * 1_000));
    return { addresses, holdsMs: records.length === 0 ? NONE_MS : holdsMs };
  }

  #worker(address: string): FoundWorker {
    const { scheme, path, models, weight, slots, maxInFlight } = this.#options;
    return {
      id: address,
      url: urlAt(scheme, address, path),
      ...(models && { models }),
      ...(weight !== undefined && { weight }),
      ...(slots !== undefined && { slots }),
      ...(maxInFlight !== undefined && { maxInFlight }),
    };
  }
}

/**
 * The hosts of the records with the lowest priority number that is present: the others stand in for them by the will of
 * whoever wrote them, not by ours. The weight of a record is a share among its kind, no capacity: it does not count.
 */
function answerOf(records: readonly SrvRecord[]): Answer {
  // The root as a host means that there is decidedly no such service.
  const real = records.filter(({ name }) => name !== "" && name !== ".");
  const first = Math.min(...real.map(({ priority }) => priority));
  const addresses = real.filter(({ priority }) => priority === first).map(addressOf);
  return { addresses, holdsMs: real.length === 0 ? NONE_MS : SRV_MS };
}

function addressOf({ name, port }: SrvRecord): string {
  const address = `${name.toLowerCase().replace(/\.$/, "")}:${port}`;
  if (isAddress(address) && address.length <= LONGEST_ID) return address;
  throw new Error(`a record names ${quote(address)}, which ${breachOf(address)}`);
}

function breachOf(address: string): string {
  return isAddress(address) ? `is longer than ${LONGEST_ID} characters` : "is no host and port";
}

/** Calls once, after `ms` milliseconds, unless the returned function is called before. */
function after(clock: Clock, ms: number, call: () => void): () => void {
  const stop = clock.every(ms, () => {
    stop();
    call();
  });
  return stop;
}
