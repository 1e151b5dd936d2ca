// Every piece of YAML in the docs that is a config is one that the gateway takes.
import { readdirSync } from "node:fs";
import { expect, it } from "vitest";
import { parseConfig } from "../../host/config/config.js";
import { blocksOf, ROOT } from "./blocks.js";

const WORKERS = "workers: [{ id: a, url: http://127.0.0.1:9001 }]\n";
const SECTIONS =
  /^(listen|admin|shutdown|policies|workers|session|worker_selection|limits|timeouts|retries|streams|log|forward_credentials|access|discovery|health|breaker|signals|admission|decision_log):/m;

const files = ["README.md", ...readdirSync(`${ROOT}docs`).map((name) => `docs/${name}`)].filter((name) =>
  name.endsWith(".md"),
);
const configs = files.flatMap((file) =>
  blocksOf(file)
    .filter(({ language, text }) => language === "yaml" && SECTIONS.test(text))
    .map(({ text }) => ({ file, text, first: text.split("\n", 1)[0] })),
);

it.each(configs)("$file: $first ...", ({ text }) => {
  // What a reader would have set.
  const environment = { VLLM_API_KEY: "sk-none" };
  const whole = /^workers:/m.test(text) ? text : WORKERS + text;
  const { mistakes, warnings } = parseConfig(whole, `${ROOT}hawser.yaml`, environment);
  expect([...mistakes, ...warnings]).toEqual([]);
});

it("are found at all", () => expect(configs.length).toBeGreaterThanOrEqual(3));
