// SPDX-License-Identifier: Apache-2.0
// One array of loads seen in four ways: whole, half of every row, transposed, and computed.
#include <cstdint>
#include <cstdio>
#include <plimsoll/metrics.hpp>
#include <vector>

namespace {

/// Prints the largest load of each row over the row's mean.
template <class Loads>
void print_imbalance(char const* what, Loads const& loads) {
  std::printf("%-28s", what);
  for (plimsoll::balance_stats const& row : plimsoll::measure(plimsoll::seq, loads).to_host()) {
    std::printf(" %.2f", row.imbalance);
  }
  std::printf("\n");
}

}  // namespace

int main() {
  // [views]
  constexpr plimsoll::index_t layers = 2;
  constexpr plimsoll::index_t experts = 4;
  std::vector<std::int32_t> const tokens{900, 300, 200, 200,   // layer 0
                                         500, 100, 300, 700};  // layer 1
  plimsoll::matrix_ref<std::int32_t const> const loads(tokens, layers, experts);

  plimsoll::matrix_ref<std::int32_t const> first_half = loads;  // the first half of every row
  first_half.extents[1] = experts / 2;

  plimsoll::matrix_ref<std::int32_t const> by_expert(tokens, experts, layers);  // transposed
  by_expert.strides[0] = 1;
  by_expert.strides[1] = experts;

  print_imbalance("layers, over all experts", loads);
  print_imbalance("layers, over experts 0 and 1", first_half);
  print_imbalance("experts, over both layers", by_expert);
  // [end]

  // [computed]
  auto const zipf = plimsoll::generate(
      [](plimsoll::index_t layer, plimsoll::index_t expert) {
        return 1000.0 * static_cast<double>(layer + 1) / static_cast<double>(expert + 1);
      },
      layers, experts);
  print_imbalance("layers, computed loads", zipf);
  // [end]
}
