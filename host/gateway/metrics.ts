// The metrics of a gateway: what happens is counted as it happens, what there is is looked at when somebody asks.

import type { Family } from "../metrics/family.js";
import { Page } from "../metrics/page.js";
import { Tally } from "../metrics/tally.js";
import { familiesOf } from "./metrics-families.js";
import { type MetricsSources, type Scene, sceneOf } from "./metrics-scene.js";
import { EXPECTED_OUTCOMES, ModelSeries, type PolicyFailure, PolicySeries } from "./metrics-series.js";

/** What the metrics of a gateway are made of. */
export interface MetricsOptions extends MetricsSources {
  /** That of Hawser. */
  readonly version: string;
  /** The paths whose requests are counted. */
  readonly endpoints: readonly string[];
  /** Whether to tell of the process as well; one gateway of a process may. */
  readonly withProcess: boolean;
}

/**
 * Counts what happens, and makes the page. Labels are the names of what is configured or served: models that no worker serves, and
 * policies that are not configured, go with the next page.
 */
export class GatewayMetrics {
  readonly #sources: MetricsSources;
  readonly #requests: ReadonlyMap<string, Tally>;
  readonly #models = new Map<string, ModelSeries>();
  readonly #policies = new Map<string, PolicySeries>();
  readonly #page: Page;
  #scene: Scene | null = null;
  #underWay: Promise<string> | null = null;
  /** The policy that was counted last: mostly it is the next one, too. */
  #policyName: string | null = null;
  #policy = new PolicySeries();

  constructor(options: MetricsOptions) {
    this.#sources = options;
    this.#requests = new Map(options.endpoints.map((path) => [path, new Tally(EXPECTED_OUTCOMES)]));
    const reading = {
      ...options,
      scene: () => this.#scene!,
      requests: this.#requests,
      models: this.#models,
      policies: this.#policies,
    };
    this.#page = new Page(familiesOf(reading), options.withProcess);
  }

  /**
   * A request to an endpoint has ended, in one of the gateway's own words for that, after `totalMs` milliseconds; `model` where some
   * worker serves it.
   */
  requestEnded(endpoint: string, outcome: string, model: string | undefined, totalMs: number): void {
    this.#requests.get(endpoint)?.add(outcome);
    if (model !== undefined) this.model(model).duration.observe(totalMs);
  }

  /** The times of a model that some worker serves, to be held for as long as a request takes. */
  model(model: string): ModelSeries {
    const known = this.#models.get(model);
    if (known) return known;
    const series = new ModelSeries();
    // Nobody may ever ask for the page. One that goes while its request is under way is not kept at all.
    for (const name of this.#models.keys()) if (!this.#sources.router.serves(name)) this.#models.delete(name);
    if (this.#sources.router.serves(model)) this.#models.set(model, series);
    return series;
  }

  /**
   * A worker was chosen under a policy's name. `budget`, in units of fuel, is what the policy's call might have used, and 0 where
   * no policy was asked: then only the decision is counted.
   */
  decided(
    policy: string,
    reason: string,
    failure: PolicyFailure | undefined,
    microseconds: number,
    fuelUsed: number,
    budget: number,
  ): void {
    if (policy !== this.#policyName) this.#turnTo(policy);
    this.#policy.decided(reason, failure, microseconds, fuelUsed, budget);
  }

  get contentType(): string {
    return this.#page.contentType;
  }

  /** What may be on the page. */
  get families(): readonly Family[] {
    return this.#page.families;
  }

  /** The page as it is now; whoever asks while it is being made gets the same one. */
  text(): Promise<string> {
    this.#underWay ??= this.#make().finally(() => {
      this.#underWay = null;
      this.#scene = null;
    });
    return this.#underWay;
  }

  #make(): Promise<string> {
    const scene = sceneOf(this.#sources);
    this.#scene = scene;
    match(this.#models, scene.models, () => new ModelSeries());
    match(this.#policies, scene.policies, () => new PolicySeries());
    this.#policyName = null;
    return this.#page.text();
  }

  #turnTo(policy: string): void {
    const series = this.#policies.get(policy) ?? new PolicySeries();
    this.#policies.set(policy, series);
    this.#policy = series;
    this.#policyName = policy;
  }
}

/** Leaves series of these names alone, and makes those that are missing. */
function match<T>(series: Map<string, T>, names: ReadonlyMap<string, unknown>, make: () => T): void {
  for (const name of series.keys()) if (!names.has(name)) series.delete(name);
  for (const name of names.keys()) if (!series.has(name)) series.set(name, make());
}
