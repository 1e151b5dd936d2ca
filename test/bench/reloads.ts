// `npm run bench reload`: a gateway with 200 streams whose config is reloaded again and again, a third of the times from a broken file:
// how long decisions take meanwhile, and how long a reload does.

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { Pool } from "undici";
import { stringify } from "yaml";
import { Process } from "./process.js";
import { quantile, table } from "./stats.js";

const MAIN = fileURLToPath(new URL("../../build/host/cli/main.js", import.meta.url));
const WORKERS = 4;
const TOKENS = 10;
/** Milliseconds between two tokens: so slow that the streams leave a part of the machine to everything else. */
const TPOT_MS = 100;
/** Most milliseconds of a decision. */
const LONGEST_AIM = 5;
const ADDRESS = /(http:\/\/[^\s(]+)/;

interface Amount {
  readonly streams: number;
  readonly reloads: number;
}

/** What was seen. Times are milliseconds, but for those of decisions. */
interface Figures {
  readonly turns: number;
  readonly failed: number;
  readonly reloads: readonly number[];
  readonly refused: number;
  /** Microseconds. */
  readonly decisions: readonly number[];
  readonly bindings: number;
  readonly inFlight: number;
}

/** Measures and prints; `quick` shows only that it runs. */
export async function benchReloads(quick: boolean): Promise<void> {
  const amount = quick ? { streams: 8, reloads: 6 } : { streams: 200, reloads: 100 };
  const { turns, failed, reloads, refused, decisions, bindings, inFlight } = await measure(amount);
  const longest = quantile(decisions, 1);
  const row = [
    ...[amount.streams, reloads.length, refused, turns, failed, bindings, inFlight].map(String),
    ...[0.5, 0.999].map((at) => quantile(decisions, at).toFixed(0)),
    longest.toFixed(0),
    quick ? "" : `${longest <= LONGEST_AIM * 1_000 ? "met" : "MISSED"} (${LONGEST_AIM * 1_000})`,
    ...[0.5, 1].map((at) => quantile(reloads, at).toFixed(0)),
  ];
  process.stdout.write(`${table(HEADING, COLUMNS, [row])}\n`);
}

const HEADING = "Reloads under streams: decisions in microseconds on the wall clock, reloads in ms";
const COLUMNS = [
  ...["streams", "reloads", "of broken files", "turns", "failed", "bindings", "left in flight"],
  ...["decision p50", "p99.9", "longest", "aim", "reload median", "longest"],
];

async function measure(amount: Amount): Promise<Figures> {
  const directory = mkdtempSync(join(tmpdir(), "hawser-reloads-"));
  const running: Process[] = [];
  const start = (...args: string[]): Process => {
    const started = new Process(args[0]!, process.execPath, [MAIN, ...args]);
    running.push(started);
    return started;
  };
  try {
    const workers = Array.from({ length: WORKERS }, () =>
      start("worker", "--port", "0", "--tpot", String(TPOT_MS)),
    );
    const urls = await Promise.all(workers.map(addressOf));
    const file = join(directory, "hawser.yaml");
    writeFileSync(file, configOf(urls, "sticky"));
    const gateway = start("serve", "--no-watch", "-c", file);
    const pool = new Pool(await addressOf(gateway), { connections: amount.streams });
    const admin = await addressOf(gateway);
    const seen = await drive(pool, admin, amount, (reload) => {
      // Neither of them moves a session here: what is lost would show.
      const type = reload % 2 === 0 ? "soft-affinity-load-guard" : "sticky";
      writeFileSync(file, configOf(urls, type) + (reload % 3 === 2 ? "lisen: {}\n" : ""));
    });
    await pool.close();
    await gateway.stop();
    return { ...seen, decisions: decisionsIn(join(directory, "decisions.jsonl")) };
  } finally {
    await Promise.all(running.map((each) => each.stop()));
    rmSync(directory, { recursive: true });
  }
}

async function addressOf(started: Process): Promise<string> {
  for (;;) {
    const address = ADDRESS.exec(await started.line())?.[1];
    if (address !== undefined) return address;
  }
}

function configOf(urls: readonly string[], type: string): string {
  const parameters = type === "sticky" ? {} : { max_active_requests: 10_000 };
  return stringify({
    ...{
      listen: { port: 0 },
      admin: { port: 0 },
      decision_log: { file: "decisions.jsonl", max_size: "1GiB" },
    },
    workers: urls.map((url, i) => ({ id: `w${i}`, url })),
    worker_selection: { aggregated: "chosen", instances: [{ name: "chosen", type, parameters }] },
  });
}

/** Keeps the streams up while it reloads. */
async function drive(
  pool: Pool,
  admin: string,
  { streams, reloads }: Amount,
  write: (reload: number) => void,
): Promise<Omit<Figures, "decisions">> {
  let [isOver, turns, failed, refused] = [false, 0, 0, 0];
  const lane = async (session: string): Promise<void> => {
    do {
      const isWhole = await turn(pool, session).catch(() => false);
      if (!isWhole) failed++;
      turns++;
    } while (!isOver);
  };
  const lanes = Array.from({ length: streams }, (_, i) => lane(`s${i}`));
  while (turns < streams) await new Promise((resolve) => setTimeout(resolve, 20));
  const times: number[] = [];
  for (let i = 0; i < reloads; i++) {
    write(i);
    const begun = performance.now();
    const response = await fetch(`${admin}/admin/reload`, { method: "POST" });
    await response.text();
    times.push(performance.now() - begun);
    if (response.status === 400) refused++;
  }
  isOver = true;
  await Promise.all(lanes);
  const { sessions } = (await (await fetch(`${admin}/admin/sessions?limit=1000`)).json()) as {
    sessions: { leases: number }[];
  };
  const inFlight = sessions.reduce((sum, { leases }) => sum + leases, 0);
  return { turns, failed, refused, reloads: times, bindings: sessions.length, inFlight };
}

/** One streamed answer; whether it came whole. */
async function turn(pool: Pool, session: string): Promise<boolean> {
  const { statusCode, body } = await pool.request({
    ...{ method: "POST", path: "/v1/chat/completions", headers: { "x-session-id": session } },
    body: JSON.stringify({
      ...{ model: "sim", stream: true, max_tokens: TOKENS },
      messages: [{ role: "user", content: "Hello" }],
    }),
  });
  return statusCode === 200 && (await body.text()).endsWith("data: [DONE]\n\n");
}

function decisionsIn(file: string): number[] {
  const lines = readFileSync(file, "utf8").trimEnd().split("\n");
  return lines.flatMap((line) => (JSON.parse(line) as { us?: number }).us ?? []);
}
