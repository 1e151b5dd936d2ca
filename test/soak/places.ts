// Where the workers of a fleet are named, each in its own way: by an operator, in a file of targets, by DNS.
import { renameSync, writeFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import type { Dice } from "../fixtures/dice.js";
import { type DnsServer, SERVFAIL } from "../fleet/dns-server.js";
import type { GatewayProcess } from "./gateway.js";

/** Most milliseconds for which a source is of no use, now and then before it changes. */
const LONGEST_FAILURE_MS = 2_000;

/** Names workers, and takes them back. The gateway may know of it later. */
export interface Place {
  name(id: string): Promise<void>;
  withdraw(id: string): Promise<void>;
}

/** An operator, on the admin listener. */
export class Operator implements Place {
  readonly #gateway: GatewayProcess;
  /** What is sent for each. */
  readonly #bodies: ReadonlyMap<string, object>;

  constructor(gateway: GatewayProcess, bodies: ReadonlyMap<string, object>) {
    this.#gateway = gateway;
    this.#bodies = bodies;
  }

  async name(id: string): Promise<void> {
    await this.#call("PUT", id, 201, this.#bodies.get(id));
  }

  async withdraw(id: string): Promise<void> {
    await this.#call("DELETE", id, 200);
  }

  async #call(method: string, id: string, expected: number, sent?: object): Promise<void> {
    const { status, body } = await this.#gateway.call(method, `/admin/workers/${id}`, sent);
    if (status !== expected)
      throw new Error(`${method} ${id} was answered ${status}: ${JSON.stringify(body)}`);
  }
}

/** A source that fails now and then before it changes. */
abstract class Source implements Place {
  changes = 0;
  protected readonly named: Set<string>;
  readonly #dice: Dice;

  /** `ids` are named from the beginning. */
  constructor(dice: Dice, ids: Iterable<string>) {
    this.#dice = dice;
    this.named = new Set(ids);
  }

  async name(id: string): Promise<void> {
    await this.#failNowAndThen();
    this.named.add(id);
    this.#change();
  }

  async withdraw(id: string): Promise<void> {
    await this.#failNowAndThen();
    this.named.delete(id);
    this.#change();
  }

  /** Tells the set that is named. */
  protected abstract tell(): void;

  /** Tells nothing that can be used. */
  protected abstract fail(): void;

  async #failNowAndThen(): Promise<void> {
    if (this.#dice.upTo(3) > 0) return;
    this.fail();
    await sleep(this.#dice.upTo(LONGEST_FAILURE_MS));
  }

  #change(): void {
    this.changes++;
    this.tell();
  }
}

/** A file of targets, which others are renamed over. */
export class TargetsFile extends Source {
  readonly #file: string;
  readonly #labels: object;

  /** Writes it. `ids` are the targets. */
  constructor(dice: Dice, file: string, ids: Iterable<string>, labels: object) {
    super(dice, ids);
    this.#file = file;
    this.#labels = labels;
    this.tell();
  }

  protected tell(): void {
    this.#write(this.#text);
  }

  protected fail(): void {
    this.#write(this.#text.slice(0, -2));
  }

  get #text(): string {
    return JSON.stringify([{ targets: [...this.named], labels: this.#labels }]);
  }

  #write(text: string): void {
    const next = `${this.#file}.next`;
    writeFileSync(next, text);
    renameSync(next, this.#file);
  }
}

/** The addresses behind a name. */
export class DnsName extends Source {
  readonly #server: DnsServer;

  /** Has the server answer with them. `ids` are addresses with their port. */
  constructor(dice: Dice, server: DnsServer, ids: Iterable<string>) {
    super(dice, ids);
    this.#server = server;
    this.tell();
  }

  protected tell(): void {
    const records = [...this.named].map((id) => ({
      ...{ type: "A" as const, ttl: 1 },
      address: id.split(":")[0]!,
    }));
    this.#server.reply = { records };
  }

  protected fail(): void {
    this.#server.reply = { code: SERVFAIL };
  }
}
