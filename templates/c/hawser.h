// Affinity policy ABI 1 for C: the frame through which the host shows a policy what it decides about.
// A field or column other than eligible and active_requests is kept up to date only where the manifest reads it.
#ifndef HAWSER_H
#define HAWSER_H

typedef int i32;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef double f64;
typedef unsigned char u8;

// Why a row was chosen. Reasons from FIRST_OWN on are the policy's own and are named in its manifest.
enum { UNSPECIFIED, KEEP, KEEP_MARGIN, MOVE_LOAD, MOVE_GONE, PLACE, CACHE, FIRST_OWN = 256 };

// The answer "no row": the host then applies its built-in rule.
enum { NO_CHOICE = -1 };

extern u8 __heap_base;
static u8 *hawser_frame;
static i32 hawser_stride;

// Places the frame behind the module's data and stack; -2 where `capacity` rows do not fit.
static inline i32 hawser_init(i32 capacity) {
  u32 base = ((u32)&__heap_base + 63) & ~63u;
  i32 stride = (i32)(((u32)capacity + 15) & ~15u);
  if (capacity < 0 || base + 448 + 57 * (u64)(u32)stride > (u64)__builtin_wasm_memory_size(0) << 16) return -2;
  hawser_frame = (u8 *)base;
  hawser_stride = stride;
  return (i32)base;
}

static inline i32 hawser_answer(i32 row, i32 reason) { return row | reason << 16; }

// The parameter at `index` of the manifest's order; null is NaN. Compare as f64.
static inline f64 hawser_param(i32 index) { return ((const f64 *)(hawser_frame + 192))[index]; }

// Whether a nullable parameter is not null.
static inline i32 hawser_has_param(i32 index) { return hawser_param(index) == hawser_param(index); }

// Hash of the prompt's first 2^level blocks, level 0..15; 0 beyond the prompt's end.
static inline u64 hawser_prefix(i32 level) { return ((const u64 *)(hawser_frame + 64))[level]; }

// Whether `row` may be chosen. False for -1.
static inline i32 hawser_is_eligible(i32 row) { return row >= 0 && hawser_frame[448 + row] != 0; }

// Monotonic milliseconds.
static inline f64 hawser_now(void) { return *(const f64 *)(hawser_frame + 0); }

// 64 random bits, fresh for this decision.
static inline u64 hawser_seed(void) { return *(const u64 *)(hawser_frame + 8); }

// Hash of the scoped session key, 0 = no key.
static inline u64 hawser_session(void) { return *(const u64 *)(hawser_frame + 16); }

// Tokens of the prompt.
static inline u32 hawser_prompt_tokens(void) { return *(const u32 *)(hawser_frame + 24); }

// Blocks of the prompt, the last one rounded up.
static inline u32 hawser_prompt_blocks(void) { return *(const u32 *)(hawser_frame + 28); }

// Tokens in a KV-cache block.
static inline u32 hawser_block_tokens(void) { return *(const u32 *)(hawser_frame + 32); }

// What caused the turn: 0 unknown, 1 user message, 2 tool result, 3 other.
static inline u32 hawser_trigger(void) { return *(const u32 *)(hawser_frame + 36); }

// Tokens the answer is expected to have, 0 unknown.
static inline u32 hawser_expected_output_tokens(void) { return *(const u32 *)(hawser_frame + 40); }

// Requests of this binding in flight on the bound worker, this one not counted.
static inline u32 hawser_session_requests(void) { return *(const u32 *)(hawser_frame + 44); }

// Mean milliseconds between a session's turns, 0 unknown.
static inline u32 hawser_idle_ms(void) { return *(const u32 *)(hawser_frame + 48); }

// Columns: one value for each row.

// Requests in flight on the worker, before this one.
static inline const i32 *hawser_active_requests(void) { return (const i32 *)(hawser_frame + 448 + 1 * hawser_stride); }

// Prompt tokens dispatched whose first output token has not come, less what was cached.
static inline const i32 *hawser_active_prefill_tokens(void) { return (const i32 *)(hawser_frame + 448 + 5 * hawser_stride); }

// KV blocks held by requests in flight.
static inline const i32 *hawser_active_blocks(void) { return (const i32 *)(hawser_frame + 448 + 9 * hawser_stride); }

// Live bindings that point at the worker.
static inline const i32 *hawser_bound_sessions(void) { return (const i32 *)(hawser_frame + 448 + 13 * hawser_stride); }

// Leading blocks of this prompt that the worker is believed to hold.
static inline const i32 *hawser_cached_blocks(void) { return (const i32 *)(hawser_frame + 448 + 17 * hawser_stride); }

// KV-cache use in 1/1000, -1 unknown.
static inline const i32 *hawser_kv_used(void) { return (const i32 *)(hawser_frame + 448 + 21 * hawser_stride); }

// Requests waiting inside the engine, -1 unknown.
static inline const i32 *hawser_queue_depth(void) { return (const i32 *)(hawser_frame + 448 + 25 * hawser_stride); }

// Configured capacity weight, 100 = normal.
static inline const i32 *hawser_weight(void) { return (const i32 *)(hawser_frame + 448 + 29 * hawser_stride); }

// Hash of the worker's id. Remember this, never a row: rows are renumbered.
static inline const i32 *hawser_worker_hash(void) { return (const i32 *)(hawser_frame + 448 + 33 * hawser_stride); }

// Requests the engine runs at once, 0 unknown.
static inline const i32 *hawser_slots(void) { return (const i32 *)(hawser_frame + 448 + 37 * hawser_stride); }

// KV-cache capacity in blocks, 0 unknown.
static inline const i32 *hawser_kv_blocks(void) { return (const i32 *)(hawser_frame + 448 + 41 * hawser_stride); }

// Mean milliseconds of a request on the worker, 0 unknown.
static inline const i32 *hawser_service_ms(void) { return (const i32 *)(hawser_frame + 448 + 45 * hawser_stride); }

// Uncached prompt tokens prefilled per second, 0 unknown.
static inline const i32 *hawser_prefill_rate(void) { return (const i32 *)(hawser_frame + 448 + 49 * hawser_stride); }

// Mean of active_requests over the window of service_ms, in 1/1000.
static inline const i32 *hawser_active_mean(void) { return (const i32 *)(hawser_frame + 448 + 53 * hawser_stride); }

#endif
