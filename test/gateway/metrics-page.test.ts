// What is on the page of metrics, of a router and a fleet to which a test does things itself.

import { readFileSync } from "node:fs";
import { setImmediate as turn } from "node:timers/promises";
import { beforeAll, describe, expect, it } from "vitest";
import { EXPECTED_OUTCOMES } from "../../host/gateway/metrics-series.js";
import type { PolicyInstance } from "../../host/routing/contenders.js";
import { ROOT } from "../docs/blocks.js";
import { policyFromText } from "../fixtures/puppet.js";
import { shipped } from "../routing/fixture.js";
import { ALL_TOLD, instanceOf, metered } from "./metered.js";

/** Lies about its row, in every decision. */
const LIAR = `export { init } from "../../../assembly/sdk"; export function select(n: i32, bound: i32): i32 { return 9999; }`;

let liar: PolicyInstance;
beforeAll(async () => {
  liar = instanceOf("liar", await policyFromText(LIAR));
});

describe("requests", () => {
  it("are counted by endpoint and outcome, and by model as long as some worker serves it", async () => {
    const { metrics, page } = metered([["m"]]);
    metrics.requestEnded("/v1/chat/completions", "complete", "m", 120);
    metrics.requestEnded("/v1/chat/completions", "model_not_found", undefined, 1);
    metrics.requestEnded("/v1/embeddings", "complete", "invented", 5);
    metrics.requestEnded("/v1/invented", "complete", "m", 5);
    const seen = await page();
    const ended = (endpoint: string, outcome: string) =>
      seen.value("hawser_requests_total", { endpoint, outcome });
    expect(ended("/v1/chat/completions", "complete")).toBe(1);
    expect(ended("/v1/chat/completions", "model_not_found")).toBe(1);
    expect(ended("/v1/embeddings", "complete")).toBe(1);
    expect(seen.valuesOf("hawser_requests_total", "endpoint")).toEqual([
      "/v1/chat/completions",
      "/v1/embeddings",
    ]);
    expect(seen.valuesOf("hawser_request_duration_seconds_count", "model")).toEqual(["m"]);
    expect(seen.value("hawser_request_duration_seconds_sum", { model: "m" })).toBeCloseTo(0.125, 9);
    expect(seen.value("hawser_request_duration_seconds_bucket", { model: "m", le: "0.1" })).toBe(1);
  });

  it("that nobody has sent yet are 0 for each endpoint, by the ends that an operator waits for", async () => {
    const seen = await metered([["m"]]).page();
    const values = seen.find("hawser_requests_total").map(({ value }) => value);
    expect(values).toEqual(Array.from({ length: 2 * EXPECTED_OUTCOMES.length }, () => 0));
    expect(seen.value("hawser_time_to_first_token_seconds_count", { model: "m" })).toBe(0);
    expect(seen.value("hawser_inter_chunk_seconds_count", { model: "m" })).toBe(0);
  });

  it("end in words of which each stands in the docs", () => {
    const docs = ["gateway", "operate"].map((name) => readFileSync(`${ROOT}docs/${name}.md`, "utf8")).join();
    expect(EXPECTED_OUTCOMES.filter((word) => !docs.includes(`\`${word}\``))).toEqual([]);
  });

  it("have their times by model", async () => {
    const { metrics, page } = metered([["m", "n"]]);
    const series = metrics.model("m");
    series.firstByte.observe(80);
    for (const ms of [0, 7, 20, 11_000]) series.chunks.observe(ms);
    const seen = await page();
    const bars = (name: string, le: string, model = "m") => seen.value(`${name}_bucket`, { model, le });
    expect(bars("hawser_time_to_first_token_seconds", "0.05")).toBe(0);
    expect(bars("hawser_time_to_first_token_seconds", "0.1")).toBe(1);
    expect(bars("hawser_inter_chunk_seconds", "0.001")).toBe(1);
    expect(bars("hawser_inter_chunk_seconds", "10")).toBe(3);
    expect(bars("hawser_inter_chunk_seconds", "+Inf")).toBe(4);
    expect(bars("hawser_inter_chunk_seconds", "+Inf", "n")).toBe(0);
    expect(seen.value("hawser_inter_chunk_seconds_sum", { model: "m" })).toBeCloseTo(11.027, 9);
  });
});

describe("models that no worker serves any more", () => {
  it("are not on the page, and begin at 0 when they come back", async () => {
    const { router, metrics, page } = metered([["m", "old"]]);
    metrics.requestEnded("/v1/embeddings", "complete", "old", 5);
    expect((await page()).valuesOf("hawser_request_duration_seconds_count", "model").sort()).toEqual([
      "m",
      "old",
    ]);
    const [worker] = router.workers;
    router.setModels(worker!, ["m", "new"]);
    const held = metrics.model("old");
    held.chunks.observe(1);
    const seen = await page();
    for (const name of [
      "hawser_request_duration_seconds_count",
      "hawser_requests_waiting",
      "hawser_model_ready_workers",
    ])
      expect(seen.valuesOf(name, "model")).toEqual(["m", "new"]);
    router.setModels(worker!, ["old"]);
    expect((await page()).value("hawser_request_duration_seconds_count", { model: "old" })).toBe(0);
  });

  it("are not kept where nobody ever asks for the page", async () => {
    const { router, metrics } = metered([["m0"]]);
    const [worker] = router.workers;
    const first = metrics.model("m0");
    for (let i = 1; i < 50; i++) {
      router.setModels(worker!, [`m${i}`]);
      metrics.requestEnded("/v1/embeddings", "complete", `m${i}`, 5);
    }
    router.setModels(worker!, ["m0", "m49"]);
    expect(metrics.model("m0")).not.toBe(first);
    expect(metrics.model("m49")).toBe(metrics.model("m49"));
    expect(metrics.model("invented")).not.toBe(metrics.model("invented"));
  });
});

describe("decisions", () => {
  it("are counted by policy and reason, and measured where a policy was asked", async () => {
    const { metrics, page } = metered([["m"]], { fallback: instanceOf("spare") });
    metrics.decided("sticky", "keep", undefined, 3, 500, 1_000);
    metrics.decided("sticky", "keep", undefined, 30, 100, 1_000);
    metrics.decided("sticky", "fallback", "fuel", 400, 1_001, 1_000);
    metrics.decided("sticky", "explicit", undefined, 0, 0, 0);
    metrics.decided("spare", "place", undefined, 3, 10, 1_000);
    const seen = await page();
    const decisions = seen.find("hawser_decisions_total").map(({ labels, value }) => {
      return `${labels.policy} ${labels.decision} ${value}`;
    });
    expect(decisions.sort()).toEqual([
      ...["spare fallback 0", "spare place 1"],
      ...["sticky explicit 1", "sticky fallback 1", "sticky keep 2"],
    ]);
    const of = (name: string, labels = {}) => seen.value(name, { policy: "sticky", ...labels });
    expect(of("hawser_decision_time_microseconds_count")).toBe(3);
    expect(of("hawser_decision_time_microseconds_sum")).toBe(433);
    expect(of("hawser_decision_time_microseconds_bucket", { le: "3" })).toBe(1);
    expect(of("hawser_policy_fuel_ratio_bucket", { le: "0.5" })).toBe(2);
    expect(of("hawser_policy_fuel_ratio_bucket", { le: "1" })).toBe(2);
    expect(of("hawser_policy_fuel_ratio_count")).toBe(3);
    expect(of("hawser_policy_fuel_used_total")).toBe(1_601);
    expect(of("hawser_policy_failures_total", { kind: "fuel" })).toBe(1);
    expect(seen.valuesOf("hawser_policy_failures_total", "kind")).toHaveLength(6);
  });

  it("of policies that are not configured any more are not on the page", async () => {
    const { router, metrics, page } = metered([["m"]]);
    metrics.decided("sticky", "keep", undefined, 3, 500, 1_000);
    router.apply(router.prepare({ instance: instanceOf("other") }));
    metrics.decided("other", "keep", undefined, 3, 500, 1_000);
    const seen = await page();
    const names = [...seen.families].filter(([, { samples }]) => samples.some(({ labels }) => labels.policy));
    expect(names.length).toBeGreaterThan(5);
    for (const [name, { samples }] of names)
      expect([name, ...new Set(samples.map(({ labels }) => labels.policy))]).toEqual([name, "other"]);
    metrics.decided("other", "keep", undefined, 3, 500, 1_000);
    expect((await page()).value("hawser_decisions_total", { policy: "other", decision: "keep" })).toBe(2);
  });

  it("show a policy that is quarantined, and who decides in its place", async () => {
    const { router, page } = metered([["m"]], { instance: liar, fallback: instanceOf("spare") });
    const state = async () => {
      const found = (await page()).find("hawser_policy_state").filter(({ value }) => value > 0);
      return found.map(({ labels, value }) => `${labels.policy} ${labels.state} ${value}`);
    };
    expect(await state()).toEqual(["liar deciding 1", "spare standby 1"]);
    const [worker] = router.workers;
    worker!.ready = true;
    for (let i = 0; i < 4; i++) router.acquire({ model: "m" }).release();
    expect(await state()).toEqual(["liar quarantined 1", "spare deciding 1"]);
    // What the name stood for before stands by, under the same name.
    router.apply(router.prepare({ instance: instanceOf("spare", shipped("least-loaded")) }));
    expect(await state()).toEqual(["spare deciding 1"]);
  });

  it("show what policies hold in memory", async () => {
    const seen = await metered([["m", "n"], ["o"]], { fallback: instanceOf("spare") }).page();
    for (const policy of ["sticky", "spare"]) {
      expect(seen.value("hawser_policy_instances", { policy })).toBe(3);
      expect(seen.value("hawser_policy_memory_bytes", { policy })! % 65_536).toBe(0);
      expect(seen.value("hawser_policy_memory_bytes", { policy })).toBeGreaterThan(0);
    }
  });
});

describe("sessions", () => {
  it("are counted by whether they stayed, left or had to be placed", async () => {
    const { router, page } = metered([["m"], ["m"]]);
    for (const worker of router.workers) worker.ready = true;
    const accepted = (key: string, affinity?: "off") => {
      const lease = router.acquire({ model: "m", key, affinity });
      lease.commit();
      lease.release();
    };
    for (const key of ["a", "a", "a", "b"]) accepted(key);
    const seen = await page();
    const results = seen
      .find("hawser_affinity_total")
      .map(({ labels, value }) => `${labels.result} ${value}`);
    expect(results).toEqual(["kept 2", "broken 0", "placed 2"]);
    expect(seen.value("hawser_bindings")).toBe(2);
    expect(seen.value("hawser_bindings_evicted_total")).toBe(0);
    expect(seen.value("hawser_bindings_refused_total")).toBe(0);
    expect(seen.value("hawser_rebinds_lost_total")).toBe(0);
    const bound = seen.find("hawser_worker_bound_sessions").map(({ value }) => value);
    expect(bound.reduce((sum, value) => sum + value)).toBe(2);
  });
});

describe("workers", () => {
  it("are shown in the one state that each is in, with their breakers, counts and engines", async () => {
    const { router, fleet, page } = metered([["m"], ["m"], ["m", "n"]]);
    await fleet.start();
    const [w0, w1, w2] = [...router.workers];
    fleet.drain(w1!, Number.POSITIVE_INFINITY);
    const lease = router.acquire({ model: "m", pin: "w0" });
    for (let i = 0; i < 20; i++) fleet.failed(w2!, 0, "it broke");
    fleet.busy(w0!, 3_000);
    const seen = await page();
    const present = (name: string) =>
      seen.find(name).flatMap(({ labels, value }) => (value === 1 ? `${labels.worker} ${labels.state}` : []));
    expect(present("hawser_worker_state")).toEqual(["w0 ready", "w1 draining", "w2 ready"]);
    expect(seen.find("hawser_worker_state")).toHaveLength(3 * 5);
    expect(present("hawser_worker_breaker")).toEqual(["w0 closed", "w1 closed", "w2 closed"]);
    expect(seen.find("hawser_workers").map(({ labels, value }) => `${labels.state} ${value}`)).toEqual([
      ...["starting 0", "ready 2", "draining 1", "unhealthy 0", "gone 0"],
    ]);
    const of = (name: string, worker = "w0") => seen.value(name, { worker });
    expect(of("hawser_worker_active_requests")).toBe(1);
    expect(of("hawser_worker_held_off_seconds")).toBe(3);
    expect(["w0", "w1", "w2"].map((id) => of("hawser_worker_eligible", id))).toEqual([0, 0, 1]);
    expect(of("hawser_worker_engine_running")).toBe(3);
    expect(of("hawser_worker_engine_waiting")).toBe(2);
    expect(of("hawser_worker_kv_used_ratio")).toBe(0.25);
    expect(seen.value("hawser_model_ready_workers", { model: "m" })).toBe(2);
    expect(seen.value("hawser_model_eligible_workers", { model: "m" })).toBe(1);
    expect(seen.value("hawser_model_ready_workers", { model: "n" })).toBe(1);
    lease.release();
  });

  it("of which nothing is known have nothing said of their engines, and without a limit none is shown", async () => {
    const { fleet, page } = metered([["m"]]);
    fleet.add({ id: "limited", url: "http://10.0.0.9:8000", models: ["m"], maxInFlight: 7 }, "admin");
    const seen = await page();
    for (const name of ["hawser_worker_engine_running", "hawser_worker_kv_used_ratio"])
      expect(seen.find(name)).toEqual([]);
    expect(
      seen.find("hawser_worker_max_in_flight").map(({ labels, value }) => `${labels.worker} ${value}`),
    ).toEqual(["limited 7"]);
  });

  it("that are gone with requests under way count under the id that another one has by now", async () => {
    const { router, fleet, page } = metered([["m"]]);
    await fleet.start();
    const lease = router.acquire({ model: "m" });
    fleet.put({ id: "w0", url: "http://10.0.0.77:8000", models: ["m"] }, "admin");
    let seen = await page();
    expect(seen.value("hawser_worker_state", { worker: "w0", state: "starting" })).toBe(1);
    expect(seen.value("hawser_worker_active_requests", { worker: "w0" })).toBe(1);
    fleet.remove(fleet.find("w0")!);
    seen = await page();
    expect(seen.value("hawser_worker_state", { worker: "w0", state: "gone" })).toBe(1);
    expect(seen.valuesOf("hawser_requests_waiting", "model")).toEqual([]);
    lease.release();
    expect((await page()).find("hawser_worker_state")).toEqual([]);
  });

  it("have ids that a text must escape", async () => {
    const { fleet, page } = metered([]);
    fleet.add({ id: 'a"\\b', url: "http://10.0.0.9:8000", models: ['m"1', "line\nfeed"] }, "admin");
    const seen = await page();
    expect(seen.valuesOf("hawser_worker_eligible", "worker")).toEqual(['a"\\b']);
    expect(seen.valuesOf("hawser_requests_waiting", "model")).toEqual(['m"1', "line\nfeed"]);
  });
});

describe("requests in line", () => {
  it("are shown by model, also where there are none", async () => {
    const { admission, page } = metered([["m", "n"]]);
    admission.join({ model: "m", since: 0, isBound: false, exclude: [], tryAgain: () => "full" });
    admission.refused = 4;
    admission.expired = 5;
    const seen = await page();
    expect(
      seen.find("hawser_requests_waiting").map(({ labels, value }) => `${labels.model} ${value}`),
    ).toEqual([...["m 1", "n 0"]]);
    expect(seen.value("hawser_queue_refused_total")).toBe(4);
    expect(seen.value("hawser_queue_expired_total")).toBe(5);
  });
});

describe("config, decision log and discovery", () => {
  it("are shown as they are", async () => {
    const { told, page } = metered([["m"]]);
    Object.assign(told, ALL_TOLD);
    const seen = await page();
    expect(seen.value("hawser_config_generation")).toBe(3);
    expect(seen.value("hawser_config_loaded_timestamp_seconds")).toBe(1_700_000_000.5);
    expect(seen.value("hawser_config_last_reload_timestamp_seconds")).toBe(1_700_000_001);
    expect(
      seen.find("hawser_config_reloads_total").map(({ labels, value }) => `${labels.result} ${value}`),
    ).toEqual([...["applied 2", "failed 1"]]);
    expect(seen.value("hawser_config_last_reload_successful")).toBe(0);
    expect(seen.value("hawser_config_restart_needed")).toBe(1);
    expect(seen.value("hawser_decision_log_lines_total")).toBe(12);
    expect(seen.value("hawser_decision_log_dropped_total")).toBe(1);
    const sources = seen
      .find("hawser_discovery_workers")
      .map(({ labels, value }) => `${labels.source}: ${value}`);
    expect(sources).toEqual([
      ...["/etc/workers.json: 2", "the A records of vllm: 0", "the A records of vllm (2): 3"],
    ]);
    expect(seen.find("hawser_discovery_age_seconds").map(({ value }) => value)).toEqual([1.5, 0.01]);
    expect(seen.find("hawser_discovery_failing").map(({ value }) => value)).toEqual([0, 1, 0]);
  });

  it("tell of no reload before the first one, and that it did not fail", async () => {
    const { told, page } = metered([["m"]]);
    told.config = { ...ALL_TOLD.config, restartNeeded: [], applied: 0, failed: 0, lastReload: null };
    const seen = await page();
    expect(seen.find("hawser_config_last_reload_timestamp_seconds")).toEqual([]);
    expect(seen.value("hawser_config_last_reload_successful")).toBe(1);
    expect(seen.value("hawser_config_restart_needed")).toBe(0);
    expect(seen.find("hawser_config_reloads_total").map(({ value }) => value)).toEqual([0, 0]);
  });

  it("are families without samples where there are none", async () => {
    const seen = await metered([["m"]]).page();
    const empty = [...seen.families].filter(([, { samples }]) => samples.length === 0).map(([name]) => name);
    const optional = /^hawser_(config|decision_log|discovery)_|^hawser_worker_(engine|kv|max)_/;
    expect(empty.filter((name) => !optional.test(name))).toEqual([]);
    expect(empty.length).toBeGreaterThan(9);
  });
});

describe("the page", () => {
  it("is the same one for all that ask for it while it is being made, and a new one after that", async () => {
    const { metrics } = metered([["m"]]);
    const first = metrics.text();
    await turn();
    metrics.requestEnded("/v1/embeddings", "complete", "m", 5);
    expect(metrics.text()).toBe(first);
    await first;
    expect(await metrics.text()).toContain(
      'hawser_requests_total{endpoint="/v1/embeddings",outcome="complete"} 1',
    );
  });

  it("has of each family the labels that it says", async () => {
    const { metrics, told, fleet, page } = metered([["m"]]);
    Object.assign(told, ALL_TOLD);
    await fleet.start();
    const seen = await page();
    expect(metrics.families.map(({ name }) => name)).toEqual([...seen.families.keys()]);
    for (const { name, type, labels } of metrics.families) {
      const { samples, ...family } = seen.families.get(name)!;
      expect([name, family.type]).toEqual([name, type]);
      for (const sample of samples) {
        const { le: _, ...others } = sample.labels;
        expect([name, ...Object.keys(others)]).toEqual([name, ...labels]);
      }
    }
  });

  it("says the version", async () => {
    const seen = await metered([["m"]]).page();
    expect(seen.value("hawser_build_info", { version: "1.2.3", node: process.version })).toBe(1);
  });
});
