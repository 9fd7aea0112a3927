// expect-error: minmax_lp::solve: loads must be a view of rank 2, \[layers, experts\]
// errors: 1
#include <plimsoll/minmax_lp.hpp>

#include <cstdint>
#include <vector>

void solve(plimsoll::minmax_lp<plimsoll::seq_policy>& lp) {
  std::vector<std::int32_t> loads(2);
  std::vector<double> split(3);
  lp.solve(loads, plimsoll::matrix_ref<double>(split.data(), 1, 3));
}
