// What befalls the workers of a fleet: deaths, restarts, changes of who is named where, drains; some are always left alone.
import { setTimeout as sleep } from "node:timers/promises";
import type { Dice } from "../fixtures/dice.js";
import { Blows } from "./blows.js";
import type { GatewayProcess } from "./gateway.js";
import { History } from "./history.js";
import type { Place } from "./places.js";
import { settles } from "./rest.js";
import type { SimulatedWorker } from "./simulated-worker.js";

/** Between two blows. */
const LONGEST_PEACE_MS = 200;
/** From a blow until it is mended. */
const LONGEST_ABSENCE_MS = 1_500;
/** A drain's longest deadline, in seconds. */
const LONGEST_DRAIN_S = 2;

/** A worker of the fleet. */
export interface Subject {
  readonly worker: SimulatedWorker;
  readonly place: Place;
}

interface Deed {
  readonly what: string;
  /** Whom it may strike; left out, anybody. */
  readonly at?: Place;
  /** Strikes, and mends it. */
  readonly do: (id: string, subject: Subject) => Promise<void>;
}

/** Makes it happen. */
export class FleetTrouble {
  /** How often each came. */
  readonly counts = new Map<string, number>();
  readonly history = new History();
  readonly #gateway: GatewayProcess;
  readonly #dice: Dice;
  /** By their ids. */
  readonly #subjects: ReadonlyMap<string, Subject>;
  readonly #deeds: readonly Deed[];
  /** Those that come before any comes again. */
  #due: Deed[] = [];
  readonly #blows: Blows;

  /** At most `mostAtOnce` of the subjects are not ready at once. */
  constructor(
    gateway: GatewayProcess,
    dice: Dice,
    subjects: ReadonlyMap<string, Subject>,
    mostAtOnce: number,
  ) {
    this.#gateway = gateway;
    this.#dice = dice;
    this.#subjects = subjects;
    const places = new Set([...subjects.values()].map(({ place }) => place));
    this.#deeds = [
      { what: "kills", do: (id, subject) => this.#kill(id, subject, this.#absence()) },
      { what: "restarts", do: (id, subject) => this.#kill(id, subject, 0) },
      { what: "drains", do: (id) => this.#drain(id) },
      { what: "drains with a deadline", do: (id, subject) => this.#drainUntil(id, subject) },
      ...[...places].map((at) => ({
        ...{ what: "removals", at },
        do: (id: string, subject: Subject) => this.#remove(id, subject),
      })),
    ];
    this.#blows = new Blows(dice, {
      ...{ ids: [...subjects.keys()], longestPeaceMs: LONGEST_PEACE_MS, mostAtOnce },
      draw: (well) => this.#draw(well),
    });
  }

  start(): void {
    this.#blows.start();
  }

  /** Resolves when all is mended; rejects where something could not be. */
  stop(): Promise<void> {
    return this.#blows.stop();
  }

  #draw(well: readonly string[]) {
    if (this.#due.length === 0) this.#due = [...this.#deeds];
    const index = this.#dice.upTo(this.#due.length - 1);
    const deed = this.#due[index]!;
    const targets = well.filter((id) => !deed.at || this.#subjects.get(id)!.place === deed.at);
    if (targets.length === 0) return undefined;
    this.#due.splice(index, 1);
    const id = targets[this.#dice.upTo(targets.length - 1)]!;
    return { id, strike: () => this.#strike(id, deed) };
  }

  async #strike(id: string, deed: Deed): Promise<void> {
    this.counts.set(deed.what, (this.counts.get(deed.what) ?? 0) + 1);
    await deed.do(id, this.#subjects.get(id)!);
    await this.ready(id);
  }

  /** Resolves when a worker is in service. */
  ready(id: string): Promise<void> {
    return settles(`the start of worker ${id}`, async () => {
      const { body } = await this.#call("GET", id);
      return { unready: body.state === "ready" ? 0 : 1 };
    });
  }

  async #kill(id: string, { worker }: Subject, absenceMs: number): Promise<void> {
    this.history.dies(id);
    await worker.kill();
    await sleep(absenceMs);
    await worker.comeBack();
  }

  async #remove(id: string, { place }: Subject): Promise<void> {
    await place.withdraw(id);
    await settles(`the removal of worker ${id}`, async () => {
      return { there: (await this.#call("GET", id)).status === 404 ? 0 : 1 };
    });
    await sleep(this.#absence());
    await place.name(id);
  }

  async #drain(id: string): Promise<void> {
    await this.#call("POST", id, "/drain");
    await sleep(this.#absence());
    await this.#call("DELETE", id, "/drain");
  }

  /** Some are taken back before the deadline, and some are removed meanwhile. */
  async #drainUntil(id: string, subject: Subject): Promise<void> {
    const seconds = this.#dice.upTo(LONGEST_DRAIN_S);
    const deadline = performance.now() + seconds * 1_000;
    await this.history.isToEnd(id, deadline, this.#call("POST", id, `/drain?deadline=${seconds}s`));
    await sleep(this.#dice.upTo(2_000 * LONGEST_DRAIN_S));
    if (this.#dice.upTo(2) === 0) await this.#remove(id, subject);
    else await this.#call("DELETE", id, "/drain");
  }

  #absence(): number {
    return this.#dice.upTo(LONGEST_ABSENCE_MS);
  }

  #call(method: string, id: string, deed = "") {
    return this.#gateway.call(method, `/admin/workers/${encodeURIComponent(id)}${deed}`);
  }
}
