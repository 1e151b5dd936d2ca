// The config of a gateway that serves is changed again and again, as an operator does it: real processes, real clients, the file and the
// admin listener. What clients see of it is nothing.
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import OpenAI from "openai";
import { beforeAll, describe, expect, it } from "vitest";
import { stringify } from "yaml";
import type { BindingView, RouterStatus } from "../../host/index.js";
import { compileAssembly } from "../fixtures/assembly.js";
import { directoryOf } from "../fixtures/directory.js";
import { health, type Running, start, until, worker } from "./fleet.js";

/** `HAWSER_RELOADS=N` makes N of them. */
const RELOADS = Number(process.env.HAWSER_RELOADS ?? 100);
const STREAMS = 200;
const MINUTES = 60_000;
const messages = [{ role: "user" as const, content: "Hello" }];

/** A gateway whose file a test writes. */
class Edited {
  private constructor(
    readonly gateway: Running,
    readonly admin: string,
    readonly file: string,
    readonly config: object,
  ) {}

  static async start(
    urls: readonly string[],
    selection: object,
    files: Record<string, string | Uint8Array> = {},
  ) {
    const config = {
      ...{ listen: { port: 0 }, admin: { port: 0 }, policies: { path: ["."] } },
      workers: urls.map((url, i) => ({ id: String.fromCharCode(97 + i), url })),
    };
    const directory = directoryOf({ "hawser.yaml": stringify({ ...config, worker_selection: selection }) });
    for (const [name, content] of Object.entries(files)) writeFileSync(join(directory, name), content);
    const file = join(directory, "hawser.yaml");
    const gateway = await start(["serve", "--no-watch", "-c", file]);
    return new Edited(gateway, await gateway.admin(), file, config);
  }

  /** Writes the file and has it read; resolves to the answer. */
  async reload(selection: object | string): Promise<{ status: number; body: Reload }> {
    const more = typeof selection === "string" ? selection : stringify({ worker_selection: selection });
    writeFileSync(this.file, stringify(this.config) + more);
    const response = await fetch(`${this.admin}/admin/reload`, { method: "POST" });
    return { status: response.status, body: (await response.json()) as Reload };
  }

  /** The bindings of all sessions, by id. */
  async bindings(): Promise<Map<string, BindingView>> {
    const { sessions } = (await (await fetch(`${this.admin}/admin/sessions?limit=1000`)).json()) as {
      sessions: BindingView[];
    };
    return new Map(sessions.map((session) => [session.id, session]));
  }

  health(): Promise<RouterStatus & { status: string; config: { generation: number; mistakes: string[] } }> {
    return health(this.gateway.url) as never;
  }
}

interface Reload {
  readonly generation: number;
  readonly error?: { readonly message: string };
}

interface Answer {
  readonly worker: string;
  readonly policy: string;
  readonly decision: string;
  readonly text: string;
}

/** One turn with the official client, read to its end. */
async function turn({ url }: Running, session: string, tokens: number, stream: boolean): Promise<Answer> {
  const client = new OpenAI({
    ...{ baseURL: `${url}/v1`, apiKey: "unused", maxRetries: 0 },
    defaultHeaders: { "x-session-id": session },
  });
  const asked = client.chat.completions.create({ model: "sim", max_tokens: tokens, messages, stream });
  const { data, response } = await asked.withResponse();
  let text = "";
  if (Symbol.asyncIterator in data)
    for await (const { choices } of data) text += choices[0]?.delta.content ?? "";
  else text = data.choices[0]!.message.content!;
  const header = (name: string) => response.headers.get(`x-hawser-${name}`)!;
  return { worker: header("worker"), policy: header("policy"), decision: header("decision"), text };
}

/** Neither of them ever moves a session here, so that a binding that is lost shows. */
const instances = [
  { name: "one", type: "sticky" },
  { name: "other", type: "soft-affinity-load-guard", parameters: { max_active_requests: 10_000 } },
];

it(
  "under 200 streams, with reloads one after the other, a third of them of broken files: nothing fails, nothing is lost (F4, F6)",
  async () => {
    const workers = await Promise.all([1, 2, 3, 4].map(() => worker("--tpot", "250")));
    const urls = workers.map(({ url }) => url);
    const edited = await Edited.start(urls, { aggregated: "one", instances });
    const { gateway } = edited;
    let isOver = false;
    let turns = 0;
    const policies = new Set<string>();
    const homes = new Map<string, Set<string>>();
    const session = async (name: string): Promise<void> => {
      const home = new Set<string>();
      homes.set(name, home);
      do {
        const answer = await turn(gateway, name, 6, true);
        expect(answer.text.split(" ").length).toBe(6);
        home.add(answer.worker);
        policies.add(answer.policy);
        turns++;
      } while (!isOver);
    };
    const names = Array.from({ length: STREAMS }, (_, i) => `session ${i}`);
    const all = Promise.all(names.map(session));
    await until(async () => (await edited.health()).bindings === STREAMS);
    const before = await edited.bindings();
    let generation = 1;
    for (let i = 0; i < RELOADS; i++) {
      const aggregated = i % 2 === 0 ? "other" : "one";
      const isBroken = i % 3 === 2;
      const { status, body } = await edited.reload(
        isBroken
          ? `worker_selection: { aggregated: ${aggregated}, instances: 7 }\n`
          : { aggregated, instances },
      );
      if (!isBroken) generation++;
      expect(status).toBe(isBroken ? 400 : 200);
      if (isBroken) expect(body.error!.message).toMatch(/hawser\.yaml:\d\d:/);
      else expect(body.generation).toBe(generation);
      const { config, workers, bindings } = await edited.health();
      expect(config.generation).toBe(generation);
      expect(config.mistakes.length > 0).toBe(isBroken);
      expect(bindings, `after reload ${i}`).toBe(STREAMS);
      const counted = workers.reduce((sum, { bound_sessions }) => sum + bound_sessions, 0);
      expect(counted).toBe(STREAMS);
    }
    isOver = true;
    await all;
    const { workers: counts, ...status } = await edited.health();
    expect(counts.map(({ active_requests }) => active_requests)).toEqual([0, 0, 0, 0]);
    expect(status).toMatchObject({
      affinity_placed: STREAMS,
      affinity_kept: turns - STREAMS,
      affinity_broken: 0,
    });
    expect([...homes.values()].map((home) => home.size)).toEqual(names.map(() => 1));
    const after = await edited.bindings();
    for (const [id, { worker, turns, moves }] of before) {
      const now = after.get(id)!;
      expect([now.worker, now.moves, now.turns >= turns]).toEqual([worker, moves, true]);
    }
    expect([...policies].sort()).toEqual(["one", "other"]);
    const page = await (await fetch(`${edited.admin}/metrics`)).text();
    const broken = Math.floor(RELOADS / 3);
    expect(page).toContain(`hawser_config_reloads_total{result="failed"} ${broken}\n`);
    expect(page).toContain(`hawser_config_reloads_total{result="applied"} ${RELOADS - broken}\n`);
    expect(page).toContain(`hawser_config_generation ${generation}\n`);
    expect(page).toContain(`hawser_config_last_reload_successful ${RELOADS % 3 === 0 ? 0 : 1}\n`);
  },
  10 * MINUTES,
);

/** Well behaved in its trial, and wherever there are other than two workers. */
const policy = (body: string) => `export { init } from "../../../assembly/sdk";
let calls: i32 = 0;
export function select(n: i32, bound: i32): i32 {
  if (n === 2) { ${body} }
  return bound >= 0 ? bound | (1 << 16) : 5 << 16;
}`;
const ROGUES = {
  loops: ["fuel", policy("while (true) calls++;")],
  traps: ["trap", policy("unreachable();")],
  lies: ["bad_row", policy("return 9999;")],
} as const;

describe.each(Object.entries(ROGUES))("a policy that %s, swapped in", (type, [failure, text]) => {
  let module: Uint8Array;
  beforeAll(async () => {
    module = await compileAssembly({ text });
  });

  it(`costs clients nothing, and the way back is one edit${failure === "fuel" ? " (G1, G2)" : failure === "trap" ? " (G3)" : " (G9, G11)"}`, async () => {
    const urls = (await Promise.all([1, 2].map(() => worker()))).map(({ url }) => url);
    const chosen = (type: string) => ({ aggregated: "chosen", instances: [{ name: "chosen", type }] });
    const manifest = stringify({
      ...{ abi: 1, type, version: "1.0.0", summary: "Fails late.", module: `${type}.wasm` },
    });
    const edited = await Edited.start(urls, chosen("sticky"), {
      [`${type}.yaml`]: manifest,
      [`${type}.wasm`]: module,
    });
    const { gateway } = edited;
    const round = (count: number, stream = false) =>
      Promise.all(Array.from({ length: count }, (_, i) => turn(gateway, `s${i % 8}`, 3, stream)));
    const first = await round(24);
    const [{ text: words }] = first as [Answer];
    const homes = new Map(first.map(({ worker }, i) => [i % 8, worker]));

    expect((await edited.reload(chosen(type))).status).toBe(200);
    expect((await edited.health()).policies).toMatchObject([
      { name: "chosen", type, state: "deciding" },
      { name: "chosen", type: "sticky", state: "standby", previous: true },
    ]);
    const answers: Answer[] = [];
    for (let i = 0; i < 4; i++) answers.push(...(await round(24, i % 2 === 0)));
    // Whatever decided, clients have the same words under the same name.
    expect(new Set(answers.map(({ text, policy }) => `${policy} ${text}`))).toEqual(
      new Set([`chosen ${words}`]),
    );
    expect(answers.map(({ decision }) => decision).filter((decision) => decision === "fallback").length).toBe(
      3,
    );
    const kept = answers.filter(
      ({ worker, decision }, i) => decision === "keep" && worker === homes.get(i % 8),
    );
    // Those three may have moved a session or two.
    expect(kept.length).toBeGreaterThan(24);
    const { policies, status } = await edited.health();
    expect(status).toBe("degraded");
    expect(policies).toMatchObject([
      { type, state: "quarantined", failures: { [failure]: 3 } },
      { type: "sticky", state: "deciding", previous: true },
    ]);

    const page = await (await fetch(`${edited.admin}/metrics`)).text();
    expect(page).toContain(`hawser_policy_failures_total{policy="chosen",kind="${failure}"} 3\n`);
    expect(page).toContain('hawser_policy_state{policy="chosen",state="quarantined"} 1\n');
    expect(page).toContain('hawser_decisions_total{policy="chosen",decision="fallback"} 3\n');

    expect((await edited.reload(chosen("sticky"))).status).toBe(200);
    expect(await edited.health()).toMatchObject({
      status: "ok",
      policies: [{ name: "chosen", type: "sticky", state: "deciding", failures: {} }],
    });
    expect(new Set((await round(8)).map(({ decision }) => decision))).toEqual(new Set(["keep"]));
  });
});
