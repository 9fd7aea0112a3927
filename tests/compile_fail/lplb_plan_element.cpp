// expect-error: lplb::plan: counts must hold int32, uint32 or int64, not double
// errors: 1
#include <plimsoll/systems/lplb.hpp>

void plan(plimsoll::lplb<plimsoll::seq_policy>& planner) {
  planner.plan(plimsoll::matrix_ref<double const>());
}
