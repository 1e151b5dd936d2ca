// Whether a worker answers, as far as checks of it tell.

/** Starting: it was not asked often enough yet to say. */
export type HealthState = "starting" | "up" | "down";

/** How many checks in a row change a worker's state; each at least 1. */
export interface HealthThresholds {
  /** Failures after which one that was up is down. */
  readonly unhealthyAfter: number;
  /** Passes after which one that was down is up. */
  readonly healthyAfter: number;
}

/** The health of one worker. Every `now` is monotonic milliseconds. */
export class Health {
  /** From the next check on. */
  thresholds: HealthThresholds;
  #state: HealthState = "starting";
  #since: number;
  #reason = "not asked yet";
  #wasUp = false;
  /** Checks in a row that speak against the state. */
  #against = 0;

  constructor(thresholds: HealthThresholds, now: number) {
    this.thresholds = thresholds;
    this.#since = now;
  }

  get state(): HealthState {
    return this.#state;
  }

  /** When the state began. */
  get since(): number {
    return this.#since;
  }

  /** Why it is in this state: how the last failed check failed, unless it is up. */
  get reason(): string {
    return this.#reason;
  }

  /** Records a check that was passed; tells whether the state changed. */
  passed(now: number): boolean {
    // The first pass of all is enough: a gateway that starts has nothing against its workers.
    const enough = this.#wasUp ? this.thresholds.healthyAfter : 1;
    const isUp = this.#isAgainst(this.#state !== "up", enough);
    if (isUp) this.#enter("up", now, "it answers");
    this.#wasUp ||= isUp;
    return isUp;
  }

  /** Records a check that failed; tells whether the state changed. */
  failed(now: number, reason: string): boolean {
    const isDown = this.#isAgainst(this.#state !== "down", this.thresholds.unhealthyAfter);
    if (isDown) this.#enter("down", now, reason);
    else if (this.#state !== "up") this.#reason = reason;
    return isDown;
  }

  /** Records that a request found no connection, which tells as much as a check that failed. */
  disconnected(now: number, reason: string): boolean {
    return this.failed(now, reason);
  }

  /** Counts a check, one that agrees with the state as a new beginning; whether there are now `enough` of the others. */
  #isAgainst(isAgainst: boolean, enough: number): boolean {
    this.#against = isAgainst ? this.#against + 1 : 0;
    return isAgainst && this.#against >= enough;
  }

  #enter(state: HealthState, now: number, reason: string): void {
    this.#state = state;
    this.#since = now;
    this.#reason = reason;
    this.#against = 0;
  }
}
