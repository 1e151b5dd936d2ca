// `/metrics`: the engine's counts as Prometheus text, under vLLM's names.
import type { EngineStats } from "./engine.js";
import type { PrefixCache } from "./prefix-cache.js";

/** What `/metrics` shows. */
export interface MetricsSource {
  /** The label `model_name`: as in vLLM, the first of the names served. */
  readonly model: string;
  readonly stats: EngineStats;
  readonly cache: PrefixCache;
  readonly startSeconds: number;
}

type Sample = readonly [labels: Record<string, string>, value: number];

/** Renders the Prometheus text format 0.0.4. */
export function renderMetrics({ model, stats, cache, startSeconds }: MetricsSource): string {
  const label = { model_name: model };
  const usage = cache.usedBlocks / cache.capacity;
  const config = { block_size: `${cache.blockSize}`, num_gpu_blocks: `${cache.capacity}` };
  const finished = Object.entries(stats.finished).map(
    ([reason, count]): Sample => [{ ...label, finished_reason: reason }, count],
  );
  const gauge = (name: string, help: string, value: number) => family(name, "gauge", help, [[label, value]]);
  const counter = (name: string, help: string, value: number) =>
    family(name, "counter", help, [[label, value]]);
  return [
    gauge("vllm:num_requests_running", "Requests that hold a seat.", stats.running),
    gauge("vllm:num_requests_waiting", "Requests that wait for a seat.", stats.waiting),
    gauge("vllm:kv_cache_usage_perc", "KV blocks in use by running requests, 1 is all.", usage),
    counter("vllm:prefix_cache_queries_total", "Prompt tokens looked up in the cache.", stats.cacheQueries),
    counter("vllm:prefix_cache_hits_total", "Prompt tokens found in the cache.", stats.cacheHits),
    counter("vllm:prompt_tokens_total", "Prompt tokens processed.", stats.promptTokens),
    counter("vllm:generation_tokens_total", "Tokens generated.", stats.generationTokens),
    family("vllm:request_success_total", "counter", "Requests ended, by reason.", finished),
    family("vllm:cache_config_info", "gauge", "The cache's size.", [[config, 1]]),
    family("process_start_time_seconds", "gauge", "Start, in seconds since 1970.", [[{}, startSeconds]]),
  ].join("");
}

function family(name: string, type: string, help: string, samples: readonly Sample[]): string {
  const lines = samples.map(([labels, value]) => `${name}${labelText(labels)} ${value}\n`);
  return `# HELP ${name} ${help}\n# TYPE ${name} ${type}\n${lines.join("")}`;
}

function labelText(labels: Record<string, string>): string {
  const pairs = Object.entries(labels).map(([key, value]) => `${key}="${escapeLabel(value)}"`);
  return pairs.length > 0 ? `{${pairs.join(",")}}` : "";
}

function escapeLabel(value: string): string {
  return value.replaceAll("\\", "\\\\").replaceAll('"', '\\"').replaceAll("\n", "\\n");
}
