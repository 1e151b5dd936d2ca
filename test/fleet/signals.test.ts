// What is read of the pages of real engines, and of the simulated worker's under load.
import fc from "fast-check";
import { afterEach, describe, expect, it, vi } from "vitest";
import type { EngineSignals } from "../../host/fleet/options.js";
import { readSignals } from "../../host/fleet/signals.js";
import { type RunningWorker, startWorker } from "../../host/worker/server.js";
import { chat, post } from "../worker/http.js";

const NOTHING: EngineSignals = {
  running: undefined,
  waiting: undefined,
  kvUsed: undefined,
  blockSize: undefined,
  blocks: undefined,
  startSeconds: undefined,
  promptTokens: undefined,
};

const PROCESS = `# HELP process_virtual_memory_bytes Virtual memory size in bytes.
# TYPE process_virtual_memory_bytes gauge
process_virtual_memory_bytes 2.5769803776e+010
# HELP process_start_time_seconds Start time of the process since unix epoch in seconds.
# TYPE process_start_time_seconds gauge
process_start_time_seconds 1.76371234512e+09
`;

/** vLLM 0.6, of before data parallelism. */
const VLLM_OLD = `${PROCESS}# HELP vllm:cache_config_info Information of the LLMEngine CacheConfig
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16",cache_dtype="auto",cpu_offload_gb="0",enable_prefix_caching="True",gpu_memory_utilization="0.9",is_attention_free="False",num_cpu_blocks="2048",num_gpu_blocks="27389",num_gpu_blocks_override="None",sliding_window="None",swap_space_bytes="4294967296"} 1.0
# HELP vllm:num_requests_running Number of requests currently running on GPU.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{model_name="meta-llama/Llama-3.1-8B-Instruct"} 12.0
# HELP vllm:num_requests_swapped Number of requests swapped to CPU.
# TYPE vllm:num_requests_swapped gauge
vllm:num_requests_swapped{model_name="meta-llama/Llama-3.1-8B-Instruct"} 0.0
# HELP vllm:num_requests_waiting Number of requests waiting to be processed.
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{model_name="meta-llama/Llama-3.1-8B-Instruct"} 3.0
# HELP vllm:gpu_cache_usage_perc GPU KV-cache usage. 1 means 100 percent usage.
# TYPE vllm:gpu_cache_usage_perc gauge
vllm:gpu_cache_usage_perc{model_name="meta-llama/Llama-3.1-8B-Instruct"} 0.41835992551754354
# HELP vllm:cpu_cache_usage_perc CPU KV-cache usage. 1 means 100 percent usage.
# TYPE vllm:cpu_cache_usage_perc gauge
vllm:cpu_cache_usage_perc{model_name="meta-llama/Llama-3.1-8B-Instruct"} 0.0
# HELP vllm:time_to_first_token_seconds Histogram of time to first token in seconds.
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{le="0.001",model_name="meta-llama/Llama-3.1-8B-Instruct"} 0.0
vllm:time_to_first_token_seconds_bucket{le="+Inf",model_name="meta-llama/Llama-3.1-8B-Instruct"} 77.0
`;

/** vLLM 0.10 with two data-parallel engines, each of which tells the blocks of both. */
const VLLM_PARALLEL = `${PROCESS}# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="Qwen/Qwen3-8B"} 5.0
vllm:num_requests_running{engine="1",model_name="Qwen/Qwen3-8B"} 7.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="Qwen/Qwen3-8B"} 0.0
vllm:num_requests_waiting{engine="1",model_name="Qwen/Qwen3-8B"} 2.0
# HELP vllm:gpu_cache_usage_perc GPU KV-cache usage. 1 means 100 percent usage.DEPRECATED: Use vllm:kv_cache_usage_perc instead.
# TYPE vllm:gpu_cache_usage_perc gauge
vllm:gpu_cache_usage_perc{engine="0",model_name="Qwen/Qwen3-8B"} 0.9
vllm:gpu_cache_usage_perc{engine="1",model_name="Qwen/Qwen3-8B"} 0.9
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="Qwen/Qwen3-8B"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="Qwen/Qwen3-8B"} 0.5
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16",cache_dtype="auto",enable_prefix_caching="True",engine="0",num_gpu_blocks="44000",num_gpu_blocks_override="None"} 1.0
vllm:cache_config_info{block_size="16",cache_dtype="auto",enable_prefix_caching="True",engine="1",num_gpu_blocks="44000",num_gpu_blocks_override="None"} 1.0
`;

/** A later vLLM with two engines and a model whose layers keep KV in two ways: each engine tells its own tokens. */
const VLLM_HYBRID = `vllm:num_requests_running{engine="0",model_name="openai/gpt-oss-20b"} 1.0
vllm:num_requests_running{engine="1",model_name="openai/gpt-oss-20b"} 1.0
vllm:num_requests_waiting{engine="0",model_name="openai/gpt-oss-20b"} 4.0
vllm:num_requests_waiting{engine="1",model_name="openai/gpt-oss-20b"} 0.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="openai/gpt-oss-20b",reason="capacity"} 4.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="openai/gpt-oss-20b",reason="deferred"} 0.0
vllm:kv_cache_usage_perc{engine="0",model_name="openai/gpt-oss-20b"} 0.0
vllm:kv_cache_usage_perc{engine="1",model_name="openai/gpt-oss-20b"} 0.125
vllm:cache_config_info{block_size="16",engine="0",kv_cache_max_concurrency="12.5",kv_cache_size_tokens="320008",mamba_block_size="None",num_gpu_blocks="80000"} 1.0
vllm:cache_config_info{block_size="16",engine="1",kv_cache_max_concurrency="12.5",kv_cache_size_tokens="320008",mamba_block_size="None",num_gpu_blocks="80000"} 1.0
`;

/** SGLang 0.4, which tells no page size, and in any version no start: its page is put together from several processes. */
const SGLANG_OLD = `# HELP sglang:prompt_tokens_total Number of prefill tokens processed.
# TYPE sglang:prompt_tokens_total counter
sglang:prompt_tokens_total{model_name="meta-llama/Llama-3.1-8B-Instruct"} 8.128902e+06
# HELP sglang:max_total_num_tokens Maximum total number of tokens
# TYPE sglang:max_total_num_tokens gauge
sglang:max_total_num_tokens{model_name="meta-llama/Llama-3.1-8B-Instruct"} 471258.0
# HELP sglang:token_usage The token usage
# TYPE sglang:token_usage gauge
sglang:token_usage{model_name="meta-llama/Llama-3.1-8B-Instruct"} 0.28
# HELP sglang:num_used_tokens The number of used tokens
# TYPE sglang:num_used_tokens gauge
sglang:num_used_tokens{model_name="meta-llama/Llama-3.1-8B-Instruct"} 123859.0
# HELP sglang:num_running_reqs The number of running requests
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{model_name="meta-llama/Llama-3.1-8B-Instruct"} 162.0
# HELP sglang:num_queue_reqs The number of requests in the waiting queue
# TYPE sglang:num_queue_reqs gauge
sglang:num_queue_reqs{model_name="meta-llama/Llama-3.1-8B-Instruct"} 2826.0
`;

/** SGLang 0.5.10: the cache's size is in labels. */
const SGLANG_LABELS = `sglang:num_running_reqs{engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 9.0
sglang:num_queue_reqs{engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 0.0
sglang:token_usage{engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 0.07
sglang:cache_config_info{engine_type="unified",model_name="m",moe_ep_rank="0",num_pages="7363",page_size="64",pp_rank="0",tp_rank="0"} 1.0
`;

/** SGLang 0.5.12 with --enable-priority-scheduling. */
const SGLANG_PRIORITY = `sglang:num_running_reqs{engine_type="unified",model_name="m",pp_rank="0",priority="",tp_rank="0"} 14.0
sglang:num_running_reqs{engine_type="unified",model_name="m",pp_rank="0",priority="-1",tp_rank="0"} 4.0
sglang:num_running_reqs{engine_type="unified",model_name="m",pp_rank="0",priority="None",tp_rank="0"} 10.0
sglang:num_queue_reqs{engine_type="unified",model_name="m",pp_rank="0",priority="",tp_rank="0"} 2.0
sglang:num_queue_reqs{engine_type="unified",model_name="m",pp_rank="0",priority="-1",tp_rank="0"} 2.0
sglang:token_usage{engine_type="unified",model_name="m",pp_rank="0",priority="",tp_rank="0"} 1.02
sglang:full_token_usage{engine_type="unified",model_name="m",pp_rank="0",priority="",tp_rank="0"} 0.5
sglang:page_size{engine_type="unified",model_name="m",pp_rank="0",priority="",tp_rank="0"} 64.0
sglang:num_pages{engine_type="unified",model_name="m",pp_rank="0",priority="",tp_rank="0"} 7363.0
sglang:max_total_num_tokens{engine_type="unified",model_name="m",pp_rank="0",priority="",tp_rank="0"} 471258.0
`;

/** SGLang with DP attention over four GPUs, two for each rank, and --enable-metrics-for-all-schedulers. */
const SGLANG_PARALLEL = [
  [0, 0, 3, 1, 0.5],
  [0, 1, 3, 1, 0.5],
  [1, 2, 6, 0, 0.25],
  [1, 3, 6, 0, 0.25],
]
  .map(([dp, tp, running, waiting, usage]) => {
    const labels = `dp_rank="${dp}",engine_type="unified",model_name="m",moe_ep_rank="${tp}",pp_rank="0",tp_rank="${tp}"`;
    return `sglang:num_running_reqs{${labels}} ${running}.0
sglang:num_queue_reqs{${labels}} ${waiting}.0
sglang:token_usage{${labels}} ${usage}
sglang:page_size{${labels}} 1.0
sglang:max_total_num_tokens{${labels}} ${dp === 0 ? 100_000 : 300_000}.0
`;
  })
  .join("");

describe("the page of", () => {
  const startSeconds = 1_763_712_345.12;
  it.each<[string, string, Partial<EngineSignals>]>([
    [
      "vLLM 0.6",
      VLLM_OLD,
      { running: 12, waiting: 3, kvUsed: 418, blockSize: 16, blocks: 27389, startSeconds },
    ],
    [
      "vLLM 0.10 with data parallelism",
      VLLM_PARALLEL,
      { running: 12, waiting: 2, kvUsed: 375, blockSize: 16, blocks: 44000, startSeconds },
    ],
    [
      "a hybrid model in vLLM",
      VLLM_HYBRID,
      { running: 2, waiting: 4, kvUsed: 63, blockSize: 16, blocks: 40000 },
    ],
    ["SGLang 0.4", SGLANG_OLD, { running: 162, waiting: 2826, kvUsed: 280, promptTokens: 8_128_902 }],
    ["SGLang 0.5.10", SGLANG_LABELS, { running: 9, waiting: 0, kvUsed: 70, blockSize: 64, blocks: 7363 }],
    [
      "SGLang with priorities",
      SGLANG_PRIORITY,
      { running: 14, waiting: 2, kvUsed: 1000, blockSize: 64, blocks: 7363 },
    ],
    [
      "SGLang with data parallelism",
      SGLANG_PARALLEL,
      { running: 9, waiting: 1, kvUsed: 313, blockSize: 1, blocks: 400_000 },
    ],
    ["no engine", `${PROCESS}go_goroutines 12\n`, { startSeconds }],
    ["nothing", "", {}],
    ["something else", "<!doctype html><html><body>vllm:num_requests_running 5</body></html>", {}],
  ])("%s is understood", (_, page, signals) => {
    expect(readSignals(page)).toEqual({ ...NOTHING, ...signals });
    expect(readSignals(page.replaceAll("\n", "\r\n"))).toEqual({ ...NOTHING, ...signals });
    expect(readSignals(`${page}# EOF\n`)).toEqual({ ...NOTHING, ...signals });
  });
});

describe("counts", () => {
  const count = (...samples: string[]) =>
    readSignals(samples.map((sample) => `vllm:num_requests_running${sample}\n`).join("")).running;

  it.each([
    ["0", 0],
    ["2147483647", 2_147_483_647],
    ["2147483648", undefined],
    ["1e300", undefined],
    ["-1", undefined],
    ["NaN", undefined],
    ["+Inf", undefined],
    ["-Inf", undefined],
    ["five", undefined],
  ])("of %s", (value, running) => {
    expect(count(` ${value}`)).toBe(running);
  });

  it("are summed over engines and models", () => {
    expect(count('{engine="0"} 1', '{engine="1"} 2', '{dp_rank="0"} 4')).toBe(7);
    expect(count('{engine="0",model_name="a"} 1', '{engine="0",model_name="b"} 2')).toBe(3);
  });

  it("are unknown where those of one engine are, or where the sum is too large", () => {
    expect(count('{engine="0"} 1', '{engine="1"} NaN')).toBeUndefined();
    expect(count('{engine="0"} 1', '{engine="1"} -1')).toBeUndefined();
    expect(count('{engine="0"} 2147483647', '{engine="1"} 1')).toBeUndefined();
  });
});

describe("KV use", () => {
  const used = (...samples: string[]) => readSignals(`${samples.join("\n")}\n`).kvUsed;
  const vllm = (engine: number, usage: string) => `vllm:kv_cache_usage_perc{engine="${engine}"} ${usage}`;
  const size = (engine: number, blocks: string) =>
    `vllm:cache_config_info{engine="${engine}",block_size="16",num_gpu_blocks="${blocks}"} 1`;

  it.each([
    ["0", 0],
    ["0.0004", 0],
    ["0.9996", 1000],
    ["1", 1000],
    ["1.5", 1000],
    ["2147483647", 1000],
    ["-0.1", undefined],
    ["NaN", undefined],
    ["+Inf", undefined],
  ])("of %s", (value, kvUsed) => {
    expect(used(vllm(0, value))).toBe(kvUsed);
  });

  it("is weighted by blocks", () => {
    expect(used(vllm(0, "0.1"), vllm(1, "0.5"), size(0, "300"), size(1, "100"))).toBe(200);
  });

  it("is the plain mean where the blocks of some engine are unknown", () => {
    expect(used(vllm(0, "0.1"), vllm(1, "0.5"))).toBe(300);
    expect(used(vllm(0, "0.1"), vllm(1, "0.5"), size(0, "300"))).toBe(300);
    expect(used(vllm(0, "0.1"), vllm(1, "0.5"), size(0, "300"), size(1, "None"))).toBe(300);
    expect(used(vllm(0, "0.1"), vllm(1, "0.5"), size(0, "0"), size(1, "0"))).toBe(300);
  });
});

describe("the cache's size", () => {
  const size = (...labels: string[]) => {
    const { blockSize, blocks } = readSignals(
      labels.map((text) => `vllm:cache_config_info{${text}} 1\n`).join(""),
    );
    return [blockSize, blocks];
  };

  it("is unknown as long as vLLM does not know it", () => {
    expect(size('block_size="16",num_gpu_blocks="None"')).toEqual([16, undefined]);
    expect(size('block_size="None",num_gpu_blocks="None"')).toEqual([undefined, undefined]);
    expect(size('block_size="16",kv_cache_size_tokens="None",num_gpu_blocks="7"')).toEqual([16, 7]);
  });

  it("is unknown where it makes no sense", () => {
    expect(size('block_size="0",num_gpu_blocks="0"')).toEqual([undefined, undefined]);
    expect(size('block_size="-16",num_gpu_blocks="-7"')).toEqual([undefined, undefined]);
    expect(size('block_size="1.5",num_gpu_blocks="1e3"')).toEqual([undefined, undefined]);
    const huge = "9".repeat(400);
    expect(size(`block_size="${huge}",num_gpu_blocks="${huge}"`)).toEqual([undefined, undefined]);
    expect(readSignals("sglang:page_size 64\nsglang:max_total_num_tokens NaN\n").blocks).toBeUndefined();
  });

  it("is summed where engines tell different numbers of blocks, each its own", () => {
    const own = [
      'engine="0",block_size="16",num_gpu_blocks="30"',
      'engine="1",block_size="16",num_gpu_blocks="40"',
    ];
    expect(size(...own)).toEqual([16, 70]);
  });

  it("has no block size where engines differ", () => {
    expect(size('engine="0",block_size="16"', 'engine="1",block_size="32"')).toEqual([undefined, undefined]);
  });
});

it.each([
  ["1763712345.12", 1_763_712_345.12],
  // After 2038, too.
  ["4e9", 4e9],
  ["0", undefined],
  ["-1", undefined],
  ["NaN", undefined],
  ["+Inf", undefined],
])("reads a start of %s", (value, startSeconds) => {
  expect(readSignals(`process_start_time_seconds ${value}\n`).startSeconds).toBe(startSeconds);
});

describe("prompt tokens", () => {
  const tokens = (...samples: string[]) =>
    readSignals(samples.map((sample) => `sglang:prompt_tokens_total${sample}\n`).join("")).promptTokens;

  it.each([
    ["0", 0],
    ["8.128902e+06", 8_128_902],
    ["9007199254740991", 9_007_199_254_740_991],
    ["1e17", undefined],
    ["-1", undefined],
    ["NaN", undefined],
    ["+Inf", undefined],
  ])("of %s", (value, promptTokens) => {
    expect(tokens(` ${value}`)).toBe(promptTokens);
  });

  it("are unknown where there are several ranks, of which a page may lack one", () => {
    expect(tokens('{dp_rank="0"} 100')).toBe(100);
    expect(tokens('{dp_rank="0"} 100', '{dp_rank="1"} 50')).toBeUndefined();
    expect(tokens('{engine="0"} 0', '{engine="1"} 0')).toBeUndefined();
    // The GPUs of one rank work on the same requests.
    expect(tokens('{dp_rank="0",tp_rank="0"} 90', '{dp_rank="0",tp_rank="1"} 100')).toBe(100);
  });

  it("of vLLM come before those of SGLang", () => {
    expect(readSignals("sglang:prompt_tokens_total 5\nvllm:prompt_tokens_total 7\n").promptTokens).toBe(7);
  });
});

it("gives whole numbers in range for any page", () => {
  const name = fc.constantFrom(
    ...["vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"],
    ...["sglang:num_running_reqs", "sglang:token_usage", "sglang:page_size", "sglang:num_pages"],
    ...["sglang:max_total_num_tokens", "vllm:cache_config_info", "process_start_time_seconds"],
  );
  const label = fc.constantFrom("engine", "dp_rank", "model_name", "block_size", "num_gpu_blocks", "tp_rank");
  const text = fc.oneof(fc.constantFrom("0", "1", "16", "None"), fc.string());
  const value = fc.oneof(fc.nat(5), fc.double(), fc.string());
  const line = fc
    .tuple(name, fc.dictionary(label, text, { maxKeys: 3 }), value)
    .map(([name, labels, value]) => {
      const pairs = Object.entries(labels).map(([key, text]) => `${key}="${text}"`);
      return `${name}{${pairs.join(",")}} ${value}`;
    });
  const within = (value: number | undefined, least: number, most: number) => {
    if (value === undefined) return;
    expect(Number.isInteger(value) && value >= least && value <= most, `${value}`).toBe(true);
  };
  fc.assert(
    fc.property(fc.array(line, { maxLength: 12 }), (lines) => {
      const signals = readSignals(lines.join("\n"));
      within(signals.running, 0, 2 ** 31 - 1);
      within(signals.waiting, 0, 2 ** 31 - 1);
      within(signals.kvUsed, 0, 1000);
      within(signals.blockSize, 1, 2 ** 31 - 1);
      within(signals.blocks, 1, 2 ** 31 - 1);
      if (signals.startSeconds !== undefined) expect(signals.startSeconds).toBeGreaterThan(0);
    }),
    { numRuns: 1_000 },
  );
});

describe("the simulated worker", () => {
  let worker: RunningWorker | undefined;

  afterEach(async () => {
    await worker?.close();
    worker = undefined;
  });

  it("is understood under load", async () => {
    // One prompt token in 1,000 seconds: whoever is in prefill stays there until aborted.
    worker = await startWorker({
      prefillRate: 0.001,
      maxNumSeqs: 2,
      kvBlocks: 100,
      blockSize: 4,
      models: ['a"\\b'],
    });
    const { url } = worker;
    const read = async () => readSignals(await (await fetch(`${url}/metrics`)).text());
    const before = await read();
    expect(before).toMatchObject({ running: 0, waiting: 0, kvUsed: 0, blockSize: 4, blocks: 100 });
    expect(Math.abs(before.startSeconds! - Date.now() / 1000)).toBeLessThan(3_600);

    const controller = new AbortController();
    const requests = Array.from({ length: 5 }, (_, i) =>
      post(
        url,
        "/v1/chat/completions",
        { ...chat(`question ${i} in quite a few words`), model: 'a"\\b' },
        controller.signal,
      )
        .then(() => "answered")
        .catch(() => "gone"),
    );
    await vi.waitFor(async () => expect(await read()).toMatchObject({ running: 2, waiting: 3 }), 60_000);
    const { kvUsed, startSeconds } = await read();
    expect(kvUsed).toBeGreaterThan(0);
    expect(startSeconds).toBe(before.startSeconds);

    controller.abort();
    expect(await Promise.all(requests)).toEqual(Array(5).fill("gone"));
    await vi.waitFor(async () => expect(await read()).toEqual(before), 60_000);
  }, 120_000);
});
