// Workers in a file that is watched: whoever writes it adds and removes workers.
import { formatMistake, type Mistake } from "../yaml/mistake.js";
import { WatchedFile } from "../yaml/watched-file.js";
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

const POLL_MS = 1_000;
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
  readonly #watched: WatchedFile;
  readonly #clock: Clock;
  readonly #finding = new Finding();
  #stopPolling = () => {};
  #looking: Promise<void> | undefined;

  constructor({ file }: FileDiscoveryOptions, clock: Clock) {
    this.#file = file;
    this.#watched = new WatchedFile(file, MAX_BYTES);
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
    const look = await this.#compare().catch(({ message }: Error) => {
      return { failure: `${this.#file}:1:1: cannot read the file: ${message}` };
    });
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
    const look = await this.#watched.look();
    if (typeof look === "string") return look;
    const targets = await readTargetsAside(look.text, this.#file);
    return "workers" in targets ? targets : { failure: textOf(targets.mistakes) };
  }
}

/** The first mistakes, each with its line, and how many more there are. */
function textOf(mistakes: readonly Mistake[]): string {
  const rest = mistakes.length - MAX_TOLD;
  const told = mistakes.slice(0, MAX_TOLD).map(formatMistake);
  if (rest > 0) told.push(`and ${rest} more ${rest === 1 ? "mistake" : "mistakes"}`);
  return told.join("; ");
}
