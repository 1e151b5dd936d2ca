// An engine's `/metrics` -> what the router wants to know of it, under the names of vLLM and SGLang, new and old.

import type { EngineSignals } from "./options.js";
import { visitSamples } from "./prometheus.js";

/** Largest count: what a column of a policy's frame holds. */
const MAX_COUNT = 2 ** 31 - 1;

// Of several names for the same, the first that a page has counts: vLLM 0.9 and 0.10 show both names of the KV cache's use. A
// label that holds a number is written as `metric{label}`.
const RUNNING = ["vllm:num_requests_running", "sglang:num_running_reqs"];
const WAITING = ["vllm:num_requests_waiting", "sglang:num_queue_reqs"];
const KV_USE = ["vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage"];
const BLOCK_SIZE = [
  "vllm:cache_config_info{block_size}",
  "sglang:page_size",
  "sglang:cache_config_info{page_size}",
];
const TOKENS = ["vllm:cache_config_info{kv_cache_size_tokens}", "sglang:max_total_num_tokens"];
const BLOCKS = ["sglang:num_pages", "sglang:cache_config_info{num_pages}"];
const ALL_BLOCKS = ["vllm:cache_config_info{num_gpu_blocks}"];
const START = ["process_start_time_seconds"];
const PROMPT_TOKENS = ["vllm:prompt_tokens_total", "sglang:prompt_tokens_total"];

const ALL = [RUNNING, WAITING, KV_USE, BLOCK_SIZE, TOKENS, BLOCKS, ALL_BLOCKS, START, PROMPT_TOKENS].flat();
const WANTED: ReadonlySet<string> = new Set(ALL.map((name) => name.split("{", 1)[0]!));
/** Metrics whose value is nothing but 1, with the labels that are wanted of them. */
const INFOS: ReadonlyMap<string, readonly string[]> = new Map(
  [...WANTED].filter((name) => name.endsWith("_info")).map((name) => [name, labelsOf(name)]),
);

function labelsOf(metric: string): string[] {
  return ALL.filter((name) => name.startsWith(`${metric}{`)).map((name) => name.slice(metric.length + 1, -1));
}

/** What one engine of a worker says in one metric. */
interface Reading {
  /** Which of the data-parallel engines. */
  readonly rank: string;
  value: number;
}

/** Reads a page. Never throws: what is missing on it, or makes no sense, is undefined. */
export function readSignals(text: string): EngineSignals {
  const page = new Page(text);
  const blockSize = agreed(page.find(BLOCK_SIZE));
  const blocks = blocksOf(page, blockSize);
  return {
    running: sum(page.find(RUNNING)),
    waiting: sum(page.find(WAITING)),
    kvUsed: kvUsed(page.find(KV_USE), blocks),
    blockSize,
    blocks: sum(blocks) || undefined,
    startSeconds: first(page.find(START)),
    promptTokens: total(page.find(PROMPT_TOKENS)),
  };
}

/** The readings of a page, by metric and engine. */
class Page {
  readonly #metrics = new Map<string, Map<string, Reading>>();

  constructor(text: string) {
    visitSamples(text, WANTED, (name, labels, value) => {
      const parts = INFOS.get(name);
      if (!parts) this.#add(name, labels, value);
      else for (const part of parts) this.#addPart(name, part, labels);
    });
  }

  /** The readings under the first of the names that the page has, one for each engine. */
  find(names: readonly string[]): Reading[] {
    const metric = names.map((name) => this.#metrics.get(name)).find((readings) => readings !== undefined);
    return metric ? [...metric.values()] : [];
  }

  #addPart(name: string, part: string, labels: ReadonlyMap<string, string>): void {
    const text = labels.get(part);
    // "None", as long as vLLM does not know it.
    if (text !== undefined && /^\d+$/.test(text)) this.#add(`${name}{${part}}`, labels, Number(text));
  }

  #add(name: string, labels: ReadonlyMap<string, string>, value: number): void {
    const metric = this.#metrics.get(name) ?? new Map<string, Reading>();
    this.#metrics.set(name, metric);
    const rank = JSON.stringify([labels.get("engine"), labels.get("dp_rank")]);
    const engine = JSON.stringify([rank, labels.get("model_name")]);
    const reading = metric.get(engine);
    // SGLang can show an engine once for each of its GPUs (tp_rank, pp_rank), which all work on the same requests, and a
    // queue's part of each priority beside the whole.
    if (reading) reading.value = Math.max(reading.value, value);
    else metric.set(engine, { rank, value });
  }
}

/** The blocks of each engine. */
function blocksOf(page: Page, blockSize: number | undefined): Reading[] {
  // Tokens come first: where a model's layers keep KV in different ways, blocks of vLLM hold less than their size says.
  const tokens = blockSize === undefined ? [] : page.find(TOKENS);
  if (tokens.length > 0)
    return tokens.map(({ rank, value }) => ({ rank, value: Math.floor(value / blockSize!) }));
  const blocks = page.find(BLOCKS);
  return blocks.length > 0 ? blocks : shares(page.find(ALL_BLOCKS));
}

/** vLLM says with each of its engines how many blocks they have together. */
function shares(readings: readonly Reading[]): Reading[] {
  const isTotal = readings.every(({ value }) => value === readings[0]!.value);
  const parts = isTotal ? readings.length : 1;
  return readings.map(({ rank, value }) => ({ rank, value: value / parts }));
}

/** One that does not know makes the whole unknown: the sum of the others would look like it. */
function sum(readings: readonly Reading[]): number | undefined {
  if (readings.length === 0 || !readings.every(isSensible)) return undefined;
  const total = Math.round(readings.reduce((total, { value }) => total + value, 0));
  return total <= MAX_COUNT ? total : undefined;
}

/** The mean in 1/1000, by blocks where those of every engine are known. */
function kvUsed(readings: readonly Reading[], blocks: readonly Reading[]): number | undefined {
  if (readings.length === 0 || !readings.every(isSensible)) return undefined;
  const sizes = new Map(blocks.filter(isSensible).map(({ rank, value }) => [rank, value]));
  const isWeighted = readings.every(({ rank }) => (sizes.get(rank) ?? 0) > 0);
  const weightOf = (rank: string) => (isWeighted ? sizes.get(rank)! : 1);
  let [used, whole] = [0, 0];
  for (const { rank, value } of readings) {
    used += value * weightOf(rank);
    whole += weightOf(rank);
  }
  return Math.min(1000, Math.round((used / whole) * 1000));
}

/** What all engines say alike. */
function agreed(readings: readonly Reading[]): number | undefined {
  const value = readings[0]?.value ?? 0;
  const isAgreed =
    Number.isInteger(value) && value <= MAX_COUNT && readings.every((it) => it.value === value);
  return isAgreed && value >= 1 ? value : undefined;
}

/** Of a counter that one engine alone has: a page that lacks one of several would seem to count anew. */
function total(readings: readonly Reading[]): number | undefined {
  const { value = -1 } = readings[0] ?? {};
  return readings.length === 1 && value >= 0 && value <= Number.MAX_SAFE_INTEGER ? value : undefined;
}

function first(readings: readonly Reading[]): number | undefined {
  const value = readings[0]?.value ?? 0;
  return value > 0 && value <= Number.MAX_SAFE_INTEGER ? value : undefined;
}

function isSensible({ value }: Reading): boolean {
  return value >= 0 && value <= MAX_COUNT;
}
