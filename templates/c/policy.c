// Stay on the session's worker up to a number of requests in flight, then take the least-loaded worker.
#include "hawser.h"

// Parameters by their place in the manifest.
enum { MAX_ACTIVE_REQUESTS = 0 };

// The lowest eligible row with the fewest requests in flight, -1 where none is eligible.
static i32 least_loaded(i32 n) {
  const i32 *loads = hawser_active_requests();
  i32 best = -1;
  for (i32 row = 0; row < n; row++) {
    if (hawser_is_eligible(row)) {
      if (best < 0 || loads[row] < loads[best]) best = row;
    }
  }
  return best;
}

// Places the frame for `capacity` workers.
i32 init(i32 capacity) { return hawser_init(capacity); }

// Chooses among `n` workers; `bound` is the row of the session's worker, -1 for none.
i32 select(i32 n, i32 bound) {
  i32 best = least_loaded(n);
  if (!hawser_is_eligible(bound)) return hawser_answer(best, bound < 0 ? PLACE : MOVE_GONE);
  i32 load = hawser_active_requests()[bound];
  // Parameters are compared as f64: a cast to i32 is wrong above 2^31 - 1.
  if ((f64)load <= hawser_param(MAX_ACTIVE_REQUESTS)) return hawser_answer(bound, KEEP);
  if (hawser_active_requests()[best] == load) return hawser_answer(bound, KEEP_MARGIN);
  return hawser_answer(best, MOVE_LOAD);
}
