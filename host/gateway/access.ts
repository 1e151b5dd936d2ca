// Who may use the gateway: clients show a key, and each key has its own limits. Keys are known by their hashes alone.

import { createHash, timingSafeEqual } from "node:crypto";
import type { IncomingHttpHeaders } from "node:http";
import { TokenBucket } from "limiter";
import type { GatewayError } from "./errors.js";
import type { AccessKey, AccessOptions } from "./options.js";

/** Characters of the longest key; none that is longer is looked at. */
export const MAX_ACCESS_KEY_LENGTH = 256;

const MINUTE_MS = 60_000;
/** Nobody can tell when a request of the same key will end. */
const IN_FLIGHT_RETRY_S = 1;

const FORMS = "the gateway takes an access key, as authorization: Bearer KEY or x-api-key: KEY";
const MISSING = refusal(401, "invalid_api_key", `${FORMS}, and none was shown`);
const UNKNOWN = refusal(401, "invalid_api_key", `${FORMS}, and the one that was shown is not known`);

/** A request that counts for its client. */
export interface Admitted {
  /** The key's name. */
  readonly client: string;
  /** It is over. Does nothing but the first time. */
  release(): void;
}

/** Why a request is not admitted; `client` is the name of its key where that is known. */
export interface Refusal extends GatewayError {
  readonly client: string | undefined;
}

/** The SHA-256 of a key, each of whose characters is a byte, as in a header. */
export function hashOfKey(key: string): Buffer {
  return createHash("sha256").update(key, "latin1").digest();
}

/** The keys of all clients. */
export class Access {
  readonly #keys: readonly KeyInUse[];
  /** Those that are not taken any more, with requests under way: they may come back. */
  readonly #gone: readonly KeyInUse[];

  /** A key that was there `before`, under whatever name, goes on with what is under way for it. */
  constructor({ keys }: AccessOptions, before?: Access) {
    const held = before ? [...before.#keys, ...before.#gone] : [];
    this.#keys = keys.map((key) => {
      const known = held.find((other) => other.isKey(key));
      known?.configure(key);
      return known ?? new KeyInUse(key);
    });
    this.#gone = held.filter((key) => key.isInUse && !this.#keys.includes(key));
  }

  /** Counts a request for the key in its headers, until it is released; or says why it is refused. */
  admit(headers: IncomingHttpHeaders): Admitted | Refusal {
    const key = this.#find(headers);
    return key instanceof KeyInUse ? key.admit() : key;
  }

  /** Why a request that counts for no limit is refused: it shows no key that is known. Undefined where it does. */
  check(headers: IncomingHttpHeaders): Refusal | undefined {
    const key = this.#find(headers);
    return key instanceof KeyInUse ? undefined : key;
  }

  /** A client may have a credential of another kind in one header, and its key in the other. */
  #find(headers: IncomingHttpHeaders): KeyInUse | Refusal {
    const shown = keysIn(headers);
    if (shown.length === 0) return MISSING;
    return shown.map((key) => this.#match(key)).find((key) => key !== undefined) ?? UNKNOWN;
  }

  /** Takes as long for any key of the same length, whichever of them it is, or none. */
  #match(shown: string): KeyInUse | undefined {
    if (shown.length > MAX_ACCESS_KEY_LENGTH) return undefined;
    const hash = hashOfKey(shown);
    let found: KeyInUse | undefined;
    for (const key of this.#keys) if (timingSafeEqual(hash, key.hash)) found = key;
    return found;
  }
}

/** A key, and what is under way for it. */
class KeyInUse {
  readonly hash: Buffer;
  #options: AccessKey;
  /** Holds the requests of a minute, and fills evenly. */
  #bucket: TokenBucket | null;
  #inFlight = 0;

  constructor(options: AccessKey) {
    const { sha256, requestsPerMinute } = options;
    this.#options = options;
    this.hash = Buffer.from(sha256, "hex");
    this.#bucket = Number.isFinite(requestsPerMinute) ? fullBucket(requestsPerMinute) : null;
  }

  isKey({ sha256 }: AccessKey): boolean {
    return sha256 === this.#options.sha256;
  }

  get isInUse(): boolean {
    return this.#inFlight > 0;
  }

  /** Another limit of requests in a minute begins with a full bucket: whoever sets it means it. */
  configure(options: AccessKey): void {
    const { requestsPerMinute } = options;
    if (requestsPerMinute !== this.#options.requestsPerMinute)
      this.#bucket = Number.isFinite(requestsPerMinute) ? fullBucket(requestsPerMinute) : null;
    this.#options = options;
  }

  admit(): Admitted | Refusal {
    const { name, maxInFlight } = this.#options;
    // A request that finds no room costs nothing of the minute's.
    if (this.#inFlight >= maxInFlight) return this.#tooMany();
    if (this.#bucket?.tryRemoveTokens(1) === false) return this.#tooFast(this.#bucket);
    this.#inFlight++;
    let isReleased = false;
    const release = (): void => {
      if (!isReleased) this.#inFlight--;
      isReleased = true;
    };
    return { client: name, release };
  }

  #tooMany(): Refusal {
    const { name, maxInFlight } = this.#options;
    const message = `this key may have at most ${maxInFlight} requests under way at once`;
    return refusal(429, "too_many_requests_in_flight", message, name, IN_FLIGHT_RETRY_S);
  }

  #tooFast(bucket: TokenBucket): Refusal {
    const { name, requestsPerMinute } = this.#options;
    const message = `this key may begin at most ${requestsPerMinute} requests a minute`;
    return refusal(429, "rate_limited", message, name, Math.ceil(bucket.getWaitTime(1) / 1_000));
  }
}

function fullBucket(size: number): TokenBucket {
  const bucket = new TokenBucket({ bucketSize: size, tokensPerInterval: size, interval: MINUTE_MS });
  bucket.content = size;
  return bucket;
}

function refusal(
  status: number,
  code: string,
  message: string,
  client?: string,
  retryAfter?: number,
): Refusal {
  return { status, code, message, client, retryAfter };
}

/** What may be keys among the headers, the first to be preferred. */
function keysIn({ authorization = "", "x-api-key": apiKey }: IncomingHttpHeaders): string[] {
  const bearer = /^Bearer +(.+)$/i.exec(authorization)?.[1];
  return [bearer, apiKey].filter((key): key is string => typeof key === "string" && key !== "");
}
