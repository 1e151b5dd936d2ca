// When workers of a soak are struck: at random moments, some few at once, and each again only when it is well.
import { setTimeout as sleep } from "node:timers/promises";
import type { Dice } from "../fixtures/dice.js";

/** One blow. */
export interface Blow {
  /** Whom it strikes. */
  readonly id: string;
  /** Strikes, and mends it again: resolves when its worker is well. */
  readonly strike: () => Promise<void>;
}

export interface BlowsOptions {
  /** The workers' ids. */
  readonly ids: readonly string[];
  /** Most milliseconds between two blows. */
  readonly longestPeaceMs: number;
  /** Most workers that are not well at once. */
  readonly mostAtOnce: number;
  /** Draws the next blow; undefined where it is for none of those who are well. */
  readonly draw: (well: readonly string[]) => Blow | undefined;
}

/** Strikes one worker after the other. */
export class Blows {
  readonly #dice: Dice;
  readonly #options: BlowsOptions;
  readonly #struck = new Map<string, Promise<void>>();
  #isRunning = false;
  #running: Promise<void> = Promise.resolve();

  constructor(dice: Dice, options: BlowsOptions) {
    this.#dice = dice;
    this.#options = options;
  }

  start(): void {
    this.#isRunning = true;
    this.#running = this.#run();
    // It is looked at in `stop`.
    this.#running.catch(() => {});
  }

  /** Resolves when all is mended; rejects where something could not be. */
  async stop(): Promise<void> {
    this.#isRunning = false;
    await this.#running;
    await Promise.all(this.#struck.values());
  }

  async #run(): Promise<void> {
    const { ids, longestPeaceMs, mostAtOnce, draw } = this.#options;
    while (this.#isRunning) {
      await sleep(this.#dice.upTo(longestPeaceMs));
      const blow = this.#struck.size < mostAtOnce && draw(ids.filter((id) => !this.#struck.has(id)));
      if (blow) this.#strike(blow);
      else await Promise.race(this.#struck.values());
    }
  }

  #strike({ id, strike }: Blow): void {
    const mended = strike().then(() => void this.#struck.delete(id));
    this.#struck.set(id, mended);
    // It is looked at in `stop`, or where somebody waits for it.
    mended.catch(() => {});
  }
}
