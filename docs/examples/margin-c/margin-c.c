// Keep a session on its worker while that worker is within a margin of the least-loaded one; without a margin, always.
#include "hawser.h"

enum { MARGIN = 0 };

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

i32 init(i32 capacity) { return hawser_init(capacity); }

i32 select(i32 n, i32 bound) {
  i32 best = least_loaded(n);
  if (!hawser_is_eligible(bound)) return hawser_answer(best, bound < 0 ? PLACE : MOVE_GONE);
  if (!hawser_has_param(MARGIN)) return hawser_answer(bound, KEEP);
  const i32 *loads = hawser_active_requests();
  f64 over = (f64)loads[bound] - (f64)loads[best];
  return over <= hawser_param(MARGIN) ? hawser_answer(bound, KEEP) : hawser_answer(best, MOVE_LOAD);
}
