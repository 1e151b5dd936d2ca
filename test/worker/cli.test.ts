// `hawser worker` as the process it is in production.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { afterEach, describe, expect, it } from "vitest";
import { MAIN } from "../e2e/fleet.js";
import { chat, metricsReach, post, scrape } from "./http.js";

const TIMEOUT = 60_000;

interface Cli {
  readonly child: ChildProcess;
  readonly output: { stdout: string; stderr: string };
  readonly exit: Promise<[code: number | null, signal: string | null]>;
}

const children: ChildProcess[] = [];

function hawser(...args: string[]): Cli {
  const child = spawn(process.execPath, [MAIN, "worker", ...args], { stdio: ["ignore", "pipe", "pipe"] });
  children.push(child);
  const output = { stdout: "", stderr: "" };
  child.stdout.on("data", (chunk) => {
    output.stdout += chunk;
  });
  child.stderr.on("data", (chunk) => {
    output.stderr += chunk;
  });
  return { child, output, exit: once(child, "close") as Cli["exit"] };
}

async function ready(cli: Cli): Promise<string> {
  const failed = cli.exit.then(() => Promise.reject(new Error(`no worker: ${cli.output.stderr}`)));
  failed.catch(() => {});
  while (!cli.output.stdout.includes("\n")) await Promise.race([once(cli.child.stdout!, "data"), failed]);
  return /listening on (http:\/\/127\.0\.0\.1:\d+)\n$/.exec(cli.output.stdout)![1];
}

afterEach(() => {
  for (const child of children.splice(0)) child.kill("SIGKILL");
});

describe("hawser worker", { timeout: TIMEOUT }, () => {
  it.each(["SIGTERM", "SIGINT"] as const)(
    "serves, and exits with 0 on %s, requests or not",
    async (signal) => {
      const cli = hawser("--port", "0", "--prefill-rate", "1");
      const url = await ready(cli);
      expect(cli.output.stdout).toBe(`worker sim listening on ${url}\n`);
      const cut = post(url, "/v1/chat/completions", chat("word ".repeat(1000))).catch(() => "cut");
      await metricsReach(url, { "vllm:num_requests_running": 1 });
      cli.child.kill(signal);
      expect(await cli.exit).toEqual([0, null]);
      expect(await cut).toBe("cut");
      expect(cli.output).toEqual({ stdout: `worker sim listening on ${url}\n`, stderr: "" });
    },
  );

  it("takes all its options", async () => {
    const cli = hawser(
      ...["--port", "0", "--host", "127.0.0.1", "--model", "a", "--model", "b,c", "--tpot", "0.5"],
      ...["--max-num-seqs", "2", "--prefill-rate", "1000000", "--kv-blocks", "32", "--block-size", "4"],
    );
    const url = await ready(cli);
    expect(cli.output.stdout).toBe(`worker a,b,c listening on ${url}\n`);
    const answer = await post(url, "/v1/chat/completions", { ...chat("one two three"), model: "c" });
    expect(await answer.json()).toMatchObject({ model: "c", usage: { prompt_tokens: 5 } });
    expect(await scrape(url)).toHaveProperty(['vllm:cache_config_info{block_size="4",num_gpu_blocks="32"}']);
  });

  const bad: Array<[string[], RegExp]> = [
    [[], /^error: required option '--port <number>' not specified$/],
    [["--port", "70000"], /'--port <number>' argument '70000' is invalid\. .* integer from 0 to 65535\.$/],
    [["--port", "0", "--max-num-seqs", "0"], /'0' is invalid\. It must be an integer from 1 to 65536\.$/],
    [["--port", "0", "--prefill-rate", "1.5"], /'1\.5' is invalid\. It must be an integer from 1 to/],
    [["--port", "0", "--tpot", "-1"], /'-1' is invalid\. It must be a number from 0 to 60000\.$/],
    [["--port", "0", "--kv-blocks", "many"], /'many' is invalid\. It must be an integer/],
    [["--port", "0", "--model", "a b"], /A model name is 1 to 256 printable ASCII characters/],
    [["--port", "0", "--tpots", "1"], /^error: unknown option '--tpots'/],
  ];
  it.each(bad)("refuses %j in one sentence", async (args, message) => {
    const cli = hawser(...args);
    expect(await cli.exit).toEqual([1, null]);
    expect(cli.output.stdout).toBe("");
    expect(cli.output.stderr.trimEnd()).toMatch(message);
  });

  it("says why it cannot listen", async () => {
    const port = new URL(await ready(hawser("--port", "0"))).port;
    const second = hawser("--port", port);
    expect(await second.exit).toEqual([1, null]);
    expect(second.output.stderr).toMatch(/^error: the worker cannot listen on .*EADDRINUSE.*\n$/);
  });
});
