// The gateway as a service: started by a command of the docs, without anything between it and its signals.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { onTestFinished } from "vitest";
import { until } from "../e2e/fleet.js";

export interface Service {
  readonly child: ChildProcess;
  readonly url: string;
  /** Resolves to its exit code and the signal that ended it. */
  readonly exit: Promise<unknown[]>;
}

/** Starts a command and waits until it listens; it is killed when the test ends. */
export async function service(command: string, args: readonly string[], cwd: string): Promise<Service> {
  const child = spawn(command, args, { cwd, stdio: ["ignore", "pipe", "ignore"] });
  onTestFinished(() => void child.kill("SIGKILL"));
  const exit = once(child, "exit");
  let printed = "";
  child.stdout.setEncoding("utf8").on("data", (chunk: string) => {
    printed += chunk;
  });
  await until(async () => printed.includes("\nadmin on ") || child.exitCode !== null);
  return { child, exit, url: /listening on (http:\/\/[^\s(]+)/.exec(printed)![1]! };
}

/** Begins a stream of a simulated worker's that does not end in a test's time; resolves to its bytes. */
export async function endlessStream(url: string): Promise<ReadableStreamDefaultReader<Uint8Array>> {
  const body = {
    model: "sim",
    stream: true,
    max_tokens: 100_000,
    messages: [{ role: "user", content: "Hi" }],
  };
  const ask = () => fetch(`${url}/v1/chat/completions`, { method: "POST", body: JSON.stringify(body) });
  // Until the worker has been asked for its models there is none.
  let answer = await ask();
  for (; answer.status !== 200; answer = await ask()) await answer.text();
  return answer.body!.getReader();
}
