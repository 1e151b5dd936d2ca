// Workers in a file that is watched: whoever writes it adds and removes workers.
import type { BigIntStats } from "node:fs";
import { constants, type FileHandle, open, stat } from "node:fs/promises";
import { formatMistake, type Mistake } from "../yaml/mistake.js";
import { causeOf } from "../yaml/read.js";
import type { Clock } from "./clock.js";
import {
  type DiscoveryListener,
  type DiscoverySource,
  Finding,
  type FoundWorker,
  type SourceView,
} from "./discovery.js";
import type { FileDiscoveryOptions } from "./options.js";
import { readTargetsAside } from "./targets-aside.js";

// The file's status is asked for at intervals. Notices of the kernel would follow one inode or one directory: they miss
// the swap of a symbolic link further up, which is how Kubernetes updates a ConfigMap, and what another machine wrote.
const POLL_MS = 1_000;
/** Looks after which a file that changes at each of them is read all the same. */
const MAX_RESTLESS = 10;
const MAX_BYTES = 4 * 2 ** 20;
/** Mistakes told at once. */
const MAX_TOLD = 5;

/** What a look at the file came to. */
type Look =
  | "unchanged"
  | "unsettled"
  | { readonly workers: readonly FoundWorker[] }
  | { readonly failure: string };

/** The workers in a file of targets, for as long as it is watched. */
export class FileSource implements DiscoverySource {
  readonly #file: string;
  readonly #clock: Clock;
  readonly #finding = new Finding();
  #stopPolling = () => {};
  #isFirst = true;
  #looking: Promise<void> | undefined;
  /** The file's stamp when it was last looked at, and that of the content that was last read. */
  #seen: string | undefined;
  #read: string | undefined;
  #restless = 0;

  constructor({ file }: FileDiscoveryOptions, clock: Clock) {
    this.#file = file;
    this.#clock = clock;
  }

  start(listener: DiscoveryListener): Promise<void> {
    this.#finding.listen(listener);
    this.#stopPolling = this.#clock.every(POLL_MS, () => void this.look());
    return this.look();
  }

  stop(): void {
    this.#finding.listen(undefined);
    this.#stopPolling();
  }

  view(now: number): SourceView {
    return { kind: "file", watches: this.#file, ...this.#finding.view(now) };
  }

  /** Looks now, besides the looks at intervals; resolves when that one, or the one under way, is over. */
  look(): Promise<void> {
    // A file system that hangs is not asked again meanwhile.
    this.#looking ??= this.#run().finally(() => {
      this.#looking = undefined;
    });
    return this.#looking;
  }

  async #run(): Promise<void> {
    const look = await this.#compare().catch((error: unknown) => {
      return { failure: `${this.#file}:1:1: cannot read the file: ${causeOf(error)}` };
    });
    this.#isFirst = false;
    this.#conclude(look);
  }

  #conclude(look: Look): void {
    const now = this.#clock.now();
    if (look === "unsettled") return;
    if (look === "unchanged") {
      if (!this.#finding.isBroken) this.#finding.confirmed(now);
    } else if ("failure" in look) this.#finding.failed(look.failure);
    else this.#finding.succeeded(look.workers, now);
  }

  async #compare(): Promise<Look> {
    const stamp = await this.#stamp();
    if (stamp === this.#read) return "unchanged";
    // Half of a YAML file may be a good one: what is written in place is read when it has stood still for a while.
    const isSettled = this.#isFirst || stamp === this.#seen;
    this.#seen = stamp;
    this.#restless = isSettled ? 0 : this.#restless + 1;
    if (!isSettled && this.#restless <= MAX_RESTLESS) return "unsettled";
    return this.#readTargets();
  }

  async #stamp(): Promise<string> {
    try {
      return stampOf(await stat(this.#file, { bigint: true }));
    } catch (error) {
      // What is gone is read again when it comes back, the same or not.
      this.#read = undefined;
      throw error;
    }
  }

  async #readTargets(): Promise<Look> {
    const { bytes, stamp } = await contentOf(this.#file);
    if (stamp === undefined) return "unsettled";
    // Whatever comes of it, the same content is not read twice.
    this.#read = stamp;
    const targets = await readTargetsAside(decode(bytes), this.#file);
    return "workers" in targets ? targets : { failure: textOf(targets.mistakes) };
  }
}

/** What differs wherever the content may differ, be it written in place, renamed over, or behind another link. */
function stampOf({ dev, ino, size, mtimeNs, ctimeNs }: BigIntStats): string {
  return [dev, ino, size, mtimeNs, ctimeNs].join();
}

/** The content of a small regular file, and its stamp, undefined where it changed meanwhile. Throws where there is none. */
async function contentOf(file: string): Promise<{ bytes: Uint8Array; stamp: string | undefined }> {
  // A pipe would block until somebody writes.
  const handle = await open(file, constants.O_RDONLY | constants.O_NONBLOCK);
  try {
    const before = await checkedStamp(handle);
    const bytes = await handle.readFile();
    const after = await checkedStamp(handle);
    return { bytes, stamp: before === after ? after : undefined };
  } finally {
    await handle.close();
  }
}

async function checkedStamp(handle: FileHandle): Promise<string> {
  const status = await handle.stat({ bigint: true });
  if (status.isDirectory()) throw new Error("it is a directory");
  if (!status.isFile()) throw new Error("it is not a regular file");
  if (status.size > MAX_BYTES)
    throw new Error(`it has ${status.size} bytes, at most ${MAX_BYTES} are allowed`);
  return stampOf(status);
}

function decode(bytes: Uint8Array): string {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    throw new Error("it is not UTF-8 text");
  }
}

/** The first mistakes, each with its line, and how many more there are. */
function textOf(mistakes: readonly Mistake[]): string {
  const rest = mistakes.length - MAX_TOLD;
  const told = mistakes.slice(0, MAX_TOLD).map(formatMistake);
  if (rest > 0) told.push(`and ${rest} more ${rest === 1 ? "mistake" : "mistakes"}`);
  return told.join("; ");
}
