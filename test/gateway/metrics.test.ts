// The metrics of a running gateway: what traffic makes of them, and that no client can write into them.
import { createHash } from "node:crypto";
import { describe, expect, it } from "vitest";
import { Exposition } from "../metrics/exposition.js";
import { open, post } from "./client.js";
import { CHAT, crew, hold, inTurn, refuse, reset, serve } from "./crew.js";
import { dataPlaneOf, untilDataPlane } from "./data-plane.js";
import { expectNothingUncaught } from "./fault-cells.js";
import { gateway, until, upstream } from "./fixture.js";
import { metered } from "./metered.js";

expectNothingUncaught();

async function metricsOf(admin: string, headers: Record<string, string> = {}): Promise<Exposition> {
  const response = await fetch(`${admin}/metrics`, { headers });
  expect(response.status).toBe(200);
  expect(response.headers.get("content-type")).toBe("text/plain; version=0.0.4; charset=utf-8");
  return new Exposition(await response.text());
}

/** The sum over all samples of a name with these labels. */
function sum(page: Exposition, name: string, labels: Record<string, string> = {}): number {
  return page.find(name, labels).reduce((total, { value }) => total + value, 0);
}

describe("GET /metrics", () => {
  it("has every metric that there is, and no other of the gateway's", async () => {
    const { running } = await crew([serve]);
    const page = await metricsOf(running.admin);
    const names = [...page.families.keys()].filter((name) => name.startsWith("hawser_"));
    expect(names).toEqual(metered([]).metrics.families.map(({ name }) => name));
  });

  it("wants the token of the admin listener", async () => {
    const { running } = await crew([serve], { adminToken: "secret-of-the-operator" });
    expect((await fetch(`${running.admin}/metrics`)).status).toBe(401);
    const page = await metricsOf(running.admin, { authorization: "Bearer secret-of-the-operator" });
    expect(page.value("hawser_requests_in_flight")).toBe(0);
  });

  it("is not there for clients", async () => {
    const { running } = await crew([serve]);
    expect((await fetch(`${running.url}/metrics`)).status).toBe(404);
  });
});

describe("requests", () => {
  it("are counted as /health counts them, by endpoint", async () => {
    const self = await crew([inTurn(serve, serve, reset, refuse(500))], { retries: { attempts: 1 } });
    await self.say("a");
    await self.say("a", { stream: true });
    await self.say("a");
    await self.say("a");
    await self.say("a", { model: "invented" });
    await post(`${self.running.url}/v1/embeddings`, { model: "m", input: "x" });
    const { outcomes } = await untilDataPlane(self.running.url, (seen) => seen.requests_in_flight === 0);
    const page = await metricsOf(self.running.admin);
    const counted = (outcome: string) => sum(page, "hawser_requests_total", { outcome });
    for (const [outcome, count] of Object.entries(outcomes))
      if (outcome !== "complete") expect([outcome, counted(outcome)]).toEqual([outcome, count]);
    // A worker's own error is told apart here.
    expect([counted("complete"), counted("worker_answered_5xx")]).toEqual([outcomes.complete! - 2, 2]);
    const all = Object.values(outcomes).reduce((total, count) => total + count, 0);
    expect(all).toBe(6);
    expect(sum(page, "hawser_requests_total")).toBe(6);
    expect(sum(page, "hawser_requests_total", { endpoint: "/v1/embeddings" })).toBe(1);
    // The one of the invented model is of none.
    expect(page.value("hawser_request_duration_seconds_count", { model: "m" })).toBe(5);
  });

  it("that are refused before they are read are counted as well", async () => {
    const { running } = await crew([serve], { access: { keys: [] } });
    await post(running.url + CHAT, { model: "m" });
    const page = await metricsOf(running.admin);
    expect(sum(page, "hawser_requests_total", { outcome: "invalid_api_key" })).toBe(1);
  });

  it("that a worker turns away are told from those that it answers, whatever its models are called", async () => {
    const self = await crew([refuse(429)], { retries: { attempts: 1 }, models: ["m", "constructor"] });
    await self.say("a");
    const page = await metricsOf(self.running.admin);
    expect(sum(page, "hawser_requests_total", { outcome: "answered_429" })).toBe(1);
    expect(sum(page, "hawser_requests_total", { outcome: "complete" })).toBe(0);
    expect(page.value("hawser_requests_waiting", { model: "constructor" })).toBe(0);
  });

  it("under way and in line are shown while they are", async () => {
    const self = await crew([hold], { maxInFlight: 1 });
    const said = await self.inLine(["a", "b", "c"]);
    const page = await metricsOf(self.running.admin);
    expect(page.value("hawser_requests_in_flight")).toBe(3);
    expect(page.value("hawser_requests_waiting", { model: "m" })).toBe(2);
    expect(page.value("hawser_worker_active_requests", { worker: "w0" })).toBe(1);
    expect(page.value("hawser_worker_eligible", { worker: "w0" })).toBe(0);
    expect(page.value("hawser_worker_max_in_flight", { worker: "w0" })).toBe(1);
    expect(page.value("hawser_model_eligible_workers", { model: "m" })).toBe(0);
    expect(page.value("hawser_body_bytes")).toBeGreaterThan(0);
    self.deeds[0] = serve;
    serve(self.asked[0]!);
    await Promise.all(said);
    await untilDataPlane(self.running.url, (seen) => seen.requests_in_flight === 0);
    const after = await metricsOf(self.running.admin);
    for (const name of ["hawser_requests_in_flight", "hawser_body_bytes"]) expect(after.value(name)).toBe(0);
    expect(after.value("hawser_requests_waiting", { model: "m" })).toBe(0);
  });

  it("that are tried again or find the line full are counted", async () => {
    const self = await crew([inTurn(reset, serve), inTurn(reset, serve)], { admission: { queue: 0 } });
    expect(await self.say()).toMatch(/^(200|502)/);
    const page = await metricsOf(self.running.admin);
    expect(page.value("hawser_retries_total")).toBe((await dataPlaneOf(self.running.url)).retries);
    expect(page.value("hawser_retries_total")).toBe(1);
  });
});

describe("the memory of policies", () => {
  it("is shown, and does not grow with what clients send: they never see a body (E5, G5)", async () => {
    const self = await crew([serve]);
    const held = async () =>
      (await metricsOf(self.running.admin)).value("hawser_policy_memory_bytes", { policy: "sticky" });
    await self.say("a");
    const before = await held();
    expect(before).toBeGreaterThan(0);
    const prompt = "word ".repeat(4 * 2 ** 20);
    const { status } = await post(self.running.url + CHAT, {
      model: "m",
      messages: [{ role: "user", content: prompt }],
    });
    expect(status).toBe(200);
    expect(await held()).toBe(before);
  });
});

describe("streams", () => {
  it("have one time to their first byte, and one between any two chunks", async () => {
    const self = await crew([hold]);
    const opened = open(self.running.url + CHAT, { model: "m", messages: [], stream: true });
    await until(() => self.asked.length === 1);
    const { response } = self.asked[0]!;
    response.writeHead(200, { "content-type": "text/event-stream" });
    const chunk = (i: number) => `data: {"n":${i}}\n\n`;
    response.write(chunk(0));
    const message = await opened;
    let got = 0;
    message.on("data", (bytes: Buffer) => {
      got += bytes.length;
    });
    // The next one leaves when the one before has arrived: no two come together.
    for (let i = 1; i <= 5; i++) {
      await until(() => got === i * chunk(0).length);
      response.write(chunk(i));
    }
    await until(() => got === 6 * chunk(0).length);
    const during = await metricsOf(self.running.admin);
    expect(during.value("hawser_time_to_first_token_seconds_count", { model: "m" })).toBe(1);
    expect(during.value("hawser_inter_chunk_seconds_count", { model: "m" })).toBe(5);
    expect(during.value("hawser_request_duration_seconds_count", { model: "m" })).toBe(0);
    response.end();
    await new Promise((resolve) => message.on("end", resolve));
    await untilDataPlane(self.running.url, (seen) => seen.requests_in_flight === 0);
    const after = await metricsOf(self.running.admin);
    expect(after.value("hawser_time_to_first_token_seconds_count", { model: "m" })).toBe(1);
    expect(after.value("hawser_request_duration_seconds_count", { model: "m" })).toBe(1);
  });

  it("alone have them: an answer that is no stream of events has its duration", async () => {
    const self = await crew([serve]);
    await self.say();
    await untilDataPlane(self.running.url, (seen) => seen.requests_in_flight === 0);
    const page = await metricsOf(self.running.admin);
    expect(page.value("hawser_time_to_first_token_seconds_count", { model: "m" })).toBe(0);
    expect(page.value("hawser_inter_chunk_seconds_count", { model: "m" })).toBe(0);
    expect(page.value("hawser_request_duration_seconds_count", { model: "m" })).toBe(1);
  });
});

describe("decisions", () => {
  it("are counted as clients are told of them, and measured where the policy was asked", async () => {
    const self = await crew([serve, serve], { allowPin: true });
    const told: Record<string, number> = {};
    for (const pin of [undefined, undefined, undefined, "w1"]) {
      const key = pin ? "pinned" : "a";
      const [, , decision] = (await self.say(key, {}, pin ? { "x-hawser-pin": pin } : {})).split(" ");
      told[decision!] = (told[decision!] ?? 0) + 1;
    }
    expect(told).toEqual({ place: 1, keep: 2, explicit: 1 });
    const page = await metricsOf(self.running.admin);
    const counted = page.find("hawser_decisions_total").filter(({ value }) => value > 0);
    expect(Object.fromEntries(counted.map(({ labels, value }) => [labels.decision, value]))).toEqual(told);
    for (const name of ["hawser_decision_time_microseconds", "hawser_policy_fuel_ratio"])
      expect(page.value(`${name}_count`, { policy: "sticky" })).toBe(3);
    expect(page.value("hawser_policy_fuel_used_total", { policy: "sticky" })).toBeGreaterThan(0);
    expect(page.value("hawser_policy_fuel_ratio_bucket", { policy: "sticky", le: "1" })).toBe(3);
    expect(page.value("hawser_decision_time_microseconds_sum", { policy: "sticky" })).toBeGreaterThan(0);
    expect(page.value("hawser_policy_state", { policy: "sticky", state: "deciding" })).toBe(1);
    expect(sum(page, "hawser_affinity_total")).toBe(4);
    expect(page.value("hawser_affinity_total", { result: "kept" })).toBe(2);
    expect(page.value("hawser_bindings")).toBe(2);
  });
});

describe("a client", () => {
  const INVENTED = "invented";
  const words = (i: number) =>
    `${INVENTED}${createHash("sha256").update(String(i)).digest("hex").slice(0, 12)}`;

  it("finds nothing of what it invents in them, and makes them no longer (E4)", async () => {
    const { url } = await upstream((_request, response) => response.end("{}"));
    const running = await gateway({
      urls: [url],
      allowPin: true,
      allowAffinityHeader: true,
      ...{ health: { intervalMs: 3_600_000 } },
    });
    const names = (page: Exposition) =>
      [...page.families.values()].flatMap(({ samples }) =>
        samples.map(({ name, labels }) => JSON.stringify([name, labels])),
      );
    const send = async (word: string) => {
      const base = { model: "m", messages: [{ role: word, content: word }], user: word };
      const paths = [CHAT, "/v1/completions", "/v1/responses", "/v1/embeddings", "/v1/messages"];
      for (const path of paths) {
        await post(`${running.url}${path}?${word}=${word}`, base, { "x-session-id": word, [word]: word });
        await post(running.url + path, { ...base, model: word });
      }
      await post(`${running.url}/v1/${word}`, base);
      await fetch(`${running.url}/${word}`, { method: "PUT" });
      await fetch(`${running.url}${CHAT}`, { method: "DELETE" });
      await post(running.url + CHAT, base, { "x-hawser-pin": word });
      await post(running.url + CHAT, base, { "x-hawser-affinity": word });
      await post(running.url + CHAT, { ...base, previous_response_id: word, metadata: { user_id: word } });
      await post(running.url + CHAT, word);
      await post(running.url + CHAT, base, { authorization: `Bearer ${word}`, "user-agent": word });
      await fetch(`${running.admin}/metrics?${word}=${word}`);
      await fetch(`${running.admin}/admin/${word}`);
    };
    await send(words(0));
    await untilDataPlane(running.url, (seen) => seen.requests_in_flight === 0);
    const before = names(await metricsOf(running.admin));
    for (let i = 1; i < 6; i++) await send(words(i));
    await untilDataPlane(running.url, (seen) => seen.requests_in_flight === 0);
    const after = await (await fetch(`${running.admin}/metrics`)).text();
    expect(after).not.toContain(INVENTED);
    expect(names(new Exposition(after))).toEqual(before);
  });
});
